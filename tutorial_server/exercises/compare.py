"""Comparisons for stages: each raises `Wrong` in words, with what was expected and what came.

`what` names the thing compared, as the task calls it (`"ids"`, `"the text"`). `diagnose`
lists `(wrong, hint)` pairs: where what came equals `wrong`, or `wrong(got)` is true, its
hint is shown in place of the general one. The first that fits counts.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .show import is_tensor, kind, named
from .task import Stage, Words, Wrong

Diagnosis = tuple[Any, str]


def expect(holds: Any, hint: str, *, expected: Any, got: Any) -> None:
    """Fail with `hint` unless `holds`, for what the other comparisons don't cover."""
    if not holds:
        raise Wrong(hint, expected=expected, got=got)


def instance(got: Any, kinds: type | tuple[type, ...], expected: str, hint: str = "") -> None:
    """Ask for a type; `expected` says which in words, e.g. "a list of token ids"."""
    if isinstance(got, kinds) and not (isinstance(got, bool) and kinds is int):
        return
    if got is None:
        hint = "Your function returned None. Does it end with a `return`?"
    raise Wrong(
        hint or f"Your function returns {kind(got)}, and {expected} is asked for.",
        expected=Words(expected),
        got=Words(kind(got)) if got is None else got,
    )


def unpack(got: Any, *names: str) -> tuple[Any, ...]:
    """Ask for a tuple (or list) of as many values as `names`, and give them."""
    asked = f"{len(names)} values: {', '.join(names)}"
    instance(got, (tuple, list), asked, f"Return {asked}; {kind(got)} came alone.")
    if len(got) != len(names):
        raise Wrong(f"Return {asked}; {len(got)} came.", expected=Words(asked), got=got)
    return tuple(got)


def tensor(
    got: Any,
    what: str,
    dtype: torch.dtype | None = None,
    shape: Sequence[int] | None = None,
    hint: str = "",
    diagnose: Sequence[Diagnosis] = (),
) -> None:
    """Ask for a tensor, of a dtype and a shape if given: type first, then number format."""
    wanted = _name(dtype) if dtype else "a tensor"
    instance(got, Tensor, f"{what}: {wanted} tensor" if dtype else f"{what}: {wanted}")
    if dtype is not None and got.dtype != dtype:
        fault = f"{what} is {_name(got.dtype)}, and {wanted} is asked for."
        _fail(got, Words(f"{what}: {wanted}"), what, hint or fault, diagnose)
    if shape is not None and list(got.shape) != list(shape):
        fault = f"{what} has shape {list(got.shape)}, and {list(shape)} is asked for."
        expected = Words(f"{what} of shape {list(shape)}")
        _fail(got, expected, what, hint or fault, diagnose)


def equal(
    got: Any,
    expected: Any,
    what: str,
    hint: str,
    diagnose: Sequence[Diagnosis] = (),
    where: Tensor | None = None,
) -> None:
    """Ask for equality: tensors value by value, lists, strings, anything else by `==`.

    `expected` may be nested lists where a tensor came. `where`, bool of the tensor's
    shape, says which places count.
    """
    close(got, expected, what, hint, diagnose, where, atol=0.0)


def close(
    got: Any,
    expected: Any,
    what: str,
    hint: str,
    diagnose: Sequence[Diagnosis] = (),
    where: Tensor | None = None,
    atol: float = 1e-5,
) -> None:
    """Ask for equality within `atol`; infinities must be the same, and nan is never right."""
    expected = _like(expected, got)
    if not same(got, expected, atol, where):
        _fail(got, expected, what, hint, diagnose, where, atol)


def gives(
    name: str,
    about: str,
    call: Callable[[Any], Any],
    expected: Any,
    what: str,
    hint: str,
    *diagnose: Diagnosis,
    where: Tensor | None = None,
    atol: float = 0.0,
    if_raises: str = "",
) -> Stage:
    """Make the usual stage: `call(fn)` must give `expected`, to within `atol`."""

    def run(fn: Any) -> None:
        close(call(fn), expected, what, hint, diagnose, where, atol)

    return Stage(name, about, run, if_raises)


def same(a: Any, b: Any, atol: float = 0.0, where: Tensor | None = None) -> bool:
    """Tell whether two values agree; a tensor and nested lists of the same numbers do."""
    a, b = _like(a, b), _like(b, a)
    if is_tensor(a) and is_tensor(b):
        return a.shape == b.shape and not _apart(a, b, atol, where).any()
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        pairs = zip(a, b, strict=False)
        return len(a) == len(b) and all(same(x, y, atol) for x, y in pairs)
    if isinstance(a, float) and isinstance(b, float):
        return a == b or math.isclose(a, b, rel_tol=0, abs_tol=atol)
    return type(a) is type(b) and bool(a == b)


def _fail(
    got: Any,
    expected: Any,
    what: str,
    hint: str,
    diagnose: Sequence[Diagnosis],
    where: Tensor | None = None,
    atol: float = 0.0,
) -> None:
    for wrong, better in diagnose:
        if _fits(got, wrong, atol, where):
            hint = better
            break
    differs = _differs(got, expected, atol, where)
    raise Wrong(hint, expected=named(what, expected), got=named(what, got), differs=differs)


def _fits(got: Any, wrong: Any, atol: float, where: Tensor | None) -> bool:
    """Tell whether a known mistake explains what came; one that can't be tried does not."""
    try:
        return bool(wrong(got)) if callable(wrong) else same(got, wrong, atol, where)
    except Exception:
        return False


def _like(value: Any, other: Any) -> Any:
    """Turn nested lists into a tensor where the other side is one, and they can be."""
    if not is_tensor(other) or not isinstance(value, list | tuple):
        return value
    try:
        return torch.tensor(value, dtype=other.dtype)
    except (TypeError, ValueError, RuntimeError):
        return value


def _apart(a: Tensor, b: Tensor, atol: float, where: Tensor | None) -> Tensor:
    """Mark the places in which two tensors of one shape disagree."""
    a, b = a.detach().cpu().double(), b.detach().cpu().double()
    apart = ~((a == b) | ((a - b).abs() <= atol))
    return apart if where is None else apart & where


def _differs(got: Any, expected: Any, atol: float, where: Tensor | None) -> str:
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
    place = ", ".join(str(i) for i in at)
    return f"in {int(apart.sum())} of {apart.numel()} places, first at [{place}]"


def _sequences_differ(got: Sequence[Any], expected: Sequence[Any], unit: str) -> str:
    pairs = enumerate(zip(got, expected, strict=False))
    at = next((i for i, (a, b) in pairs if not same(a, b)), min(len(got), len(expected)))
    if len(got) == len(expected):
        return f"from {unit} {at} on: {expected[at]!r} expected, {got[at]!r} came"
    lengths = f"{len(expected)} {unit}s expected, {len(got)} came"
    return f"from {unit} {at} on; {lengths}"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
