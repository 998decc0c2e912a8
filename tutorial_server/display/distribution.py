"""What the model would say next: candidates, their probabilities, and the rest."""

import html
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from .tables import BLUE, FAINT, GRID, PAPER, panel
from .token_chips import Chip
from .token_text import pad, text_width

BAR_WIDTH = 40  # columns of a bar that stands for 100 %
EIGHTHS = ("", *"▏▎▍▌▋▊▉")


@dataclass(frozen=True, repr=False)
class Distribution:
    """The most probable next tokens, and what remains for all the others."""

    chips: tuple[Chip, ...]
    probabilities: tuple[float, ...]  # of the chips, falling
    other_tokens: int
    other_probability: float

    @property
    def summary(self) -> str:
        """The rest of the vocabulary in one line."""
        return f"other {self.other_tokens:,} tokens: {percent(self.other_probability)}"

    def __repr__(self) -> str:
        text = max(text_width(chip.text) for chip in self.chips)
        digits = max(len(str(chip.id)) for chip in self.chips)
        lines = (
            f"{pad(chip.text, text)}  {chip.id:>{digits}}  {percent(p):>7}  {bar(p)}"
            for chip, p in zip(self.chips, self.probabilities, strict=True)
        )
        return "\n".join([*lines, self.summary])

    def _repr_html_(self) -> str:
        heads = (("token", "left"), ("id", "right"), ("probability", "right"), ("", "left"))
        head = "".join(
            f'<th scope="col" style="text-align:{side};padding:2px 8px">{name}</th>'
            for name, side in heads
        )
        rows = "".join(map(candidate, self.chips, self.probabilities))
        table = f'<tr style="background-color:{PAPER}">{head}</tr>{rows}'
        return panel(f'<table style="{GRID}"><tbody>{table}</tbody></table>', self.summary)


def candidate(chip: Chip, probability: float) -> str:
    left, right = "text-align:left;padding:2px 8px", "text-align:right;padding:2px 8px"
    return (
        f'<tr style="background-color:{PAPER}"><td style="{left}">{chip.html}</td>'
        f'<td style="{right};color:{FAINT}">{chip.id}</td>'
        f'<td style="{right}">{html.escape(percent(probability))}</td>'
        f'<td style="{left};color:{BLUE};white-space:nowrap">{bar(probability)}</td></tr>'
    )


def percent(probability: float) -> str:
    """One decimal, and never 0 or 100 for what is only close to it."""
    if probability <= 0 or probability >= 1:
        return f"{100 * (probability > 0)} %"
    if probability < 0.0005:
        return "<0.1 %"
    if probability >= 0.9995:
        return ">99.9 %"
    return f"{100 * probability:.1f} %"


def bar(probability: float) -> str:
    """A bar that is BAR_WIDTH columns long at 100 %, in eighths, and never empty."""
    full, eighths = divmod(round(8 * BAR_WIDTH * probability), 8)
    return "█" * full + EIGHTHS[eighths] or EIGHTHS[1]


def show_distribution(
    tokenizer: PreTrainedTokenizerBase, probabilities: Any, top: int = 10
) -> Distribution:
    """Show what the model would say next: the `top` candidates and the weight of the rest.

    `probabilities` is [V] or [1, V]; tokens of probability 0 are not listed.
    Raises ValueError for scores that are no distribution, such as logits, and for top < 1.
    """
    values = torch.as_tensor(probabilities).detach().cpu().double().flatten()  # [V]
    total = float(values.sum())
    if top < 1:
        raise ValueError(f"at least one candidate is shown, not {top}")
    if float(values.min()) < 0 or not abs(total - 1) <= 0.02:
        raise ValueError(
            f"these are no probabilities: they sum to {total:.4g}, the smallest is "
            f"{float(values.min()):.4g}; apply softmax over the vocabulary of one position"
        )
    ordered, ids = values.sort(descending=True, stable=True)
    shown = min(top, int((ordered > 0).sum()))
    return Distribution(
        tuple(Chip.of(tokenizer, int(token_id)) for token_id in ids[:shown]),
        tuple(ordered[:shown].tolist()),
        len(values) - shown,
        float(ordered[shown:].sum()),
    )
