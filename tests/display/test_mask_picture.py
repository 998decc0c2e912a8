import pytest
import torch

from tutorial_server.display.mask_picture import show_mask
from tutorial_server.padding import may_attend

CAUSAL = torch.ones(3, 3, dtype=torch.bool).tril()
PADDED = torch.tensor([[0, 1, 1], [1, 1, 1]])
WORDS = [["a", " b"], ["The", " cat", "\n"]]


def test_causal_mask_with_tokens():
    assert repr(show_mask(CAUSAL, WORDS[1])) == (
        "query ↓ key → 0 1 2\n"
        "0 The         ■ · ·\n"
        "1 ␣cat        ■ ■ ·\n"
        "2 ⏎           ■ ■ ■\n"
        "■ may attend, · may not"
    )


def test_one_row_of_a_batch_names_only_real_tokens():
    expected = (
        "query ↓ key → 0 1 2\n"
        "0             · · ·\n"
        "1 a           · ■ ·\n"
        "2 ␣b          · ■ ■\n"
        "■ may attend, · may not"
    )
    mask = may_attend(PADDED)  # [B, 1, T, T]
    assert repr(show_mask(mask, WORDS, row=0)) == expected
    assert repr(show_mask(mask[:, 0], WORDS[0], row=0)) == expected
    assert repr(show_mask(mask.int(), WORDS)) == expected
    assert repr(show_mask(mask, WORDS, row=1)) == repr(show_mask(CAUSAL, WORDS[1]))


def test_padding_mask():
    assert repr(show_mask(PADDED)) == (
        "row ↓ position → 0 1 2\n0                · ■ ■\n1                ■ ■ ■\n■ token, · padding"
    )


def test_padding_mask_with_its_tokens():
    assert repr(show_mask(PADDED, WORDS)) == (
        "row ↓ position → 0   1    2\n"
        "0                ·   a    ␣b\n"
        "1                The ␣cat ⏎\n"
        "· padding"
    )


def test_one_padded_row():
    assert repr(show_mask([0, 1], ["a"])) == "row ↓ position → 0 1\n0                · a\n· padding"


def test_a_square_is_attention_unless_it_is_said_to_be_padding():
    square = [[0, 1], [1, 1]]
    assert show_mask(square).kind == "attention"
    assert repr(show_mask(square, kind="padding")) == (
        "row ↓ position → 0 1\n0                · ■\n1                ■ ■\n■ token, · padding"
    )


def test_a_query_after_a_cache_has_the_last_position():
    picture = show_mask(torch.ones(1, 1, 1, 3), ["a", "b", "c"])
    assert repr(picture).split("\n")[1] == "2 c           ■ ■ ■"


def test_a_large_mask_is_cut_and_says_so():
    picture = show_mask(torch.ones(40, 40).tril())
    assert len(picture.mask) == len(picture.mask[0]) == 32
    assert repr(picture).endswith("\n■ may attend, · may not; the first 32 of 40 × 40")
    assert repr(show_mask(torch.ones(2, 40))).endswith("; the first 32 of 2 × 40")


def test_html_has_a_sign_in_each_cell_and_a_title():
    shown = show_mask(CAUSAL, ["<b>", "c", "d"])._repr_html_()
    assert shown.count(">■</td>") == 6
    assert shown.count(">·</td>") == 3
    assert "<b>" not in shown
    assert 'title="1 c → 0 &lt;b&gt;"' in shown
    assert ">0<br>&lt;b&gt;</th>" in shown


def test_many_columns_carry_no_tokens_above():
    assert "<br>" not in show_mask(torch.ones(13, 13).tril(), ["x"] * 13)._repr_html_()


def test_long_tokens_are_cut_beside_the_grid():
    picture = show_mask(torch.ones(1, 1, dtype=torch.bool), ["Donaudampfschifffahrt"])
    assert picture.rows == ("0 Donaudampfsch…",)
    assert picture.columns == ((0, "Donaudampfschifffahrt"),)


@pytest.mark.parametrize(
    ("mask", "tokens", "message"),
    [
        (torch.zeros(2, 2) - float("inf"), None, "only 0 and 1"),
        (torch.ones(1, 2, 3, 3), None, r"\[1, 2, 3, 3\] is no mask"),
        (torch.ones(3, 2, 1), None, "2 queries over 1 keys"),
        (torch.ones(3, 3).tril(), ["a", "b"], "2 texts for 3 tokens in 3 positions"),
    ],
)
def test_what_is_no_mask_is_refused(mask: torch.Tensor, tokens: list[str] | None, message: str):
    with pytest.raises(ValueError, match=message):
        show_mask(mask, tokens)
