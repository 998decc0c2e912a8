"""Many sequences at once: the opened model over the slots of one preallocated cache."""

import logging
from collections.abc import Sequence as Rows
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .errors import ModelError
from .forward_pass import Chunk, ForwardPass
from .loading.machine import free_bytes
from .memory import kv_cache_bytes
from .models import LLM
from .sequence import Sequence
from .slots import SlotCache
from .transformer import Transformer

log = logging.getLogger("tutorial_server")
ENOUGH_TOKENS = 4096  # a slot is made no shorter, while there is one longer, to have more of them
MOST_OF_FREE = 0.8  # of the memory that is free, for the cache
LEAST_TOKENS = 256  # a slot that holds fewer is of no use


@dataclass(frozen=True)
class SlotPlan:
    """How a memory budget is cut into slots: `slots` rows of `length` tokens each."""

    slots: int
    length: int
    bytes_per_token: int

    @classmethod
    def fit(cls, config: Any, dtype: torch.dtype, budget: float, most: int = 16) -> "SlotPlan":
        """Cut `budget` bytes for a model with transformers' `config`, at `most` so many slots.

        A slot is as long as the model's context while eight fit; then shorter, down to
        4096 tokens; then there are fewer.
        """
        per_token = kv_cache_bytes(config, 1, dtype.itemsize)
        context = config.get_text_config().max_position_embeddings
        tokens = max(1, int(budget // per_token))
        length = min(context, max(tokens // min(8, most), min(ENOUGH_TOKENS, tokens)))
        return cls(max(1, min(most, tokens // length)), length, per_token)

    @property
    def bytes(self) -> int:
        """What all slots take when they are full."""
        return self.slots * self.length * self.bytes_per_token


class SlotRunner:
    """Runs as many sequences as there are slots, each step for all rows in one pass.

    A request gets what it would get alone: rows share the weights' products, and nothing
    else. `llm.context_length` is a slot's length where that is shorter than the model's.
    """

    def __init__(self, llm: LLM, plan: SlotPlan, model: Transformer | None = None):
        self.llm = replace(llm, context_length=min(llm.context_length, plan.length))
        self.rows = plan.slots
        self.model = model or Transformer(llm)
        self.cache = SlotCache(
            layers=len(self.model.layers),
            slots=plan.slots,
            kv_heads=self.model.K,
            length=plan.length,
            head_dim=self.model.D,
            dtype=llm.dtype,
            device=llm.device,
        )

    @classmethod
    def within(cls, llm: LLM, budget: float, most: int = 16) -> "SlotRunner":
        """Open a model with a cache of `budget` bytes, or of what is free if that is less.

        Raises ModelError where that is too little for one conversation.
        """
        model = Transformer(llm)  # first, since packed weights take memory too
        free = MOST_OF_FREE * free_bytes(llm.device)
        if free < budget:
            log.warning("only %.1f GB are free for the KV cache of %.1f", free / 1e9, budget / 1e9)
        plan = SlotPlan.fit(llm.model.config, llm.dtype, min(budget, free), most)
        if plan.length < min(LEAST_TOKENS, llm.context_length):
            raise ModelError(
                f"The KV cache has room for {plan.length} tokens only, of {plan.bytes_per_token} "
                "bytes each: give it more with --kv-cache-gb, or free some memory."
            )
        log.info("KV cache: %d slots of %d tokens", plan.slots, plan.length)
        return cls(llm, plan, model)

    @property
    def cache_usage(self) -> float:
        """The part of the slots that is taken: a row has its whole slot from the beginning."""
        return 1 - self.cache.free / self.rows

    def prefill(self, sequences: Rows[Sequence], limit: int | None = None) -> list[Tensor | None]:
        """Read up to `limit` tokens of these prompts in one pass, in their order.

        Gives logits `[1, V]` for a prompt whose last token was read, and None for the others.
        """
        read, _ = self.step(sequences, (), limit)
        return read

    def decode(self, sequences: Rows[Sequence]) -> Tensor:
        """Run each sequence's latest token: logits `[B, V]` for the next."""
        _, logits = self.step((), sequences)
        return logits

    def step(
        self, reading: Rows[Sequence], writing: Rows[Sequence], limit: int | None = None
    ) -> tuple[list[Tensor | None], Tensor]:
        """Read up to `limit` tokens of prompts and run others' latest tokens, all in one pass.

        Where tokens of prompts are read anyway, those of answers cost next to nothing more.
        Gives what `prefill` and `decode` give. Source: arXiv:2308.16369.
        """
        chunks = self._chunks(reading, limit)
        begun = [chunk for chunk in chunks if chunk.token_ids]
        logits = self._forward([*begun, *map(_latest, writing)])  # [B, V]
        rows = iter(logits[: len(begun)].split(1))  # [1, V] each
        read = [
            self._has_read(sequence, chunk, next(rows) if chunk.token_ids else None)
            for sequence, chunk in zip(reading, chunks, strict=True)
        ]
        return read, logits[len(begun) :]

    def release(self, sequence: Sequence) -> None:
        """Free a sequence's slot for the next."""
        if sequence.cache is not None:
            used = len(sequence.prompt_ids) + len(sequence.token_ids)
            self.cache.give_back(sequence.cache, used)
            sequence.cache = None

    def _chunks(self, sequences: Rows[Sequence], limit: int | None) -> list[Chunk]:
        """Give the next chunk of each prompt, some of them empty: `limit` tokens in all."""
        chunks = []
        for sequence in sequences:
            chunk = self._next_chunk(sequence, limit)
            if limit is not None:
                limit -= len(chunk.token_ids)
            chunks.append(chunk)
        return chunks

    def _next_chunk(self, sequence: Sequence, limit: int | None) -> Chunk:
        if not sequence.prompt_ids:
            raise ValueError("the prompt is empty: there is nothing to answer")
        if sequence.cache is None:
            sequence.cache = self.cache.take()
            sequence.cache_used = True
        start = sequence.prompt_read
        end = None if limit is None else start + limit
        return Chunk(sequence.cache, start, sequence.prompt_ids[start:end])

    def _has_read(self, sequence: Sequence, chunk: Chunk, logits: Tensor | None) -> Tensor | None:
        sequence.prompt_read = chunk.length
        return logits if chunk.length == len(sequence.prompt_ids) else None

    def _forward(self, chunks: list[Chunk]) -> Tensor:
        """Run a pass in the order of slots, in which rows attend together: `[B, V]` in ours."""
        order = sorted(range(len(chunks)), key=lambda row: chunks[row].slot)
        work = ForwardPass.over([chunks[row] for row in order], self.cache.keys)
        logits = self.model.forward(work, self.cache)  # [B, V]
        if order == sorted(order):
            return logits
        return logits[sorted(range(len(order)), key=order.__getitem__)]  # [B, V]


def _latest(sequence: Sequence) -> Chunk:
    position = len(sequence.prompt_ids) + len(sequence.token_ids) - 1
    return Chunk(sequence.cache, position, sequence.token_ids[-1:])
