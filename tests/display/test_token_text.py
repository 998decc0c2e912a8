import pytest
from tiny import tiny_tokenizer
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from tutorial_server.display.token_text import (
    byte_alphabet,
    is_control,
    pad,
    text_width,
    token_bytes,
    token_labels,
    token_text,
    visible,
    visible_bytes,
)

TOKENIZER = tiny_tokenizer()


def ids(text: str) -> list[int]:
    return TOKENIZER(text, add_special_tokens=False).input_ids


def test_white_space_is_visible():
    assert token_labels(TOKENIZER, ids("hello the\n\n\t")) == ["hello", "␣the", "⏎⏎", "⇥"]


def test_part_of_a_character_is_shown_in_hex():
    assert token_labels(TOKENIZER, ids("🙂")) == ["<F0 9F>", "<99>", "<82>"]


def test_the_bytes_of_all_tokens_joined_are_the_text():
    text = "Grüße, 中文 🙂\r\n<think> the <|im_end|>"
    assert b"".join(token_bytes(TOKENIZER, token) for token in ids(text)) == text.encode()


def test_an_id_past_the_vocabulary_has_no_bytes():
    for unknown in (len(TOKENIZER), -1):
        assert token_bytes(TOKENIZER, unknown) is None
        assert token_text(TOKENIZER, unknown) == "(no token)"


def test_every_added_token_is_control_and_no_other_is():
    control = [token for token in range(len(TOKENIZER)) if is_control(TOKENIZER, token)]
    assert control == sorted(TOKENIZER.added_tokens_decoder)
    assert len(control) == 6


def test_byte_alphabet_names_each_byte_once():
    assert sorted(byte_alphabet().values()) == list(range(256))
    assert byte_alphabet()["A"] == 0x41
    assert byte_alphabet()["Ġ"] == 0x20
    assert byte_alphabet()["Ċ"] == 0x0A


def test_a_vocabulary_that_is_not_byte_level():
    words = {"▁the": 0, "<0xF0>": 1, "é": 2}
    backend = Tokenizer(models.BPE(vocab=words, merges=[]))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    assert token_labels(tokenizer, [0, 1, 2]) == ["␣the", "<F0>", "é"]


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a b", "a␣b"),
        ("\r", "<U+000D>"),
        ("\u200d\u202e", "<U+200D><U+202E>"),
        ("\u00a0", "<U+00A0>"),
        ("中", "中"),
        ("␣⏎", "␣⏎"),
        ("\ud83d", "<ED A0 BD>"),
    ],
)
def test_signs_without_ink_are_named(text: str, seen: str):
    assert visible(text) == seen


def test_stray_bytes_between_whole_characters():
    assert visible_bytes(b"a \xf0\x9f\xc3\xa9\x80") == "a␣<F0 9F>é<80>"


def test_width_counts_columns():
    assert text_width("ab") == 2
    assert text_width("中文") == 4
    assert text_width("e\u0301") == 1
    assert pad("中", 4) == "中  "
    assert pad("7", 3, right=True) == "  7"
