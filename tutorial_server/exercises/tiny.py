"""A model and a tokenizer small enough to make anew for every stage of a check.

Random weights, so nothing it says makes sense; but shapes, caches, masks and control
tokens behave as those of a real one.
"""

from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from .task import Raises

VOCABULARY = 272  # 256 bytes, 10 merges, 4 control tokens, and 2 ids that mean nothing
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "</think>")
# What a learner meant, where a model called in a wrong way only speaks of its insides.
MISCALLED: tuple[Raises, ...] = (
    (
        AttributeError,
        "'ndim'",
        "A model takes its cache by name: cache=…. What stands second is the attention mask.",
    ),
    (
        RuntimeError,
        "must match the size",
        "A model reads ids in two dimensions, [B, T]: a batch, though it be of one row.",
    ),
    (
        TypeError,
        "must be Tensor, not",
        "The model was given something else where token ids belong, which are a tensor [B, T]. "
        "Are the parameters in the stub's order?",
    ),
)
_MERGES = "h e|l l|he ll|hell o|Ġ w|o r|l d|Ġw or|Ġwor ld|Ġ a"
_TEMPLATE = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"""


def tiny_model(seed: int = 0, **changes: Any) -> Any:
    """A random Llama in eval mode: 2 layers, 4 query heads over 2 key/value heads of size 8.

    `changes` go into its config. The global random state is left as it was.
    """
    config = {
        "vocab_size": VOCABULARY,
        "hidden_size": 24,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 256,
        "initializer_range": 0.5,  # wide enough for answers that do not settle on one id
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": 268,
        "pad_token_id": 266,
    }
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return LlamaForCausalLM(LlamaConfig(**{**config, **changes})).eval()


def tiny_tokenizer() -> Any:
    """A byte-level tokenizer with a ChatML template: a plain byte b is one of ids 0 to 255."""
    merges = [(left, right) for left, right in map(str.split, _MERGES.split("|"))]
    pieces = sorted(pre_tokenizers.ByteLevel.alphabet()) + [a + b for a, b in merges]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(text, normalized=False) for text in CONTROL[:3]])
    backend.add_tokens([AddedToken(CONTROL[3], normalized=False)])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
