"""Pieces joined are the text of the whole, and no piece comes later than it must."""

import random

import pytest
from decoders import byte_fallback_tokenizer, metaspace_tokenizer
from qwen_tokenizer import qwen3_tokenizer
from tiny import tiny_llama

from tutorial_server.detokenize import REPLACEMENT, StreamDecoder, decode_text, new_text

TEXTS = [
    "Hello, how are you?",
    " leading and trailing spaces  ",
    "don't , do n't . tidy 's   up !",
    "emoji 🎉😀👩‍👩‍👧‍👦🇩🇪 end",
    "🎉" * 20,
    "你好世界。中文没有空格" * 4,
    "हिन्दी العربية עברית 한국어",
    "real \ufffd ones \ufffd\ufffd\ufffd\ufffd\ufffd here",
    "\ufffd" * 12,
    "e\u0301 \u200b \u00a0 \ufeff \x00",
    "lines\n\n\r\n\ttabs",
    "<|im_end|> <think> </s> spelled",
]


@pytest.fixture(params=["tiny", "small", "qwen3"])
def tokenizer(request):
    if request.param == "small":
        return request.getfixturevalue("small").tokenizer
    return tiny_llama().tokenizer if request.param == "tiny" else qwen3_tokenizer()


def whole(tokenizer, ids):
    return tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def stream(tokenizer, ids, **options):
    decoder = StreamDecoder(tokenizer, **options)
    return [*(decoder.push(i) for i in ids), decoder.flush()]


def byte_ids(tokenizer):
    """The ids that spell one byte each, by byte: 256 of them in a byte-level vocabulary."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    spelled = bytes_to_unicode()
    return [tokenizer.convert_tokens_to_ids(spelled[byte]) for byte in range(256)]


def id_sequences(tokenizer, count):
    """Sequences of every unpleasant kind: random ids, broken bytes, texts cut and mixed."""
    rng = random.Random(0)
    added = list(tokenizer.get_added_vocab().values())
    last = len(tokenizer)
    single = byte_ids(tokenizer)
    leads = [*b"\xc3\xe2\xe4\xf0\xf4\xff\x80\xbf\x9f\x98", 0x41, 0x20]
    texts = [tokenizer.encode(text, add_special_tokens=False) for text in TEXTS]
    spelled = [[single[byte] for byte in text.encode()] for text in TEXTS]
    for _ in range(count):
        length = rng.choice([1, 3, 10, 40, 90])
        yield [rng.randrange(last) for _ in range(length)]
        yield [rng.choice(single) for _ in range(length)]
        yield [single[rng.choice(leads)] for _ in range(length)]
        yield [single[rng.choice(leads)]] * length
        yield [rng.choice([rng.choice(single), rng.choice(added), last + 5]) for _ in range(length)]
        for source in (rng.choice(texts), rng.choice(spelled)):
            start = rng.randrange(len(source))
            part = source[start : start + length]
            yield [i for i in part if rng.random() > 0.05]
            part.insert(rng.randrange(len(part) + 1), rng.choice(added))
            yield part
        yield [i for part in rng.sample(texts + spelled, 3) for i in part]


def test_joined_pieces_are_the_text_of_all_ids(tokenizer):
    total = 0
    for ids in id_sequences(tokenizer, 150):
        assert "".join(stream(tokenizer, ids)) == whole(tokenizer, ids), ids
        total += 1
    assert total > 1000


def test_ids_that_spell_nothing_are_passed_over(tokenizer):
    single, unknown = byte_ids(tokenizer), [len(tokenizer) + 7]
    for silent in (unknown, [tokenizer.eos_token_id], [tokenizer.eos_token_id, *unknown]):
        ids = [single[0xF0], *silent * 200, *(single[b] for b in b"\x9f\x98\x80"), *silent * 90]
        assert "".join(stream(tokenizer, ids)) == whole(tokenizer, ids) == "😀"


def test_nothing_certain_is_held_back(tokenizer):
    for ids in id_sequences(tokenizer, 40):
        decoder, out = StreamDecoder(tokenizer), ""
        for count, id_ in enumerate(ids, start=1):
            out += decoder.push(id_)
            text = whole(tokenizer, ids[:count])
            held = text[len(out) :]
            assert text.startswith(out)
            assert len(held) <= 3
            assert set(held) <= {REPLACEMENT}
            if not text.endswith(REPLACEMENT):
                assert out == text


@pytest.mark.parametrize("text", TEXTS)
def test_no_piece_ends_in_mid_character(tokenizer, text):
    single = byte_ids(tokenizer)
    for ids in (
        tokenizer.encode(text, add_special_tokens=False),
        [single[byte] for byte in text.encode()],
    ):
        pieces = stream(tokenizer, ids)
        assert "".join(pieces) == whole(tokenizer, ids)
        if REPLACEMENT not in text:
            assert REPLACEMENT not in "".join(pieces)


def test_an_unfinished_character_comes_out_as_the_decoder_shows_it(tokenizer):
    single = byte_ids(tokenizer)
    ids = [single[byte] for byte in b"a\xf0\x9f\x98"]
    assert stream(tokenizer, ids) == ["a", "", "", "", REPLACEMENT]


class Counting:
    """A tokenizer that notes how many ids it is asked to decode."""

    def __init__(self, tokenizer):
        self.tokenizer, self.decoded = tokenizer, 0

    def __getattr__(self, name):
        return getattr(self.tokenizer, name)

    def decode(self, ids, **options):
        self.decoded += len(ids)
        return self.tokenizer.decode(ids, **options)


@pytest.mark.parametrize("kind", ["random", "emoji", "stray", "replacement"])
def test_a_token_costs_the_same_however_long_the_answer(tokenizer, kind):
    single, rng = byte_ids(tokenizer), random.Random(1)
    ids = {
        "random": [rng.randrange(len(tokenizer)) for _ in range(5000)],
        "emoji": [single[byte] for byte in ("🎉" * 1250).encode()],
        "stray": [single[0x98]] * 5000,
        "replacement": [single[byte] for byte in ("\ufffd" * 1667).encode()][:5000],
    }[kind]
    counting = Counting(tokenizer)
    decoder, costs, text = StreamDecoder(counting), [], ""
    for id_ in ids:
        before = counting.decoded
        text += decoder.push(id_)
        costs.append(counting.decoded - before)
    assert text + decoder.flush() == whole(tokenizer, ids)
    assert max(costs) <= 500  # ids decoded for one token, those of the rare slide included
    assert sum(costs[-1000:]) <= 100 * 1000
    assert sum(costs[-1000:]) <= 1.1 * sum(costs[1000:2000])


def reference(text, stops):
    """The text before the first stop string to become complete, of those the longest."""
    for end in range(len(text) + 1):
        complete = [s for s in stops if text[:end].endswith(s)]
        if complete:
            return text[: end - max(map(len, complete))], True
    return text, False


def may_begin(text, stops):
    """Length of the longest end of the text that may be the beginning of a stop string."""
    return max((n for s in stops for n in range(1, len(s)) if text.endswith(s[:n])), default=0)


def check_stops(tokenizer, ids, stops):
    """Push ids one by one, and hold every moment against the reference."""
    decoder, out = StreamDecoder(tokenizer, stops), ""
    for count, id_ in enumerate(ids, start=1):
        was_stopped = decoder.stopped
        piece = decoder.push(id_)
        out += piece
        text = whole(tokenizer, ids[:count])
        expected, stopped = reference(text, stops)
        if was_stopped:
            assert piece == ""
        if not text.endswith(REPLACEMENT):
            assert decoder.stopped == stopped
            assert out == (expected if stopped else text[: len(text) - may_begin(text, stops)])
    out += decoder.flush()
    assert (out, decoder.stopped) == reference(whole(tokenizer, ids), stops)
    assert decoder.flush() == ""
    assert decoder.push(ids[0]) == "" or not decoder.stopped


def test_stop_strings_against_brute_force():
    tokenizer, rng = tiny_llama().tokenizer, random.Random(2)
    pieces = tokenizer.convert_tokens_to_ids(["h", "e", "l", "he", "ll", "hell", "o", "hello"])
    for _ in range(1500):
        ids = rng.choices(pieces, k=rng.randint(1, 12))
        count = rng.randint(1, 3)
        stops = ["".join(rng.choices("helo", k=rng.choice([1, 2, 3, 6]))) for _ in range(count)]
        check_stops(tokenizer, ids, stops)


@pytest.mark.parametrize(
    ("text", "stops"),
    [
        ("one two three", ["two"]),
        ("one two", ["two"]),  # at the very end
        ("two", ["two"]),  # and the very beginning
        ("one tw", ["two"]),  # only begun
        ("one tw three", ["two"]),
        ("aab", ["ab"]),
        ("ababac", ["abac"]),
        ("aaaa", ["aab", "aaaa"]),
        ("abcd", ["bcd", "c"]),  # the shorter one is complete first
        ("abcd", ["abcde", "cd", "d"]),  # two are complete at once: the longer counts
        ("a long stop string over many tokens, then more", ["stop string over many tokens"]),
        ("text\n\nUser: hi", ["\n\nUser:", "\nUser"]),
        ("party 🎉 over", ["🎉"]),
        ("party 🎉🎈 over", ["🎉🎈", "🎊"]),
        ("family 👩‍👩‍👧 here", ["‍👩‍👧"]),
        ("中文没有空格", ["没有"]),
        ("x \ufffd y \ufffd\ufffd z", ["\ufffd\ufffd"]),
        ("x\ufffd", ["\ufffd"]),
        ("caf\u00e9s", ["\u00e9"]),
        ("nothing of the kind", []),
    ],
)
def test_stop_strings_in_real_texts(tokenizer, text, stops):
    check_stops(tokenizer, tokenizer.encode(text, add_special_tokens=False), stops)
    check_stops(tokenizer, [byte_ids(tokenizer)[byte] for byte in text.encode()], stops)


def test_a_stop_string_of_the_decoder_s_own_mark_waits_for_the_whole_character(tokenizer):
    ids = [byte_ids(tokenizer)[byte] for byte in "a🎉b".encode()]
    decoder = StreamDecoder(tokenizer, [REPLACEMENT])
    assert [decoder.push(i) for i in ids] == ["a", "", "", "", "🎉", "b"]
    assert not decoder.stopped


def test_a_stop_string_may_be_longer_than_the_window():
    tokenizer = tiny_llama().tokenizer
    stop = "hello the " * 40
    for text in ("x" + stop + "y", "x" + stop[:-1] + "y", "x" + stop[:-1]):
        check_stops(tokenizer, tokenizer.encode(text, add_special_tokens=False), [stop])


def test_flush_is_all_that_is_needed_for_no_ids(tokenizer):
    decoder = StreamDecoder(tokenizer, ["x"])
    assert decoder.flush() == decoder.flush() == ""
    assert not decoder.stopped


@pytest.mark.parametrize(
    "text",
    [
        "hello",
        " hello  a b",
        "a\nb\n\n\nhello",
        "😀",
        "😀😀🎉",
        "a 中文没有空格 b " * 5,
        "\n😀\n中" * 30,
        "中" * 200,
        "👩‍👩‍👧‍👦" * 12,
    ],
)
def test_byte_tokens_of_a_sentencepiece_model(text):
    tokenizer = byte_fallback_tokenizer()
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert whole(tokenizer, ids) == text
    decoder, out = StreamDecoder(tokenizer), ""
    for count, id_ in enumerate(ids, start=1):
        out += decoder.push(id_)
        so_far = whole(tokenizer, ids[:count])
        assert text.startswith(out)
        if not so_far.endswith(REPLACEMENT):
            assert out == so_far
    assert out == text
    assert decoder.flush() == ""


@pytest.mark.parametrize("make", [byte_fallback_tokenizer, metaspace_tokenizer])
def test_only_the_first_space_of_a_sentencepiece_answer_goes(make):
    tokenizer, rng = make(), random.Random(3)
    texts = [
        i
        for i in tokenizer.get_vocab().values()
        if "<0x" not in tokenizer._tokenizer.id_to_token(i)
    ]
    for _ in range(500):
        ids = rng.choices(texts, k=rng.choice([1, 2, 5, 70]))
        assert "".join(stream(tokenizer, ids)) == whole(tokenizer, ids), ids


def test_new_text_gives_what_follows_and_holds_the_unfinished_back():
    tokenizer = tiny_llama().tokenizer
    ids = [byte_ids(tokenizer)[byte] for byte in "hé🎉".encode()]
    assert [new_text(tokenizer, ids[:n], 0) for n in range(8)] == [
        "", "h", "h", "hé", "hé", "hé", "hé", "hé🎉",
    ]  # fmt: skip
    assert new_text(tokenizer, ids, 1) == "é🎉"
    assert new_text(tokenizer, ids[:5], 2) == ""
    assert new_text(tokenizer, ids[:5], 2, final=True) == REPLACEMENT
    assert new_text(tokenizer, ids, 3) == new_text(tokenizer, [], 0) == ""


def test_decode_text_leaves_control_tokens_out_and_tidies_nothing(tokenizer):
    text = "do n't , I 'm <think> . \u00a0 !"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert decode_text(tokenizer, ids) == text
    assert decode_text(tokenizer, [tokenizer.eos_token_id, *ids, tokenizer.eos_token_id]) == text


def test_a_learner_s_new_text_is_what_decides():
    def shouting(tokenizer, token_ids, sent, final=False):
        return decode_text(tokenizer, token_ids)[sent:].upper()

    tokenizer = tiny_llama().tokenizer
    ids = tokenizer.encode("hello the user " * 20, add_special_tokens=False)
    assert "".join(stream(tokenizer, ids, new_text=shouting)) == "HELLO THE USER " * 20
