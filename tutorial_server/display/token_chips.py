"""Tokens one by one, each with its id: what a model is really given."""

import html
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from transformers import PreTrainedTokenizerBase

from .tables import FAINT, INK, panel
from .token_text import (
    NO_TOKEN,
    is_control,
    text_width,
    token_bytes,
    visible_bytes,
)

Kind = Literal["text", "control", "bytes"]
CHIP = {
    "text": f"background-color:#ffffff;color:{INK};border:1px solid #8c959f",
    "control": f"background-color:#fff1c9;color:{INK};border:1px solid {INK};font-weight:bold",
    "bytes": f"background-color:#f2e7fb;color:{INK};border:1px dashed {INK}",
}
LINE_WIDTH = 96  # columns of plain text


@dataclass(frozen=True)
class Chip:
    """One token as it is shown."""

    id: int
    text: str
    kind: Kind
    title: str  # what a pointer that rests on the chip is told

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, token_id: int) -> "Chip":
        raw = token_bytes(tokenizer, token_id)
        if raw is None:
            return cls(token_id, NO_TOKEN, "text", f"{token_id}: unknown to the tokenizer")
        if is_control(tokenizer, token_id):
            return cls(token_id, visible_bytes(raw), "control", f"{token_id}: control token")
        whole = raw.decode(errors="ignore").encode() == raw
        title = f"{token_id}: {'bytes' if whole else 'part of a character,'} {raw.hex(' ').upper()}"
        return cls(token_id, visible_bytes(raw), "text" if whole else "bytes", title)

    @property
    def html(self) -> str:
        return (
            f'<span title="{html.escape(self.title)}" style="{CHIP[self.kind]};'
            f'border-radius:3px;padding:0 4px;white-space:pre">{html.escape(self.text)}</span>'
        )


@dataclass(frozen=True, repr=False)
class TokenChips:
    """Tokens in order, each with its id, in rows."""

    rows: tuple[tuple[Chip, ...], ...]

    @property
    def summary(self) -> str:
        """How many tokens there are, and how many of them are no ordinary text."""
        kinds = [chip.kind for row in self.rows for chip in row]
        total = f"{len(kinds)} token{'s' * (len(kinds) != 1)}"
        named = {"control": "control", "bytes": "part of a character"}
        parts = [f"{kinds.count(k)} {name}" for k, name in named.items() if k in kinds]
        return f"{total}: {', '.join(parts)}" if parts else total

    def __repr__(self) -> str:
        rows = ([f"[{chip.id} {chip.text}]" for chip in row] for row in self.rows)
        return "\n".join([*(line for row in rows for line in wrapped(row)), self.summary])

    def _repr_html_(self) -> str:
        rows = (
            f'<div style="margin:0 0 2px">{"".join(map(numbered, row))}</div>' for row in self.rows
        )
        return panel("".join(rows), self.summary)


def numbered(chip: Chip) -> str:
    return (
        '<span style="display:inline-block;text-align:center;margin:0 4px 3px 0">'
        f'{chip.html}<br><span style="color:{FAINT};font-size:11px">{chip.id}</span></span>'
    )


def wrapped(pieces: Iterable[str]) -> list[str]:
    """Lines of at most LINE_WIDTH columns; a longer piece stands alone."""
    lines: list[str] = []
    for piece in pieces:
        if lines and text_width(lines[-1] + piece) <= LINE_WIDTH:
            lines[-1] += piece
        else:
            lines.append(piece)
    return lines


def show_tokens(
    tokenizer: PreTrainedTokenizerBase, ids: Any, *, per_row: int | None = None
) -> TokenChips:
    """Show what a model is really given: one chip a token, its id beneath.

    `ids` is a list or a tensor, [T] or [1, T]. A row ends after a line break in the text,
    or after `per_row` tokens. Raises ValueError for ids of more than one text, and for
    rows of no token.
    """
    if per_row is not None and per_row < 1:
        raise ValueError(f"a row takes at least one token, not {per_row}")
    chips = [Chip.of(tokenizer, token_id) for token_id in one_row(ids)]
    ends = [
        chip.text.endswith("⏎") if per_row is None else place % per_row == 0
        for place, chip in enumerate(chips, 1)
    ]
    rows: list[list[Chip]] = [[]]
    for chip, ends_row in zip(chips, ends, strict=True):
        rows[-1].append(chip)
        if ends_row:
            rows.append([])
    return TokenChips(tuple(tuple(row) for row in rows if row))


def one_row(ids: Any) -> list[int]:
    values = torch.as_tensor(ids, dtype=torch.long)
    if values.dim() > 1 and values.shape[:-1].numel() != 1:
        raise ValueError(f"ids of one text are needed, these are {list(values.shape)}: show ids[0]")
    return values.flatten().tolist()
