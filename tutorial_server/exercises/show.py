"""Values printed small: what a learner needs to see of a tensor, and no more."""

import sys
from collections.abc import Mapping
from typing import Any

from .task import Words

MAX_CHARS = 600
MAX_ITEMS = 12  # of a row, of a list
MAX_ROWS = 12


def show(value: Any) -> str:
    """Print any value in a few short lines; never raises, whatever its repr does."""
    try:
        return _short(_show(value))
    except Exception:
        return f"<a {type(value).__name__} that cannot be printed>"


def show_named(values: Mapping[str, Any]) -> str:
    """Print arguments as `name = value`, one below the other, their lines kept in column."""
    return "\n".join(_hang(f"{name} = ", show(value)) for name, value in values.items())


def named(what: str, value: Any) -> Words:
    """Put a value's name before it; what is words already stays as it is."""
    return value if isinstance(value, Words) else Words(f"{what}: {show(value)}")


def is_tensor(value: Any) -> bool:
    """Tell a tensor, without importing torch to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def kind(value: Any) -> str:
    """Name a value's type as one says it: `int64 [2, 3]`, `a list of 4`, `None`."""
    if value is None:
        return "None"
    if is_tensor(value):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    name = type(value).__name__
    article = "an" if name[:1].lower() in "aeiou" else "a"
    if isinstance(value, list | tuple):
        return f"{article} {name} of {len(value)}"
    return f"{article} {name}"


def _show(value: Any) -> str:
    if isinstance(value, Words):
        return str(value)
    if is_tensor(value):
        return _tensor(value)
    if isinstance(value, tuple) and any(is_tensor(v) for v in value):
        return "(" + ",\n ".join(_hang("", show(v)).replace("\n", "\n ") for v in value) + ")"
    if isinstance(value, str):
        return "\n".join(map(_middle, map(repr, _text_lines(value))))
    if isinstance(value, bytes):
        return _middle(repr(value))
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, list | tuple) and all(isinstance(v, int | float | str) for v in value):
        return _row(list(value), "()" if isinstance(value, tuple) else "[]")
    if isinstance(value, list) and value and all(isinstance(v, dict) for v in value):
        return "[" + ",\n ".join(_long(repr(v)) for v in value[:MAX_ROWS]) + "]"
    if isinstance(value, list | tuple | dict | set | int | type(None) | range):
        return _long(repr(value))
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return f"{kind(value)} {value.__name__}"
    return _long(repr(value)) if _plain(value) else f"<{type(value).__name__}>"


def _text_lines(text: str) -> list[str]:
    """Cut a text after its line ends, so that each is on a line of its own, in quotes."""
    lines = text.splitlines(keepends=True) or [""]
    hidden = f"… {len(lines)} lines in all"
    return lines if len(lines) <= MAX_ROWS else [*lines[:MAX_ROWS], hidden]


def _plain(value: Any) -> bool:
    """Tell whether a value's repr is short and about its content."""
    text = repr(value)
    return len(text) <= 200 and " at 0x" not in text


def _tensor(value: Any) -> str:
    value = value.detach().cpu()
    body = value.int() if str(value.dtype) == "torch.bool" else value  # 1 and 0 align
    while body.dim() > 2 and body.shape[0] == 1:
        body = body[0]
    if value.dim() == 0:
        return f"{kind(value)}: {_number(value.item())}"
    return f"{kind(value)}\n{_rows(body)}"


def _rows(body: Any) -> str:
    """Print a tensor's numbers, columns under one another."""
    if body.dim() <= 1:
        return _row(body.tolist())
    cells = [_cells(row) for row in body[:MAX_ROWS]] if body.dim() == 2 else None
    if cells is None:
        parts = [_rows(part) for part in body[:MAX_ROWS]]
        more = [f"… {len(body)} in all"] if len(body) > MAX_ROWS else []
        return _hang("[", ",\n".join(parts + more)) + "]"
    width = max((len(cell) for row in cells for cell in row), default=0)
    lines = ["[" + ", ".join(cell.rjust(width) for cell in row) + "]" for row in cells]
    more = [f"… {len(body)} rows in all"] if len(body) > MAX_ROWS else []
    return "[" + ",\n ".join(lines + more) + "]"


def _row(values: list[Any], brackets: str = "[]") -> str:
    comma = "," if brackets == "()" and len(values) == 1 else ""
    return brackets[0] + ", ".join(_cells(values)) + comma + brackets[1]


def _cells(values: Any) -> list[str]:
    values = values.tolist() if is_tensor(values) else values
    cells = [_number(v) for v in values[:MAX_ITEMS]]
    return [*cells, f"… {len(values)} in all"] if len(values) > MAX_ITEMS else cells


def _number(value: Any) -> str:
    """Print a number to four digits, so that a row of them stays a row."""
    if isinstance(value, float):
        whole = abs(value) < 1e4 and value == int(value)
        return f"{value:.1f}" if whole else f"{value:.4g}"
    return _middle(repr(value), 40)


def _hang(head: str, body: str) -> str:
    return head + body.replace("\n", "\n" + " " * len(head))


def _middle(text: str, limit: int = 240) -> str:
    """Cut the middle out of a long text, since faults sit at its ends."""
    half = limit // 2
    return text if len(text) <= limit else f"{text[:half]} … {text[-half:]}"


def _long(text: str) -> str:
    return text if len(text) <= 240 else f"{text[:200]} … ({len(text)} characters)"


def _short(text: str) -> str:
    return text if len(text) <= MAX_CHARS else text[:MAX_CHARS] + "\n…"
