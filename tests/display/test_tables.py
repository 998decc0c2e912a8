import numpy as np
import pytest
import torch

from tutorial_server.display.tables import compare, number, show_table


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (538090408, "538,090,408"),
        (0.0, "0"),
        (200.0, "200"),
        (1 / 3, "0.333"),
        (9.996, "10.0"),
        (538.09, "538"),
        (12345.6, "12,300"),
        (-0.01234, "-0.0123"),
        (0.0000123, "1.23e-05"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
    ],
)
def test_number(value: float, text: str):
    assert number(value) == text


def test_table_text_form_is_exact():
    table = show_table(
        [["uncached", 128, "12.3 ms", 0.5], ["中文", None, "101 ms", 12345.6]],
        ["how", "tokens", "time a token", "ratio"],
    )
    assert repr(table) == (
        "how           tokens  time a token       ratio\n"
        "--------  ----------  ------------  ----------\n"
        "uncached         128       12.3 ms       0.500\n"
        "中文                        101 ms      12,300"
    )


def test_a_time_that_gains_a_digit_moves_nothing_else():
    before, after = (
        repr(show_table([["a", t, "x"]], ["b", "t", "c"])) for t in ("9 ms", "10.5 ms")
    )
    assert before.replace("   9 ms", "10.5 ms") == after


@pytest.mark.parametrize(
    ("column", "right"),
    [
        (["12.3 ms", "<0.1 %", "~ 4 GB/s", "1,024", "2.0 ×", None, 7], True),
        (["12", "twelve"], False),
        ([None, None], False),
        ([True, False], False),
        (["3 to 4"], False),
    ],
)
def test_columns_of_numbers_go_to_the_right(column: list[object], right: bool):
    assert show_table([[cell] for cell in column], ["x"]).numeric == (right,)


def test_scalars_of_torch_and_numpy_are_numbers():
    table = show_table([[torch.tensor(3), np.float32(0.25), np.int64(1000)]], ["a", "b", "c"])
    assert table.rows == (("3", "0.250", "1,000"),)


def test_no_rows():
    assert repr(show_table([], ["a", "bc"])) == "a  bc\n-  --"


def test_unequal_rows_are_refused():
    with pytest.raises(ValueError, match="row 1 has 1 cells under 2 headers"):
        show_table([[1, 2], [3]], ["a", "b"])


def test_table_html_is_escaped_aligned_and_on_one_line_a_cell():
    shown = show_table([["<script>\n", 1]], ["<b>", "n"])._repr_html_()
    assert "<script" not in shown
    assert ">&lt;script&gt;⏎</td>" in shown
    assert 'text-align:right;padding:2px 10px">1</td>' in shown
    assert 'scope="col"' in shown


def test_without_a_guess_only_the_measurement_is_shown():
    comparison = compare(None, 538.09, "MB")
    assert repr(comparison) == "guess     no guess made\nmeasured  538 MB"
    assert comparison.factor is None


@pytest.mark.parametrize(
    ("guess", "measured", "verdict"),
    [
        (200, 538.0, "2.7 × (the guess was too low)"),
        (538.0, 200, "2.7 × (the guess was too high)"),
        (100, 104.9, "1.0 × (the guess was right to within 5 %)"),
        (104.9, 100, "1.0 × (the guess was right to within 5 %)"),
        (100, 105.1, "1.1 × (the guess was too low)"),
        (1, 120.0, "120 × (the guess was too low)"),
        (0, 5, "none: that takes two numbers above 0"),
        (-1, 5, "none: that takes two numbers above 0"),
    ],
)
def test_the_factor_between_guess_and_measurement(guess: float, measured: float, verdict: str):
    assert repr(compare(guess, measured, "s")).split("\n")[2] == f"factor    {verdict}"


def test_comparison_text_form_is_exact():
    assert repr(compare(500_000_000, 538_090_408, "bytes")) == (
        "guess     500,000,000 bytes\n"
        "measured  538,090,408 bytes\n"
        "factor    1.1 × (the guess was too low)"
    )
    assert compare(2, torch.tensor(3.0), "s").factor == 1.5


def test_comparison_html_says_the_same():
    shown = compare(2, 6.0, "<s>")._repr_html_()
    for text in (">guess</th>", ">2 &lt;s&gt;</td>", ">3.0 × (the guess was too low)</td>"):
        assert text in shown


@pytest.mark.parametrize("guess", ["200", [1], True])
def test_a_guess_is_a_number(guess: object):
    with pytest.raises(TypeError, match="a guess is a number or None"):
        compare(guess, 1.0, "s")
