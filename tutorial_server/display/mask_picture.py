"""Which token may look at which, and what is padding: masks as grids of filled cells."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from .tables import BLUE, FAINT, GRID, INK, LINE, PAPER, panel
from .token_text import pad, text_width, visible

FILLED, EMPTY = "■", "·"
LARGEST = 32  # rows and columns drawn
LONGEST_NAME, LONGEST_HEAD = 14, 7  # signs of a token's text beside and above the grid
MOST_HEADS = 12  # columns up to which tokens stand above the grid, too
CORNERS = {"attention": "query ↓ key →", "padding": "row ↓ position →"}
LEGENDS = {
    "attention": f"{FILLED} may attend, {EMPTY} may not",
    "padding": f"{FILLED} token, {EMPTY} padding",
}

Kind = Literal["attention", "padding"]


@dataclass(frozen=True, repr=False)
class MaskPicture:
    """A grid of cells that are filled where the mask is true."""

    kind: Kind
    mask: tuple[tuple[bool, ...], ...]
    rows: tuple[str, ...]  # names beside the grid
    columns: tuple[tuple[int, str], ...]  # positions above the grid, and their tokens
    texts: tuple[tuple[str, ...], ...] | None  # tokens inside a padding mask
    note: str

    @property
    def cells(self) -> list[list[str]]:
        """The grid's signs: a filled one, or its token, where the mask is true."""
        texts = self.texts or [[FILLED] * len(row) for row in self.mask]
        return [
            [text if true else EMPTY for true, text in zip(row, signs, strict=True)]
            for row, signs in zip(self.mask, texts, strict=True)
        ]

    def __repr__(self) -> str:
        lines = [[CORNERS[self.kind], *(str(position) for position, _ in self.columns)]]
        lines += [[name, *row] for name, row in zip(self.rows, self.cells, strict=True)]
        widths = [max(map(text_width, column)) for column in zip(*lines, strict=True)]
        aligned = (" ".join(map(pad, line, widths)).rstrip() for line in lines)
        return "\n".join([*aligned, self.note])

    def _repr_html_(self) -> str:
        lines = zip(self.rows, self.mask, self.cells, strict=True)
        body = "".join(self._html_row(*line) for line in lines)
        named = len(self.columns) <= MOST_HEADS
        heads = "".join(column_head(at, text, named) for at, text in self.columns)
        head = html_row(f'<td style="{CORNER}">{CORNERS[self.kind]}</td>{heads}')
        return panel(f'<table style="{GRID}"><tbody>{head}{body}</tbody></table>', self.note)

    def _html_row(self, name: str, filled: tuple[bool, ...], signs: list[str]) -> str:
        style = TOKEN if self.texts else SQUARE
        cells = "".join(
            f'<td title="{html.escape(f"{name} → {position} {text}".rstrip())}" '
            f'style="{CELL};{style[on]}">{html.escape(sign)}</td>'
            for sign, on, (position, text) in zip(signs, filled, self.columns, strict=True)
        )
        return html_row(f'<th scope="row" style="{ROW_HEAD}">{html.escape(name)}</th>{cells}')


CORNER = f"color:{FAINT};padding:0 12px 2px 0;vertical-align:top;text-align:left"
HEAD = f"color:{FAINT};padding:0 3px 2px;vertical-align:top;text-align:center;font-weight:normal"
ROW_HEAD = "text-align:left;padding:0 8px 0 0;white-space:pre;font-weight:normal"
CELL = f"border:1px solid {LINE};padding:1px 5px;text-align:center"
BLANK = f"background-color:#ffffff;color:{FAINT}"
SQUARE = {True: f"background-color:{BLUE};color:{BLUE}", False: BLANK}
TOKEN = {True: f"background-color:#dbe9f6;color:{INK};white-space:pre", False: BLANK}


def html_row(content: str) -> str:
    return f'<tr style="background-color:{PAPER}">{content}</tr>'


def column_head(position: int, text: str, named: bool) -> str:
    below = f"<br>{html.escape(shortened(text, LONGEST_HEAD))}" if text and named else ""
    return (
        f'<th scope="col" title="{html.escape(text)}" style="{HEAD};white-space:pre">'
        f"{position}{below}</th>"
    )


def show_mask(
    mask: Any,
    tokens: Sequence[str] | Sequence[Sequence[str]] | None = None,
    row: int = 0,
    *,
    kind: Kind | None = None,
) -> MaskPicture:
    """Draw a mask, so that a wrong one is seen at a glance.

    An attention mask is [T, T], [B, T, S] or [B, 1, T, S], of which row `row` of the batch
    is drawn: queries downwards, keys across. A padding mask is [B, T]. A square of two
    dimensions is taken for attention unless `kind` says "padding". `tokens` names the
    positions: T texts, or for a batch one list of texts a row; a list as long as the row
    has real tokens leaves the padding unnamed. At most 32 rows and columns are drawn.
    Raises ValueError for values other than 0 and 1, and for shapes that fit no mask.
    """
    grid = torch.as_tensor(mask).detach().cpu()
    if not bool(((grid == 0) | (grid == 1)).all()):
        raise ValueError("a mask holds only 0 and 1, or False and True")
    kind = kind or kind_of(grid)
    names: Any = None if tokens is None else list(tokens)
    nested = bool(names) and not isinstance(names[0], str)
    if kind == "padding":
        return padding_picture(grid.bool(), names if nested or not names else [names])
    names = list(names[row]) if nested else names
    return attention_picture(one_of_batch(grid.bool(), row), names)


def kind_of(grid: torch.Tensor) -> Kind:
    square = grid.dim() == 2 and grid.shape[0] == grid.shape[1]
    return "attention" if square or grid.dim() > 2 else "padding"


def one_of_batch(grid: torch.Tensor, row: int) -> torch.Tensor:
    """The [T, S] that one row of the batch may attend."""
    if grid.dim() == 4 and grid.shape[1] == 1:
        return grid[row, 0]
    if grid.dim() == 3:
        return grid[row]
    if grid.dim() == 2:
        return grid
    raise ValueError(f"{list(grid.shape)} is no mask: [T, T], [B, 1, T, T] or [B, T] is")


def attention_picture(grid: torch.Tensor, tokens: list[str] | None) -> MaskPicture:
    queries, keys = grid.shape
    if queries > keys:
        raise ValueError(f"{queries} queries over {keys} keys: each query is a key, too")
    texts = placed(tokens, grid.any(dim=0).tolist())
    columns = tuple(enumerate(texts))[:LARGEST]
    first = keys - queries  # a query that comes after a cache has a later position
    rows = [f"{at} {shortened(texts[at], LONGEST_NAME)}".rstrip() for at in range(first, keys)]
    return MaskPicture(
        "attention", drawn(grid), tuple(rows[:LARGEST]), columns, None, note("attention", grid)
    )


def padding_picture(grid: torch.Tensor, tokens: list[Any] | None) -> MaskPicture:
    grid = grid[None] if grid.dim() == 1 else grid
    if grid.dim() != 2:
        raise ValueError(f"{list(grid.shape)} is no padding mask: [B, T] is")
    rows = tuple(str(row) for row in range(len(grid)))[:LARGEST]
    texts, legend = None, note("padding", grid)
    if tokens is not None:
        legend = legend.removeprefix(f"{FILLED} token, ")
        lines = zip(tokens, grid.tolist(), strict=True)
        texts = tuple(tuple(placed(line, real)[:LARGEST]) for line, real in lines)[:LARGEST]
    columns = tuple((position, "") for position in range(grid.shape[1]))[:LARGEST]
    return MaskPicture("padding", drawn(grid), rows, columns, texts, legend)


def placed(tokens: Sequence[str] | None, real: list[bool]) -> list[str]:
    """One text a position: given for each, or only for the real ones, in their order."""
    if tokens is None:
        return [""] * len(real)
    texts = [visible(text) for text in tokens]
    if len(texts) == len(real):
        return texts
    if len(texts) != sum(real):
        raise ValueError(f"{len(texts)} texts for {sum(real)} tokens in {len(real)} positions")
    rest = iter(texts)
    return [next(rest) if is_real else "" for is_real in real]


def drawn(grid: torch.Tensor) -> tuple[tuple[bool, ...], ...]:
    return tuple(tuple(line) for line in grid[:LARGEST, :LARGEST].tolist())


def note(kind: Kind, grid: torch.Tensor) -> str:
    rows, columns = grid.shape
    cut = f"; the first {LARGEST} of {rows} × {columns}" if max(rows, columns) > LARGEST else ""
    return LEGENDS[kind] + cut


def shortened(text: str, longest: int) -> str:
    """Cut a text to a width, the cut marked."""
    return text if len(text) <= longest else text[: longest - 1] + "…"
