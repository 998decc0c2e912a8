"""One forward pass over rows of any age, laid out once for all layers."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

WORTH = 256  # positions that rather be read in vain than cost another call of attention


@dataclass(frozen=True)
class Chunk:
    """New tokens of one row: they stand at positions `start`, `start + 1`, … of `slot`."""

    slot: int
    start: int
    token_ids: Sequence[int]

    @property
    def length(self) -> int:
        """Positions that the row has once this chunk is in."""
        return self.start + len(self.token_ids)


@dataclass(frozen=True)
class Span:
    """Tokens that attend together: one each of neighbouring slots, or many of one slot.

    `tokens` among the pass's N, `slots` of the cache; `longest` is S. For one token each,
    `lengths [B]` and `seen [B, 1, 1, S]`; for many of one, `lengths` is None and `seen`
    is `[T, S]`, or None where they are the slot's first.
    """

    tokens: slice
    slots: slice
    longest: int
    lengths: Tensor | None
    seen: Tensor | None


@dataclass(frozen=True)
class ForwardPass:
    """N tokens of B rows: `token_ids [N]`, `positions [N]`, and for each row `last [B]`,
    where its last token stands among the N. `places [N × K]` is where keys and values go
    in a layer's cache `[slots × K × S, D]`.
    """

    token_ids: Tensor
    positions: Tensor
    places: Tensor
    last: Tensor
    spans: tuple[Span, ...]

    @classmethod
    def over(cls, chunks: Sequence[Chunk], cache: Tensor) -> "ForwardPass":
        """Lay out a pass over `chunks`, in slots' order; `cache [L, slots, K, S, D]`."""
        device = cache.device
        K, S = cache.shape[2:4]
        counts = [len(chunk.token_ids) for chunk in chunks]
        positions = torch.cat([torch.arange(c.start, c.length) for c in chunks])  # [N]
        slots = torch.tensor([c.slot for c in chunks]).repeat_interleave(torch.tensor(counts))
        heads = slots[:, None] * K + torch.arange(K)  # [N, K]
        places = (heads * S + positions[:, None]).flatten()  # [N × K]
        return cls(
            token_ids=torch.tensor([i for c in chunks for i in c.token_ids], device=device),
            positions=positions.to(device),
            places=places.to(device),
            last=(torch.tensor(counts).cumsum(0) - 1).to(device),  # [B]
            spans=tuple(_spans(chunks, device)),
        )


def _spans(chunks: Sequence[Chunk], device: torch.device) -> list[Span]:
    spans, at = [], 0
    for group in _groups(chunks):
        count = sum(len(chunk.token_ids) for chunk in group)
        spans.append(_span(group, slice(at, at + count), device))
        at += count
    return spans


def _groups(chunks: Sequence[Chunk]) -> list[list[Chunk]]:
    """Join neighbouring slots with one new token each, while little is read in vain."""
    groups: list[list[Chunk]] = []
    for chunk in chunks:
        if groups and _joins(groups[-1], chunk):
            groups[-1].append(chunk)
        else:
            groups.append([chunk])
    return groups


def _joins(group: list[Chunk], chunk: Chunk) -> bool:
    if chunk.slot != group[-1].slot + 1 or len(chunk.token_ids) + len(group[-1].token_ids) > 2:
        return False
    longest = max(row.length for row in group)
    apart = len(group) * longest + chunk.length
    together = (len(group) + 1) * max(longest, chunk.length)
    return together - apart <= WORTH


def _span(group: list[Chunk], tokens: slice, device: torch.device) -> Span:
    first, longest = group[0], max(chunk.length for chunk in group)
    slots = slice(first.slot, group[-1].slot + 1)
    if len(first.token_ids) > 1:
        return Span(tokens, slots, longest, None, _causal(first, device) if first.start else None)
    lengths = torch.tensor([chunk.length for chunk in group], device=device)  # [B]
    seen = torch.arange(longest, device=device) < lengths[:, None]  # [B, S]
    return Span(tokens, slots, longest, lengths, seen[:, None, None])


def _causal(chunk: Chunk, device: torch.device) -> Tensor:
    shape = (len(chunk.token_ids), chunk.length)
    return torch.ones(shape, dtype=torch.bool, device=device).tril(chunk.start)  # [T, S]
