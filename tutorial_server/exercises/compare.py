"""Comparisons for stages: each raises `Wrong` in words, with what was expected and what came.

`what` names the thing compared, as the task calls it (`"ids"`, `"the text"`). `diagnose`
lists `(wrong, hint)` pairs: where what came equals `wrong`, or `wrong(got)` is true, its
hint is shown in place of the general one. The first that fits counts.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .same import differs, like, same
from .show import kind, named
from .task import Raises, Stage, Words, Wrong

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
    expected = like(expected, got)
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
    raises: tuple[Raises, ...] = (),
) -> Stage:
    """Make the usual stage: `call(fn)` must give `expected`, to within `atol`."""

    def run(fn: Any) -> None:
        close(call(fn), expected, what, hint, diagnose, where, atol)

    return Stage(name, about, run, raises)


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
    parts = differs(got, expected, atol, where)
    raise Wrong(hint, expected=named(what, expected), got=named(what, got), differs=parts)


def _fits(got: Any, wrong: Any, atol: float, where: Tensor | None) -> bool:
    """Tell whether a known mistake explains what came; one that can't be tried does not."""
    try:
        return bool(wrong(got)) if callable(wrong) else same(got, wrong, atol, where)
    except Exception:
        return False


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
