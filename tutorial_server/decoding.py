"""Whole answers, without a server: three ways to drive a runner."""

from collections.abc import Collection, Iterator
from typing import Any

from torch import Tensor

from .chat import build_messages, encode_chat
from .models import LLM
from .runner import Runner, TransformersRunner, UncachedRunner, decode, prefill
from .sequence import Completion, SamplingParams, Sequence


def run(runner: Runner, sequence: Sequence) -> Iterator[str]:
    """Drive one sequence to its end, giving each piece of text as it becomes certain."""
    try:
        (logits,) = runner.prefill([sequence])  # [1, V]
        assert logits is not None  # there was no limit
        while True:
            if piece := sequence.accept(logits):
                yield piece
            if sequence.finish_reason:
                return
            logits = runner.decode([sequence])  # [1, V]
    finally:
        runner.release(sequence)


def generate_uncached(
    llm: LLM,
    prompt: str,
    max_new_tokens: int = 32,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
) -> Completion:
    """Answer by reading everything anew for each token: right, and slower with every token."""
    params = SamplingParams(max_new_tokens, temperature, top_k, top_p, seed)
    return _complete(UncachedRunner(llm), prompt, params)


def generate_cached(
    llm: LLM,
    prompt: str,
    max_new_tokens: int = 32,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
) -> Completion:
    """Answer with a KV cache: prefill once, then one token at the price of one token."""
    params = SamplingParams(max_new_tokens, temperature, top_k, top_p, seed)
    return _complete(TransformersRunner(llm), prompt, params)


def generate_stream(
    llm: LLM,
    prompt: str,
    max_new_tokens: int = 32,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
) -> Iterator[str]:
    """Answer as `generate_cached` does, piece by piece; joined, the pieces are its text."""
    params = SamplingParams(max_new_tokens, temperature, top_k, top_p, seed)
    return run(TransformersRunner(llm), new_sequence(llm, prompt, params))


def generate_greedy(
    model: Any, input_ids: Tensor, max_new_tokens: int, stop_ids: Collection[int]
) -> list[int]:
    """Answer with prefill and decode alone: the whole loop, bare of requests and runners.

    `input_ids [1, T]` → the answer's ids, at most `max_new_tokens` (1 or more), cut before
    the first of `stop_ids`. Each token costs one forward pass, and so does the stop id.
    """
    token_ids: list[int] = []
    logits, cache = prefill(model, input_ids)  # [1, V]
    while True:
        token = logits.argmax(dim=-1, keepdim=True)  # [1, 1]
        if int(token) in stop_ids:
            return token_ids
        token_ids.append(int(token))
        if len(token_ids) >= max_new_tokens:
            return token_ids
        logits, cache = decode(model, token, cache)  # [1, V]


def new_sequence(llm: LLM, prompt: str, params: SamplingParams) -> Sequence:
    """Encode a prompt into a sequence that a runner can take up. Raises TooLong."""
    return Sequence(llm, encode_chat(llm, build_messages(prompt)), params)


def _complete(runner: Runner, prompt: str, params: SamplingParams) -> Completion:
    sequence = new_sequence(runner.llm, prompt, params)
    for _ in run(runner, sequence):
        pass
    return sequence.completion()
