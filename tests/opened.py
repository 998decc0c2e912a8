"""Opened models and the rows that run in them, for the tests of the many-rows way."""

from collections.abc import Iterable
from collections.abc import Sequence as Rows
from dataclasses import replace
from typing import Any

import torch
from tiny import HEAD_IDS_UNKNOWN, tiny, tiny_tokenizer
from torch import Tensor
from transformers import LlamaForCausalLM, Qwen3ForCausalLM

from tutorial_server.models import LLM
from tutorial_server.sequence import SamplingParams, Sequence
from tutorial_server.slot_runner import SlotPlan, SlotRunner

CLASSES = {"llama": LlamaForCausalLM, "qwen3": Qwen3ForCausalLM}


def variant(kind: str = "llama", seed: int = 0, dtype: Any = None, **changes: Any) -> LLM:
    """A tiny model of its own, whose config differs from the usual one's in `changes`."""
    tokenizer = tiny_tokenizer(kind)
    usual = tiny(kind).model.config.to_dict()
    config = type(tiny(kind).model.config)(**(usual | changes))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = CLASSES[kind](config)
        for name, weight in model.named_parameters():
            if name.endswith("bias") or "norm" in name:  # else all zeros, or all ones
                torch.nn.init.normal_(weight, mean=float("norm" in name), std=0.3)
    model.generation_config = tiny(kind).model.generation_config
    assert config.vocab_size == len(tokenizer) + HEAD_IDS_UNKNOWN
    return LLM.of(tokenizer, model.to(dtype or torch.float32), f"tiny-{kind}")


def endless(llm: LLM) -> LLM:
    """The same model, with no id that ends a turn."""
    return replace(llm, stop_ids=frozenset())


def slot_runner(llm: LLM, slots: int = 4, length: int = 256) -> SlotRunner:
    return SlotRunner(llm, SlotPlan(slots, length, 1))


def row(llm: LLM, prompt_ids: Iterable[int], tokens: int = 8, **params: Any) -> Sequence:
    return Sequence(llm, list(prompt_ids), SamplingParams(tokens, **params))


def some_ids(llm: LLM, count: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, llm.vocab_size, (count,), generator=generator).tolist()


@torch.no_grad()
def theirs(llm: LLM, ids: Rows[int]) -> Tensor:
    """transformers' own logits over one row, `[T, V]`, cut to the ids that are known."""
    return llm.model(torch.tensor([ids]), use_cache=False).logits[0, :, : llm.vocab_size]


def read(runner: SlotRunner, sequence: Sequence, limit: int | None = None) -> Tensor:
    """Read a prompt to its end, in pieces of `limit`: logits `[1, V]`."""
    for _ in range(len(sequence.prompt_ids)):
        (logits,) = runner.prefill([sequence], limit)
        if logits is not None:
            return logits
    raise AssertionError("the prompt does not end")


def assert_close(found: Tensor, expected: Tensor, atol: float = 1e-4) -> None:
    """Compare logits as the course does: relative error would hide nothing at this size."""
    torch.testing.assert_close(found.float(), expected.float(), atol=atol, rtol=1e-4)
