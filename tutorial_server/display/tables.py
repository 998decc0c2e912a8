"""Numbers side by side, as HTML that reads on any page and as an exact plain text."""

import html
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from .token_text import pad, text_width

# JupyterLab keeps inline styles with hex colours in a notebook it does not trust, and no
# other styling. Text and background are both set, so that a dark theme changes neither.
INK, FAINT, PAPER, LINE, BLUE = "#1b1f24", "#59636e", "#f6f8fa", "#afb8c1", "#0b4f8a"
PANEL = (
    "display:inline-block;box-sizing:border-box;max-width:100%;overflow-x:auto;"
    "padding:8px 10px;margin:2px 0;"
    f"background-color:{PAPER};color:{INK};border:1px solid {LINE};border-radius:4px;"
    "font-family:'DejaVu Sans Mono',Menlo,Consolas,monospace;font-size:13px;line-height:1.35;"
    "text-align:left"
)
GRID = f"border-collapse:collapse;margin:0;background-color:{PAPER};color:{INK};font-size:13px"
NUMBER = re.compile(r"[<>~−+-]? ?\d[\d,]*(\.\d+)?( ?[^\s\d]\S{0,9})?")
MIN_NUMBER_WIDTH = 10  # so that a time that gains a digit does not move its neighbours


def panel(content: str, note: str = "") -> str:
    """A sheet of paper that reads alike on a light and a dark page, with a note below."""
    below = f'<div style="color:{FAINT};font-size:12px;margin-top:4px">{note}</div>' if note else ""
    # Without this class JupyterLab would set what stands between two $ as a formula.
    return f'<div class="mathjax_ignore" style="{PANEL}">{content}{below}</div>'


def number(value: float, digits: int = 3) -> str:
    """Write a number to the digits that mean something: whole ones exact, others to three."""
    if isinstance(value, Integral):
        return f"{int(value):,}"
    rounded = float(f"{value:.{digits}g}")
    if rounded == 0 or not math.isfinite(rounded):
        return f"{rounded:g}"
    exponent = math.floor(math.log10(abs(rounded)))
    if exponent < -4:
        return f"{rounded:.{digits - 1}e}"
    return f"{rounded:,.{max(0, digits - 1 - exponent)}f}"


@dataclass(frozen=True, repr=False)
class Table:
    """Rows under headers, as text that stays aligned and as HTML."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]  # [columns], the ones set to the right

    def __repr__(self) -> str:
        columns = list(zip(self.headers, *self.rows, strict=True))
        widths = [
            max(MIN_NUMBER_WIDTH * right, *map(text_width, column))
            for column, right in zip(columns, self.numeric, strict=True)
        ]
        rule = tuple("-" * width for width in widths)
        return "\n".join(self._line(row, widths) for row in (self.headers, rule, *self.rows))

    def _line(self, row: tuple[str, ...], widths: list[int]) -> str:
        cells = zip(row, widths, self.numeric, strict=True)
        return "  ".join(pad(cell, width, right) for cell, width, right in cells).rstrip()

    def _repr_html_(self) -> str:
        head = self._html_row("th", self.headers, f' style="border-bottom:2px solid {INK}"')
        body = "".join(
            self._html_row("td", row, f' style="background-color:{PAPER}"') for row in self.rows
        )
        return panel(f'<table style="{GRID}"><thead>{head}</thead><tbody>{body}</tbody></table>')

    def _html_row(self, tag: str, row: tuple[str, ...], style: str) -> str:
        scope = ' scope="col"' if tag == "th" else ""
        cells = (
            f'<{tag}{scope} style="text-align:{"right" if right else "left"};padding:2px 10px">'
            f"{html.escape(cell)}</{tag}>"
            for cell, right in zip(row, self.numeric, strict=True)
        )
        return f"<tr{style}>{''.join(cells)}</tr>"


def show_table(rows: Iterable[Sequence[object]], headers: Sequence[str]) -> Table:
    """Lay results side by side, so that they can be compared without arithmetic.

    A cell is a text, None (empty), a whole number (written exactly) or another number
    (to three digits). A column of numbers, with or without a unit, is set to the right.
    Raises ValueError for a row that is longer or shorter than the headers.
    """
    cells = [tuple(cell_text(cell) for cell in row) for row in rows]
    for place, row in enumerate(cells):
        if len(row) != len(headers):
            raise ValueError(f"row {place} has {len(row)} cells under {len(headers)} headers")
    columns = [[row[place] for row in cells] for place in range(len(headers))]
    numeric = tuple(all_numbers(column) for column in columns)
    return Table(tuple(map(cell_text, headers)), tuple(cells), numeric)


def cell_text(cell: Any) -> str:
    cell = plain(cell)
    if cell is None:
        return ""
    if is_number(cell):
        return number(cell)
    return str(cell).replace("\n", "⏎")


def plain(value: Any) -> Any:
    """A scalar of torch or NumPy as Python's own number."""
    return value.item() if hasattr(value, "item") else value


def is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def all_numbers(column: list[str]) -> bool:
    filled = [cell for cell in column if cell]
    return bool(filled) and all(NUMBER.fullmatch(cell) for cell in filled)


@dataclass(frozen=True, repr=False)
class Comparison:
    """A guess beside what was measured."""

    guess: float | None
    measured: float
    unit: str

    @property
    def factor(self) -> float | None:
        """measured ÷ guess; None without a guess, or where either is not positive."""
        if self.guess is None or min(self.guess, self.measured) <= 0:
            return None
        return self.measured / self.guess

    @property
    def lines(self) -> list[tuple[str, str]]:
        """What stands in the two columns, row by row."""
        guess = "no guess made" if self.guess is None else self._quantity(self.guess)
        rows = [("guess", guess), ("measured", self._quantity(self.measured))]
        return rows if self.guess is None else [*rows, ("factor", self._verdict())]

    def _quantity(self, value: float) -> str:
        return f"{number(value)} {self.unit}".rstrip()

    def _verdict(self) -> str:
        if self.factor is None:
            return "none: that takes two numbers above 0"
        if max(self.factor, 1 / self.factor) < 1.05:
            return "1.0 × (the guess was right to within 5 %)"
        side = "low" if self.factor > 1 else "high"
        times = number(max(self.factor, 1 / self.factor), digits=2)
        return f"{times} × (the guess was too {side})"

    def __repr__(self) -> str:
        return "\n".join(f"{name:<8}  {value}" for name, value in self.lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr style="background-color:{PAPER}">'
            f'<th scope="row" style="text-align:left;padding:2px 10px 2px 0;color:{FAINT}">'
            f'{name}</th><td style="text-align:left;padding:2px 0">{html.escape(value)}</td></tr>'
            for name, value in self.lines
        )
        return panel(f'<table style="{GRID}"><tbody>{rows}</tbody></table>')


def compare(guess: float | None, measured: float, unit: str) -> Comparison:
    """Put a reader's guess beside the measurement, and say by what factor it was off.

    `guess` None means that none was made. Both are numbers in the same `unit`.
    Raises TypeError for a guess that is no number.
    """
    guess = plain(guess)
    if guess is not None and not is_number(guess):
        raise TypeError(f"a guess is a number or None, not {guess!r}")
    return Comparison(guess, plain(measured), unit)
