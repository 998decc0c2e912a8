"""The learner's function behind glass: what each call was given, and whether it kept it whole."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from .show import is_tensor, named
from .task import Words, Wrong


class Guard:
    """Calls the learner's function for a stage, and fails where it changes an argument.

    Plain data (tensors, lists, dicts, tuples of these) must come back as it went in;
    models, tokenizers, caches and generators are passed through. `given` holds the last
    call's arguments by name, as they were before the call.
    """

    def __init__(self, fn: Callable[..., Any], signature: str, before: Callable[[], None]):
        functools.update_wrapper(self, fn)
        self._fn = fn
        self._signature = signature
        self._before = before
        self.given: dict[str, Any] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._before()
        args, kwargs = snapshot(args), snapshot(kwargs)  # the stage's own stay out of reach
        arguments = self._bind(args, kwargs)
        self.given = snapshot(arguments)
        result = self._fn(*args, **kwargs)
        self._compare(arguments)
        return result

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Name the arguments as the learner does; a call that cannot be made says so here."""
        try:
            signature = inspect.signature(self._fn)
        except (TypeError, ValueError):
            return {f"argument {i}": value for i, value in enumerate(args)} | kwargs
        try:
            return dict(signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            raise Wrong(
                f"The parameters don't fit ({error}). Take over the stub's first line.",
                expected=Words(f"def {self._signature}:"),
                got=Words(f"def {self._fn.__name__}{signature}:"),
                given={},
            ) from None

    def _compare(self, arguments: dict[str, Any]) -> None:
        for name, value in arguments.items():
            if not unchanged(self.given[name], value):
                raise Wrong(
                    f"Your function changes its argument `{name}` in place, and the caller "
                    "still needs it as it was. Work on a copy, or build a new value.",
                    expected=named(f"{name} after the call", self.given[name]),
                    got=named(f"{name} after the call", value),
                )


def snapshot(value: Any) -> Any:
    """Copy plain data deeply, and leave everything else as it is."""
    if is_tensor(value):
        return value.detach().clone()
    if type(value) in (list, tuple, set):
        return type(value)(snapshot(v) for v in value)
    if type(value) is dict:
        return {k: snapshot(v) for k, v in value.items()}
    return value


def unchanged(before: Any, now: Any) -> bool:
    """Compare plain data with its snapshot; other objects are trusted."""
    if is_tensor(before):
        same = before.shape == now.shape and before.dtype == now.dtype
        return same and bool(((before == now) | ((before != before) & (now != now))).all())
    if type(before) in (list, tuple):
        pairs = zip(before, now, strict=False)
        return len(before) == len(now) and all(unchanged(b, n) for b, n in pairs)
    if type(before) is dict:
        return list(before) == list(now) and all(unchanged(before[k], now[k]) for k in before)
    return bool(before == now) if isinstance(before, set | str | int | float | bytes) else True
