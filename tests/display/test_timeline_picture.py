"""The picture of who was at work when."""

import pytest

from tutorial_server.display import plot_timeline
from tutorial_server.timeline import RowStep

STEPS = [
    RowStep(3, 0, "prefill", 9, 1.0, 1.5),
    RowStep(4, 0, "decode", 1, 1.5, 1.75),
    RowStep(4, 2, "decode", 1, 1.5, 1.75),
]


def bars(axes):
    return [
        (bar.get_x(), bar.get_width(), bar.get_y() + bar.get_height() / 2) for bar in axes.patches
    ]


def test_bars_stand_where_the_passes_were_from_the_first_on():
    picture = plot_timeline(STEPS, "t")
    (axes,) = picture.figure.axes
    assert bars(axes) == [
        pytest.approx((0, 500, 0)), pytest.approx((500, 250, 0)), pytest.approx((500, 250, 2))
    ]  # fmt: skip
    assert picture.data["prefill"][0].tolist() == [0]
    assert picture.data["decode"][1].tolist() == [0, 2]


def test_by_pass_every_pass_is_one_wide():
    (axes,) = plot_timeline(STEPS, "t", by="pass").figure.axes
    assert bars(axes) == [
        pytest.approx((0, 1, 0)), pytest.approx((1, 1, 0)), pytest.approx((1, 1, 2))
    ]  # fmt: skip


@pytest.mark.parametrize("passes", [2, 7, 12, 14, 23])
def test_there_are_no_half_passes(passes):
    steps = [RowStep(n, 0, "decode", 1, n, n + 1) for n in range(passes)]
    (axes,) = plot_timeline(steps, "t", by="pass").figure.axes
    ticks = axes.get_xticks()
    assert len(ticks) >= 2
    assert (ticks == ticks.round()).all()


def test_slot_0_is_on_top_and_each_slot_has_its_line():
    (axes,) = plot_timeline(STEPS, "t").figure.axes
    assert axes.get_yticks().tolist() == [0, 1, 2]
    bottom, top = axes.get_ylim()
    assert bottom > 2 and top < 0


def test_kinds_differ_without_colour_and_are_named():
    figure = plot_timeline(STEPS, "t").figure
    (axes,) = figure.axes
    assert len({bar.get_hatch() for bar in axes.patches}) == 2
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["prefill", "decode"]


def test_in_words_nothing_is_measured():
    assert repr(plot_timeline(STEPS, "Holes")) == (
        "Holes\n  x: ms since the first pass began, 0 to 500\n  y: slot\n"
        "  prefill: 1 bars\n  decode: 2 bars"
    )
    assert "x: forward pass, 0 to 1\n" in repr(plot_timeline(STEPS, "Holes", by="pass"))


def test_nothing_to_draw_is_said():
    with pytest.raises(ValueError, match="no pass was recorded"):
        plot_timeline([], "t")
