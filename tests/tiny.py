"""Tiny random models that are awkward in the ways in which real ones are.

Heads × head size differs from the hidden size, queries share keys, the head is wider
than the vocabulary, two ids end a turn, and three added tokens are not "special".
"""

import functools
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tutorial_server.models import LLM

CONTEXT_LENGTH = 512
HEAD_IDS_UNKNOWN = 16  # rows of the head past the tokenizer's last id

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
ADDED = ("<think>", "</think>", "<tool>")
MERGES = (
    ("Ċ", "Ċ"),
    ("h", "e"),
    ("l", "l"),
    ("he", "ll"),
    ("hell", "o"),
    ("Ġ", "t"),
    ("Ġt", "he"),
    ("Ġ", "a"),
    ("i", "n"),
    ("in", "g"),
    ("e", "r"),
    ("u", "s"),
    ("us", "er"),
    ("Ġ", "Ġ"),
    ("ð", "Ł"),  # two of the four bytes of most emoji
)

TURNS = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
"""
TEMPLATES = {
    "llama": """\
{%- if messages[0].role != 'system' %}{{- '<|im_start|>system\\nBe tiny.<|im_end|>\\n' }}{% endif %}
"""
    + TURNS
    + "{%- endif %}",
    "qwen3": TURNS
    + """\
{%- if enable_thinking is defined and enable_thinking is false %}
{{- '<think>\\n\\n</think>\\n\\n' }}
{%- endif %}
{%- endif %}""",
}


def tiny_tokenizer(kind: str = "llama") -> PreTrainedTokenizerFast:
    """A byte-level BPE of 256 bytes, a few merges and six added tokens, ChatML template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = alphabet + [left + right for left, right in MERGES]
    ids = {piece: id_ for id_, piece in enumerate(pieces)}
    backend = Tokenizer(models.BPE(vocab=ids, merges=list(MERGES)))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(text, normalized=False) for text in SPECIAL])
    backend.add_tokens([AddedToken(text, normalized=False) for text in ADDED])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=TEMPLATES[kind],
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT_LENGTH,
    )


def tiny_model(kind: str, tokenizer: PreTrainedTokenizerFast, seed: int = 0) -> PreTrainedModel:
    """Two layers of random fp32 weights, the same for a seed, the global state untouched."""
    config_class, model_class = {
        "llama": (LlamaConfig, LlamaForCausalLM),
        "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    }[kind]
    eos_ids = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    config = config_class(
        vocab_size=len(tokenizer) + HEAD_IDS_UNKNOWN,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,  # 4 × 16 = 64, not 48
        max_position_embeddings=CONTEXT_LENGTH,
        initializer_range=0.5,  # wide enough that greedy answers do not settle on one id
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=eos_ids[0],
        pad_token_id=eos_ids[1],
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = model_class(config)
    model.generation_config = GenerationConfig(eos_token_id=eos_ids, pad_token_id=eos_ids[1])
    return model.eval()


@functools.cache
def tiny(kind: str, seed: int = 0) -> LLM:
    """A tiny model and its tokenizer as the LLM that `load_model` would make of them."""
    tokenizer = tiny_tokenizer(kind)
    return LLM.of(tokenizer, tiny_model(kind, tokenizer, seed), f"tiny-{kind}")


def tiny_llama(seed: int = 0) -> LLM:
    """A random Llama whose template puts in a system prompt where there is none."""
    return tiny("llama", seed)


def tiny_qwen3(seed: int = 0) -> LLM:
    """A random Qwen3 whose template writes an empty thought when thinking is off."""
    return tiny("qwen3", seed)


def save_tiny(folder: Path, kind: str = "llama") -> Path:
    """Write a tiny model as a folder that `load_model` reads, and return the folder."""
    llm = tiny(kind)
    llm.model.save_pretrained(folder)
    llm.tokenizer.save_pretrained(folder)
    return folder
