"""Who was at work when: one line for each slot, one bar for each pass in which it had a part."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from ..timeline import RowStep
from .plots import COLOURS, HATCHES, Picture, empty_plot, style, summary_of, tick_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KINDS = ("prefill", "decode")
GAP = 0.92  # of a slot's height: neighbours do not touch


def plot_timeline(
    row_steps: Sequence[RowStep], title: str, by: Literal["ms", "pass"] = "ms"
) -> Picture:
    """Draw what a `RecordingRunner` noted, from its first pass on; holes are idle slots.

    `by="pass"` gives every forward pass the same width, so that holes can be counted.
    `data` maps "prefill" and "decode" to where each bar begins and its slot. Raises
    ValueError where there is nothing to draw.
    """
    if not row_steps:
        raise ValueError("no pass was recorded; there is nothing to draw")
    xlabel = "forward pass" if by == "pass" else "ms since the first pass began"
    data = {}
    with style():
        figure, axes = empty_plot(xlabel, "slot", title)
        for kind in KINDS:
            steps = [step for step in row_steps if step.kind == kind]
            left, width = _bars(steps, row_steps[0], by)
            slots = np.asarray([step.slot for step in steps], dtype=int)
            data[kind] = (left, slots)
            _draw(axes, kind, left, width, slots)
        axes.set_yticks(range(max(step.slot for step in row_steps) + 1))
        axes.invert_yaxis()
        axes.grid(False)
        axes.locator_params(axis="x", integer=True)
        axes.xaxis.set_major_formatter(tick_text)
        axes.set_xlim(left=0)
        figure.legend(loc="outside lower right", ncols=len(KINDS), frameon=False)
    return Picture(figure, data, summary_of("bars", data, xlabel, "slot", title))


def _bars(
    steps: Sequence[RowStep], first: RowStep, by: Literal["ms", "pass"]
) -> tuple[np.ndarray, np.ndarray]:
    if by == "pass":
        left = np.asarray([step.number - first.number for step in steps], dtype=int)
        return left, np.ones(len(steps), dtype=int)
    left = np.asarray([(step.start - first.start) * 1e3 for step in steps])
    return left, np.asarray([(step.end - step.start) * 1e3 for step in steps])


def _draw(axes: "Axes", kind: str, left: np.ndarray, width: np.ndarray, slots: np.ndarray) -> None:
    place = ("decode", "prefill").index(kind)
    axes.barh(
        slots,
        width,
        left=left,
        height=GAP,
        label=kind,
        color=COLOURS[place],
        hatch=HATCHES[place],
        edgecolor="#ffffff",
        linewidth=0.4,
    )
