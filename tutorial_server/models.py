"""Weights, tokenizer and device become one object: the LLM that everything else uses."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from .loading.choice import HUB_MODEL, Choice, choose, read_settings
from .loading.hub import HubUnreachable
from .loading.machine import sync_gpu
from .loading.model_folder import check_files, check_memory, find_folder
from .loading.quiet import quiet
from .loading.reading import read_model, read_tokenizer
from .loading.small_model import SMALL_MODEL, small_model_folder

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

__all__ = [
    "HUB_MODEL",
    "LLM",
    "SMALL_MODEL",
    "Choice",
    "choose",
    "load_model",
    "sync_gpu",
    "weight_bytes",
]


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
        text_config = model.config.get_text_config()
        return cls(
            tokenizer=tokenizer,
            model=model.eval(),
            device=model.device,
            dtype=model.dtype,
            stop_ids=find_stop_ids(tokenizer, model),
            context_length=getattr(
                text_config, "max_position_embeddings", tokenizer.model_max_length
            ),
            vocab_size=min(max(tokenizer.get_vocab().values()) + 1, text_config.vocab_size),
            name=name,
        )


def find_stop_ids(tokenizer: "PreTrainedTokenizerBase", model: "PreTrainedModel") -> frozenset[int]:
    """Every id that ends a turn, wherever it is noted: a config holds one id or a list."""
    noted = (
        model.generation_config.eos_token_id,
        model.config.get_text_config().eos_token_id,
        tokenizer.eos_token_id,
    )
    lists = (ids if isinstance(ids, list) else [ids] for ids in noted)
    return frozenset(id_ for ids in lists for id_ in ids if id_ is not None)


def weight_bytes(model: "LLM | PreTrainedModel") -> int:
    """Bytes of a model's parameters; what two layers share counts once."""
    module = model.model if isinstance(model, LLM) else model
    return sum(weight.numel() * weight.element_size() for weight in module.parameters())


def load_model(
    model: str | Path | None = None,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    *,
    cache: Path | None = None,
) -> LLM:
    """Make one object of a model, its tokenizer and the device that it runs on.

    `model` is a hub id, a local folder or `smollm2-135m`; what is left out is chosen
    as `choose` says. `cache` is the folder that keeps the converted small model.
    Raises ModelError with a sentence that says what to do.
    """
    choice = choose(model, device, dtype)
    cache = cache or read_settings().cache
    if choice.model == SMALL_MODEL:
        return _read(small_model_folder(cache), choice)
    try:
        folder = find_folder(choice.model)
    except HubUnreachable:
        if choice.model_is_given:
            raise
        print(
            f"The model hub cannot be reached: taking {SMALL_MODEL} instead of {choice.model}.",
            file=sys.stderr,
        )
        return load_model(SMALL_MODEL, choice.device, dtype, cache=cache)
    return _read(folder, choice)


def _read(folder: Path, choice: Choice) -> LLM:
    is_local = choice.model != SMALL_MODEL and Path(choice.model).expanduser().is_dir()
    name = folder.resolve().name if is_local else choice.model
    check_files(folder)
    with quiet():
        tokenizer = read_tokenizer(folder, name)
        check_memory(folder, name, choice.device, choice.dtype)
        model = read_model(folder, name, choice.device, choice.dtype)
    return LLM.of(tokenizer, model, name)
