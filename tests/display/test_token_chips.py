import pytest
import torch
from tiny import tiny_tokenizer

from tutorial_server.display.token_chips import LINE_WIDTH, show_tokens

TOKENIZER = tiny_tokenizer()


def ids(text: str) -> list[int]:
    return TOKENIZER(text, add_special_tokens=False).input_ids


def test_text_form_is_exact():
    chips = show_tokens(TOKENIZER, ids("<|im_start|>user\nhello the🙂<|im_end|>"))
    assert repr(chips) == (
        "[272 <|im_start|>][268 user][198 ⏎]\n"
        "[260 hello][262 ␣the][270 <F0 9F>][247 <99>][224 <82>][273 <|im_end|>]\n"
        "9 tokens: 2 control, 3 part of a character"
    )


def test_one_token_and_none():
    assert repr(show_tokens(TOKENIZER, [260])) == "[260 hello]\n1 token"
    assert repr(show_tokens(TOKENIZER, [])) == "0 tokens"


def test_per_row_sets_the_rows():
    chips = show_tokens(TOKENIZER, ids("a\nbcd"), per_row=2)
    assert repr(chips) == "[64 a][198 ⏎]\n[65 b][66 c]\n[67 d]\n5 tokens"
    assert chips._repr_html_().count("<div") == 5  # the sheet, three rows, the note


def test_long_rows_are_wrapped_between_chips():
    lines = repr(show_tokens(TOKENIZER, [260] * 30)).split("\n")
    assert lines == ["[260 hello]" * 8] * 3 + ["[260 hello]" * 6, "30 tokens"]
    assert len(lines[0]) <= LINE_WIDTH


def test_tensors_of_one_text_are_taken_and_batches_are_not():
    expected = repr(show_tokens(TOKENIZER, [260, 262]))
    assert repr(show_tokens(TOKENIZER, torch.tensor([260, 262]))) == expected
    assert repr(show_tokens(TOKENIZER, torch.tensor([[260, 262]]))) == expected
    with pytest.raises(ValueError, match=r"\[2, 1\]: show ids\[0\]"):
        show_tokens(TOKENIZER, torch.tensor([[260], [262]]))


def test_a_row_takes_at_least_one_token():
    with pytest.raises(ValueError, match="not 0"):
        show_tokens(TOKENIZER, [260], per_row=0)


def test_html_escapes_what_a_token_says():
    chips = show_tokens(TOKENIZER, ids('<script>"&'), per_row=20)
    shown = chips._repr_html_()
    assert "<script" not in shown
    assert ">&lt;</span>" in shown
    assert ">&amp;</span>" in shown
    assert ">&quot;</span>" in shown


def test_an_added_token_that_is_markup_stays_text():
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["<script>alert(1)</script>"])
    shown = show_tokens(tokenizer, [len(tokenizer) - 1])._repr_html_()
    assert "<script" not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown


def test_kinds_differ_by_border_and_title_not_by_colour_alone():
    chips = show_tokens(TOKENIZER, ids("<think>a🙂"))
    control, text, part = (chip.html for chip in chips.rows[0][:3])
    assert "font-weight:bold" in control
    assert 'title="274: control token"' in control
    assert 'title="64: bytes 61"' in text
    assert "dashed" in part
    assert 'title="270: part of a character, F0 9F"' in part


def test_an_unknown_id_is_shown_as_such():
    chips = show_tokens(TOKENIZER, [100_000])
    assert repr(chips) == "[100000 (no token)]\n1 token"
    assert 'title="100000: unknown to the tokenizer"' in chips._repr_html_()
