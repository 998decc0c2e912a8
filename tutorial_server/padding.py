"""Prompts of different lengths in one rectangle: padding, positions, and who may see whom."""

from collections.abc import Sequence

import torch
from torch import Tensor


def pad_left(sequences: Sequence[Sequence[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """Fill short rows up on the left, so that the last column is every row's last real token.

    Returns `(ids, mask)`, both int64 `[B, T]`; the mask is 1 for real tokens. It comes
    from the lengths, since a pad id may also be a real one (SmolLM2 pads with `<|im_end|>`).
    """
    width = max((len(s) for s in sequences), default=0)
    ids = torch.full((len(sequences), width), pad_id, dtype=torch.int64)  # [B, T]
    mask = torch.zeros_like(ids)  # [B, T]
    for row, sequence in enumerate(sequences):
        start = width - len(sequence)
        ids[row, start:] = torch.tensor(sequence, dtype=torch.int64)
        mask[row, start:] = 1
    return ids, mask


def position_ids(mask: Tensor) -> Tensor:
    """Number the real tokens of each row from 0, so that padding does not shift them.

    `mask [B, T]` → int64 `[B, T]`; pads get 0, which nothing reads.
    """
    return (mask.long().cumsum(dim=-1) - 1).clamp(min=0)  # [B, T]


def may_attend(mask: Tensor) -> Tensor:
    """Say for each token which others it may look at: real ones, up to and including itself.

    `mask [B, T]` → bool `[B, 1, T, T]`, indexed `[row, 0, query, key]`; the 1 stands for
    the heads, which all see the same.
    """
    width = mask.shape[-1]
    causal = torch.ones(width, width, dtype=torch.bool, device=mask.device).tril()  # [T, T]
    return causal & mask.bool()[:, None, None, :]  # [B, 1, T, T]
