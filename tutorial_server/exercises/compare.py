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


def instance(
    got: Any, kinds: type | tuple[type, ...], expected: str, what: str = "", hint: str = ""
) -> None:
    """Ask for a type; `expected` says which in words, e.g. "a list of token ids"."""
    if isinstance(got, kinds) and not (isinstance(got, bool) and kinds is int):
        return
    if got is None and not what:
        hint = "Your function returned None. Does it end with a `return`?"
    said = f"{what} is" if what else "Your function returns"
    raise Wrong(
        hint or f"{said} {kind(got)}, and {expected} is asked for.",
        expected=Words(f"{what}: {expected}" if what else expected),
        got=named(what, got) if what else got,
    )


def unpack(got: Any, *names: str) -> tuple[Any, ...]:
    """Ask for a tuple (or list) of as many values as `names`, and give them."""
    asked = f"{len(names)} values: {', '.join(names)}"
    instance(got, (tuple, list), asked, hint=f"Return {asked}; {kind(got)} came alone.")
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
    """Ask for a tensor, and for a number format and a shape where they are given.

    `hint` and `diagnose` are about the shape, or the number format where no shape is given.
    """
    instance(got, Tensor, "a tensor", what)
    if dtype is not None and shape is not None:
        has_dtype(got, what, dtype)
    elif dtype is not None:
        has_dtype(got, what, dtype, hint, *diagnose)
    if shape is not None:
        has_shape(got, what, shape, hint, *diagnose)


def has_dtype(got: Any, what: str, dtype: torch.dtype, hint: str = "", *known: Diagnosis) -> None:
    """Ask for a tensor's number format."""
    instance(got, Tensor, "a tensor", what)
    if got.dtype != dtype:
        name = str(dtype).removeprefix("torch.")
        found = str(got.dtype).removeprefix("torch.")
        hint = hint or f"{what} is {found}, and {name} is asked for: say dtype={dtype}."
        _fail(got, Words(f"{what}: {name}"), what, hint, known)


def has_shape(got: Any, what: str, shape: Sequence[int], hint: str = "", *known: Diagnosis) -> None:
    """Ask for a tensor's shape."""
    instance(got, Tensor, "a tensor", what)
    if list(got.shape) != list(shape):
        hint = hint or f"{what} has shape {list(got.shape)}, and {list(shape)} is asked for."
        _fail(got, Words(f"{what}: shape {list(shape)}"), what, hint, known)


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
