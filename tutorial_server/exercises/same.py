"""When two values agree, and where they part, in words."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .show import is_tensor
from .task import Words


def same(a: Any, b: Any, atol: float = 0.0, where: Tensor | None = None) -> bool:
    """Tell whether two values agree; a tensor and nested lists of the same numbers do."""
    a, b = like(a, b), like(b, a)
    if is_tensor(a) and is_tensor(b):
        return a.shape == b.shape and not _apart(a, b, atol, where).any()
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        pairs = zip(a, b, strict=False)
        return len(a) == len(b) and all(same(x, y, atol) for x, y in pairs)
    if isinstance(a, float) and isinstance(b, float):
        return a == b or math.isclose(a, b, rel_tol=0, abs_tol=atol)
    related = isinstance(a, type(b)) or isinstance(b, type(a))
    return related and isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


def like(value: Any, other: Any) -> Any:
    """Turn nested lists into a tensor where the other side is one, and they can be."""
    if not is_tensor(other) or not isinstance(value, list | tuple):
        return value
    try:
        made = torch.tensor(value, dtype=other.dtype if other.is_floating_point() else None)
        return made if made.is_floating_point() else made.to(other.dtype)
    except (TypeError, ValueError, RuntimeError):
        return value


def _apart(a: Tensor, b: Tensor, atol: float, where: Tensor | None) -> Tensor:
    """Mark the places in which two tensors of one shape disagree."""
    a, b = a.detach().cpu().double(), b.detach().cpu().double()
    apart = ~((a == b) | ((a - b).abs() <= atol))
    return apart if where is None else apart & where


def differs(got: Any, expected: Any, atol: float, where: Tensor | None) -> str:
    """Say where two values part, which is quicker to read than two tensors."""
    if is_tensor(got) and is_tensor(expected):
        return _tensors_differ(got, expected, atol, where)
    if isinstance(got, str) and isinstance(expected, str) and not isinstance(expected, Words):
        return _sequences_differ(got, expected, "character")
    if isinstance(got, list | tuple) and isinstance(expected, list | tuple):
        return _sequences_differ(got, expected, "item")
    return ""


def _tensors_differ(got: Tensor, expected: Tensor, atol: float, where: Tensor | None) -> str:
    if got.shape != expected.shape:
        return f"in shape: {list(expected.shape)} expected, {list(got.shape)} came"
    apart = _apart(got, expected, atol, where)
    at = apart.nonzero()[0].tolist() if apart.any() else []
    count = apart.numel() if where is None else int(where.sum())
    that = "" if where is None else " that count"
    place = ", ".join(str(i) for i in at)
    return f"in {int(apart.sum())} of {count} places{that}, first at [{place}]"


def _sequences_differ(got: Sequence[Any], expected: Sequence[Any], unit: str) -> str:
    pairs = enumerate(zip(got, expected, strict=False))
    at = next((i for i, (a, b) in pairs if not same(a, b)), min(len(got), len(expected)))
    if len(got) == len(expected):
        return f"from {unit} {at} on: {expected[at]!r} expected, {got[at]!r} came"
    lengths = f"{len(expected)} {unit}s expected, {len(got)} came"
    return f"from {unit} {at} on; {lengths}"
