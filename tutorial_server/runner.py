"""The only code that calls a model: prefill reads the prompt, decode adds a token."""

from collections.abc import Callable
from collections.abc import Sequence as Rows
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from .models import LLM
from .sequence import Sequence

Prefill = Callable[[Any, Tensor], tuple[Tensor, Any]]
Decode = Callable[[Any, Tensor, Any], tuple[Tensor, Any]]


@torch.no_grad()
def prefill(model: Any, input_ids: Tensor) -> tuple[Tensor, Any]:
    """Read the whole prompt in one forward pass, and keep what attention will need again.

    `input_ids [1, T]` → `(logits [1, V], cache)`. The vocabulary is wide, so logits are
    computed for the last position only; no other is looked at.
    """
    outputs = model(input_ids=input_ids, use_cache=True, logits_to_keep=1)
    return outputs.logits[:, -1], outputs.cache  # [1, V]


@torch.no_grad()
def decode(model: Any, token: Tensor, cache: Any) -> tuple[Tensor, Any]:
    """Extend an answer by one token, at the price of one token.

    `token [1, 1]` → `(logits [1, V], cache)`; the cache grows by one position.
    """
    outputs = model(input_ids=token, cache=cache, use_cache=True)
    return outputs.logits[:, -1], outputs.cache  # [1, V]


class Runner(Protocol):
    """Runs a model for sequences, and keeps for each what the next step needs.

    Logits leave it cut to the ids that the tokenizer knows (V = `llm.vocab_size`):
    a model's head may be wider, and an id without a text must never be chosen.
    """

    llm: LLM
    rows: int  # sequences that may run at once

    def prefill(self, sequences: Rows[Sequence], limit: int | None = None) -> list[Tensor | None]:
        """Read prompts, in this order: logits `[1, V]` for the first token of each.

        A runner that can stop and go on reads at most `limit` tokens in all, and gives None
        for a prompt of which some are left.
        """

    def decode(self, sequences: Rows[Sequence]) -> Tensor:
        """Run each sequence's latest token: logits `[B, V]` for the next."""

    def release(self, sequence: Sequence) -> None:
        """Forget a sequence that ended or was left."""


@runtime_checkable
class MixedRunner(Runner, Protocol):
    """A runner whose pass may hold prompts and answers: the weights are read once for both."""

    def step(
        self, reading: Rows[Sequence], writing: Rows[Sequence], limit: int | None = None
    ) -> tuple[list[Tensor | None], Tensor]:
        """Do what `prefill` does for some and `decode` for others: their logits, `[B, V]`."""


class TransformersRunner:
    """Runs transformers' own forward for one sequence at a time, with the cache it returns.

    `prefill` and `decode` can be anyone's, which is how a learner's code gets to serve.
    """

    rows = 1

    def __init__(self, llm: LLM, prefill: Prefill = prefill, decode: Decode = decode):
        self.llm = llm
        self._prefill = prefill
        self._decode = decode

    @torch.inference_mode()
    def prefill(self, sequences: Rows[Sequence], limit: int | None = None) -> list[Tensor | None]:
        """Read whole prompts, whatever the limit: logits `[1, V]` for each."""
        return [self._read(sequence) for sequence in sequences]

    @torch.inference_mode()
    def decode(self, sequences: Rows[Sequence]) -> Tensor:
        """Run each sequence's latest token in turn: logits `[B, V]`."""
        return torch.cat([self._step(sequence) for sequence in sequences])  # [B, V]

    def release(self, sequence: Sequence) -> None:
        """Give the cache's memory back."""
        sequence.cache = None

    def _read(self, sequence: Sequence) -> Tensor:
        input_ids = torch.tensor([sequence.prompt_ids], device=self.llm.device)  # [1, T]
        logits, sequence.cache = self._prefill(self.llm.model, input_ids)
        sequence.cache_used = sequence.cache is not None
        sequence.prompt_read = len(sequence.prompt_ids)
        return logits[:, : self.llm.vocab_size]  # [1, V]

    def _step(self, sequence: Sequence) -> Tensor:
        token = torch.tensor([sequence.token_ids[-1:]], device=self.llm.device)  # [1, 1]
        logits, sequence.cache = self._decode(self.llm.model, token, sequence.cache)
        return logits[:, : self.llm.vocab_size]  # [1, V]


class UncachedRunner:
    """Runs the whole sequence anew for every token: the naive way, kept to compare with."""

    rows = 1

    def __init__(self, llm: LLM):
        self.llm = llm

    def prefill(self, sequences: Rows[Sequence], limit: int | None = None) -> list[Tensor | None]:
        """Read whole prompts, whatever the limit: logits `[1, V]` for each."""
        return [self.decode([sequence]) for sequence in sequences]

    @torch.inference_mode()
    def decode(self, sequences: Rows[Sequence]) -> Tensor:
        """Read prompt and answer of each sequence again: logits `[B, V]`."""
        return torch.cat([self._read(s.prompt_ids + s.token_ids) for s in sequences])  # [B, V]

    def release(self, sequence: Sequence) -> None:
        """Do nothing: nothing was kept."""

    def _read(self, ids: list[int]) -> Tensor:
        input_ids = torch.tensor([ids], device=self.llm.device)  # [1, T]
        outputs = self.llm.model(input_ids=input_ids, use_cache=False, logits_to_keep=1)
        return outputs.logits[:, -1, : self.llm.vocab_size]  # [1, V]
