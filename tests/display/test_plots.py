import io
import sys

import numpy as np
import pytest
from PIL import Image

from tutorial_server.display.plots import height_text, plot_bars, plot_lines, tick_text

LABELS = ("tokens already in the answer", "time for the next token (ms)", "The cache pays")
CURVES = {"uncached": ([1, 2, 3], [9.0, 10.0, 11.5]), "cached": ([1, 2, 3], [2.0, 2.1, 2.0])}


def test_lines_in_words_leave_out_what_was_measured():
    assert repr(plot_lines(CURVES, *LABELS)) == (
        "The cache pays\n"
        "  x: tokens already in the answer, 1 to 3\n"
        "  y: time for the next token (ms)\n"
        "  uncached: 3 points\n"
        "  cached: 3 points"
    )


def test_a_measured_x_has_no_range_in_words():
    assert repr(plot_lines({"a": ([0.5, 1.5], [1, 2])}, "time (s)", "y", "t")) == (
        "t\n  x: time (s)\n  y: y\n  a: 2 points"
    )


def test_bars_in_words_and_their_arrays():
    picture = plot_bars(["a", "b"], [3, 1], "token", "draws", "a is drawn more often")
    assert repr(picture) == "a is drawn more often\n  x: token\n  y: draws\n  draws: 2 bars"
    names, heights = picture.data["draws"]
    assert names.tolist() == ["a", "b"]
    assert heights.tolist() == [3, 1]


def test_the_arrays_behind_the_lines_are_kept():
    picture = plot_lines(CURVES, *LABELS)
    assert list(picture.data) == ["uncached", "cached"]
    xs, ys = picture.data["uncached"]
    assert xs.tolist() == [1, 2, 3]
    assert ys.tolist() == [9.0, 10.0, 11.5]


def test_axes_are_labelled_and_amounts_start_at_zero():
    (axes,) = plot_lines(CURVES, *LABELS).figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == LABELS[:2]
    assert axes.get_title(loc="left") == LABELS[2]
    assert axes.get_ylim()[0] == 0
    assert plot_lines({"a": ([1], [-2.0])}, "x", "y", "t").figure.axes[0].get_ylim()[0] < 0


def test_series_differ_without_colour():
    six = {name: ([1, 2], [1, 2]) for name in "abcdef"}
    (axes,) = plot_lines(six, "x", "y", "t").figure.axes
    assert len({line.get_marker() for line in axes.lines}) == 6
    dashes = {str(line._unscaled_dash_pattern) for line in axes.lines}
    assert len(dashes) == 6
    (axes,) = plot_bars(["x"], {name: [1] for name in "abcdef"}, "x", "y", "t").figure.axes
    assert len({patch.get_hatch() for patch in axes.patches}) == 6


def test_only_several_series_have_a_legend():
    (axes,) = plot_lines(CURVES, *LABELS).figure.axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["uncached", "cached"]
    (axes,) = plot_lines({"a": ([1], [1])}, "x", "y", "t").figure.axes
    assert axes.get_legend() is None


def test_a_few_bars_carry_their_heights():
    (axes,) = plot_bars(["$a", "b$"], [0.5, 1200.0], "x", "y", "t").figure.axes
    assert [text.get_text() for text in axes.texts] == ["0.5", "1,200"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["$a", "b$"]
    (axes,) = plot_bars(["a"] * 17, range(17), "x", "y", "t").figure.axes
    assert not axes.texts


def test_shown_as_one_png_without_pyplot(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)
    picture = plot_bars(["$中", "<|im_end|>$"], [1, 2], "x", "y", "t")
    data, metadata = picture._repr_png_()
    assert Image.open(io.BytesIO(data)).size == (1024, 576)
    assert metadata == {"width": 640, "height": 360}
    assert "matplotlib.pyplot" not in sys.modules
    assert capfd.readouterr() == ("", "")
    assert picture._repr_png_()[0] == data


def test_the_style_of_others_is_left_alone():
    import matplotlib

    before = dict(matplotlib.rcParams)
    plot_lines(CURVES, *LABELS)._repr_png_()
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ({}, "1 to 6 series, not 0"),
        ({str(n): ([1], [1]) for n in range(7)}, "1 to 6 series, not 7"),
        ({"a": ([1, 2], [1])}, r"a: x and y have the shapes \(2,\) and \(1,\)"),
        ({"a": (np.ones((2, 2)), np.ones((2, 2)))}, r"\(2, 2\)"),
    ],
)
def test_what_cannot_be_drawn_is_refused(lines: dict, message: str):
    with pytest.raises(ValueError, match=message):
        plot_lines(lines, "x", "y", "t")


def test_numbers_beside_the_axes():
    assert [tick_text(v) for v in (0.05, 2.5, 4096, 120_000_000)] == [
        "0.05",
        "2.5",
        "4096",
        "120,000,000",
    ]
    assert [height_text(v) for v in (0.1234, 12.34, 1234.5)] == ["0.123", "12.3", "1,234"]
