"""Measurements as plots that read without colour, with the arrays behind them at hand."""

import io
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Series = Mapping[str, tuple[np.ndarray, np.ndarray]]

WIDTH, HEIGHT, DPI = 6.4, 3.6, 160  # inches, dots an inch; shown at 100, so sharp on any screen
# Okabe and Ito's colours, told apart by all eyes; a dash, a marker or a hatch for each, too.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
DASHES: Any = ("-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 3)))
MARKERS = ("o", "s", "^", "D", "v", "P")
HATCHES = ("", "///", "...", "xxx", "---", "|||")
INK, FAINT = "#1b1f24", "#d8dee4"
STYLE: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "text.parse_math": False,  # a token may be a $
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "figure.constrained_layout.h_pad": 0.1,
    "figure.constrained_layout.w_pad": 0.1,
    "grid.color": FAINT,
    "hatch.linewidth": 0.6,
    **dict.fromkeys(("figure.facecolor", "axes.facecolor"), "#ffffff"),
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
}


@dataclass(frozen=True, repr=False, eq=False)
class Picture:
    """One figure, shown once, and the arrays that it draws.

    `data` maps each series' name to its (xs, ys), for a cell that asserts on them. The
    plain text leaves the ys out: they are measured, and differ from run to run.
    """

    figure: "Figure"
    data: Series
    summary: str

    def __repr__(self) -> str:
        return self.summary

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        from PIL import Image

        drawn, small = io.BytesIO(), io.BytesIO()
        with style(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph")  # a sign that no font here has
            self.figure.savefig(drawn, format="png", dpi=DPI)
        Image.open(drawn).convert("RGB").quantize(64).save(small, "png", optimize=True)
        return small.getvalue(), {"width": round(100 * WIDTH), "height": round(100 * HEIGHT)}


def plot_lines(
    lines: Mapping[str, tuple[Any, Any]], xlabel: str, ylabel: str, title: str
) -> Picture:
    """Draw how one quantity follows another; `title` is the one message of the plot.

    `lines` maps a name to (xs, ys), two sequences of the same length; the labels name
    the units. Raises ValueError for none, or more than six, or for unequal lengths.
    """
    data = {name: (np.asarray(xs), np.asarray(ys)) for name, (xs, ys) in lines.items()}
    check_series(data)
    with style():
        figure, axes = empty_plot(xlabel, ylabel, title)
        for place, (name, (xs, ys)) in enumerate(data.items()):
            axes.plot(
                xs,
                ys,
                label=name,
                color=COLOURS[place],
                linestyle=DASHES[place],
                marker=MARKERS[place],
                markersize=4,
                markevery=max(1, len(xs) // 12),
            )
        axes.xaxis.set_major_formatter(tick_text)
        finish(axes, data)
    return Picture(figure, data, summary_of("points", data, xlabel, ylabel, title))


def plot_bars(
    labels: Sequence[str],
    values: Sequence[float] | Mapping[str, Sequence[float]],
    xlabel: str,
    ylabel: str,
    title: str,
) -> Picture:
    """Draw one bar a label, or a bar of each series a label, its height written above.

    `values` is one number a label (its series is then named `ylabel`), or a mapping from
    series to such numbers. Raises ValueError as `plot_lines` does.
    """
    series = values if isinstance(values, Mapping) else {ylabel: values}
    names = np.asarray([str(label) for label in labels])
    data = {name: (names, np.asarray(heights)) for name, heights in series.items()}
    check_series(data)
    width = 0.8 / len(data)
    with style():
        figure, axes = empty_plot(xlabel, ylabel, title)
        for place, (name, (_, heights)) in enumerate(data.items()):
            bars = axes.bar(
                np.arange(len(names)) + width * (place - (len(data) - 1) / 2),
                heights,
                width=0.94 * width,
                label=name,
                color=COLOURS[place],
                hatch=HATCHES[place],
                edgecolor="#ffffff",
            )
            if len(names) * len(data) <= 16:
                axes.bar_label(bars, fmt=height_text, padding=2, fontsize=8)
        name_bars(axes, names)
        finish(axes, data)
    return Picture(figure, data, summary_of("bars", data, xlabel, ylabel, title))


def style() -> Any:
    import matplotlib

    return matplotlib.rc_context(STYLE)


def empty_plot(xlabel: str, ylabel: str, title: str) -> tuple["Figure", "Axes"]:
    """Axes on a figure that pyplot knows nothing of, so that nothing shows it twice."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    axes = figure.subplots()
    axes.grid(True, axis="y")
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.set_title(textwrap.fill(title, 68), loc="left", fontsize=11, weight="bold")
    return figure, axes


def check_series(data: Series) -> None:
    if not 1 <= len(data) <= len(COLOURS):
        raise ValueError(f"a plot takes 1 to {len(COLOURS)} series, not {len(data)}")
    for name, (xs, ys) in data.items():
        if xs.ndim != 1 or xs.shape != ys.shape:
            raise ValueError(f"{name}: x and y have the shapes {xs.shape} and {ys.shape}")


def name_bars(axes: "Axes", names: np.ndarray) -> None:
    long = max(map(len, names), default=0) * len(names) > 70
    slant: dict[str, Any] = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"}
    axes.set_xticks(range(len(names)), names, **(slant if long else {}))


def finish(axes: "Axes", data: Series) -> None:
    """Start a scale of amounts at 0, and name the series where there are several."""
    axes.yaxis.set_major_formatter(tick_text)
    axes.margins(y=0.1)
    if all(np.nanmin(ys) >= 0 for _, ys in data.values()):
        axes.set_ylim(bottom=0)
    if len(data) > 1:
        axes.legend(frameon=False, handlelength=3)


def height_text(height: float) -> str:
    return f"{height:.3g}" if abs(height) < 1000 else f"{height:,.0f}"


def tick_text(value: float, _place: float = 0) -> str:
    return f"{value:.6g}" if abs(value) < 10_000 else f"{value:,.0f}"


def summary_of(marks: str, data: Series, xlabel: str, ylabel: str, title: str) -> str:
    """The plot in words that stay the same from run to run."""
    everything = np.concatenate([xs for xs, _ in data.values()])
    lines = [title, f"x: {xlabel}{span(everything)}", f"y: {ylabel}"]
    lines += [f"{name}: {len(xs)} {marks}" for name, (xs, _) in data.items()]
    return "\n  ".join(lines)


def span(xs: np.ndarray) -> str:
    """From where to where, for lengths and counts; a measured x has no such words."""
    if xs.dtype.kind not in "iuf" or not len(xs) or not np.all(xs == np.round(xs)):
        return ""
    return f", {xs.min():,.0f} to {xs.max():,.0f}"
