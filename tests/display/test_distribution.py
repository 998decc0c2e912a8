import pytest
import torch
from tiny import tiny_tokenizer

from tutorial_server.display.distribution import bar, percent, show_distribution

TOKENIZER = tiny_tokenizer()


def probabilities(**weights: float) -> torch.Tensor:
    """[V], zero but for the ids named as id_260=0.5."""
    values = torch.zeros(len(TOKENIZER))
    for name, weight in weights.items():
        values[int(name.removeprefix("id_"))] = weight
    return values


def test_text_form_is_exact():
    values = probabilities(id_273=0.5, id_262=0.25, id_198=0.2, id_270=0.0496, id_64=0.0004)
    assert repr(show_distribution(TOKENIZER, values, top=4)) == (
        "<|im_end|>  273   50.0 %  ████████████████████\n"
        "␣the        262   25.0 %  ██████████\n"
        "⏎           198   20.0 %  ████████\n"
        "<F0 9F>     270    5.0 %  ██\n"
        "other 273 tokens: <0.1 %"
    )


def test_tokens_of_no_probability_are_not_listed():
    shown = show_distribution(TOKENIZER, probabilities(id_260=1.0))
    assert repr(shown) == f"hello  260    100 %  {'█' * 40}\nother 276 tokens: 0 %"


def test_equal_probabilities_come_in_the_order_of_ids():
    shown = show_distribution(TOKENIZER, torch.full((1, len(TOKENIZER)), 1 / 277), top=3)
    assert [chip.id for chip in shown.chips] == [0, 1, 2]
    assert shown.other_tokens == 274
    assert shown.other_probability == pytest.approx(274 / 277)


def test_half_precision_is_taken_and_not_changed():
    values = torch.softmax(torch.arange(277.0), dim=-1).bfloat16()
    before = values.clone()
    assert show_distribution(TOKENIZER, values).chips[0].id == 276
    assert torch.equal(values, before)


@pytest.mark.parametrize(
    "wrong",
    [
        torch.linspace(-3, 3, 277),
        torch.zeros(277),
        torch.full((277,), float("nan")),
        torch.full((2, 277), 1 / 277),
    ],
    ids=["logits", "zeros", "nan", "two rows"],
)
def test_what_is_no_distribution_is_refused(wrong: torch.Tensor):
    with pytest.raises(ValueError, match="apply softmax over the vocabulary of one position"):
        show_distribution(TOKENIZER, wrong)


def test_at_least_one_candidate():
    with pytest.raises(ValueError, match="not 0"):
        show_distribution(TOKENIZER, probabilities(id_260=1.0), top=0)


def test_html_holds_the_same_and_escapes_it():
    less_than = TOKENIZER("<").input_ids[0]
    values = probabilities(id_273=0.9996) + probabilities(**{f"id_{less_than}": 0.0004})
    shown = show_distribution(TOKENIZER, values)._repr_html_()
    assert ">&gt;99.9 %</td>" in shown
    assert ">&lt;0.1 %</td>" in shown
    assert ">&lt;|im_end|&gt;</span>" in shown
    assert f">{bar(0.9996)}</td>" in shown
    assert "other 275 tokens: 0 %" in shown


@pytest.mark.parametrize(
    ("probability", "text"),
    [
        (0.0, "0 %"),
        (1e-9, "<0.1 %"),
        (0.0005, "0.1 %"),
        (0.12345, "12.3 %"),
        (0.9994, "99.9 %"),
        (0.99999, ">99.9 %"),
        (1.0, "100 %"),
    ],
)
def test_percent(probability: float, text: str):
    assert percent(probability) == text


@pytest.mark.parametrize(
    ("probability", "drawn"),
    [(1.0, "█" * 40), (0.5, "█" * 20), (0.0375, "█▌"), (0.003, "▏"), (1e-9, "▏")],
)
def test_bar(probability: float, drawn: str):
    assert bar(probability) == drawn
