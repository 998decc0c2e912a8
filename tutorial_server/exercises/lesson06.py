"""Cases of lesson 06: text that is certain, events on the wire, and reading them back."""

import json
from collections.abc import Iterable
from typing import Any

from ..detokenize import _count_unsure, decode_text, new_text
from ..sse import _lines, read_events, sse_event
from .compare import equal, expect, gives, instance, unpack
from .show import kind
from .task import Stage, Task, Words, Wrong
from .tiny import tiny_tokenizer

MARK = "\ufffd"


def _ids(text: str) -> list[int]:
    ids: list[int] = tiny_tokenizer().encode(text, add_special_tokens=False)
    return ids


def _bytes(raw: bytes) -> list[int]:
    """The tokens that stand for single bytes, whether or not they make a character."""
    from tokenizers.pre_tokenizers import ByteLevel

    from_byte = tiny_tokenizer().get_vocab()
    letters = dict(zip(_byte_order(), sorted(ByteLevel.alphabet()), strict=True))
    return [from_byte[letters[b]] for b in raw]


def _byte_order() -> list[int]:
    """Bytes in the order in which byte-level BPE gives them its 256 letters."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return [*plain, *(b for b in range(256) if b not in plain)]


# new_text. `sent` is small where ids are many, so that characters and ids are not confused.
def _new(ids: list[int], sent: int, final: bool = False) -> Any:
    return lambda fn: fn(tiny_tokenizer(), ids, sent, final)


def _text_type(fn: Any) -> None:
    got = fn(tiny_tokenizer(), _ids("hello"), 0)
    hint = "" if got is None else f"The result is {kind(got)}. Return text: a str."
    instance(got, str, "a str", hint=hint)


def _text_whole(fn: Any) -> None:
    text = "Well done 🥳🥳 你好, café…"
    ids = _bytes(text.encode())
    tokenizer, out = tiny_tokenizer(), ""
    for n in range(1, len(ids) + 1):
        out += fn(tokenizer, ids[:n], len(out))
    out += fn(tokenizer, ids, len(out), True)
    hint = "Token by token, the pieces joined must be the text. Each stage before holds alone."
    equal(out, text, "the pieces joined", hint)


NEW_TEXT = Task(
    name="new_text",
    lesson=6,
    minutes=15,
    difficulty="medium",
    statement="Give the text that may go out now, and hold back what may still change.",
    solution=new_text,
    helpers=(decode_text, _count_unsure),
    hints=(
        "Decode all ids to the text so far. The first `sent` characters of it are out already. "
        "What follows may go out, except an end that is not a character yet: the decoder shows "
        "the replacement character U+FFFD there.",
        "tokenizer.decode(token_ids) is a str. Give a slice of it that begins at character "
        "`sent`. Where it ends depends on whether the text ends with '\\ufffd', and on final.",
        "text = tokenizer.decode(token_ids); unless final, take the U+FFFD off its end with "
        "text.rstrip('\\ufffd'); return text[sent:].",
    ),
    stages=(
        Stage("type", "a piece of text", _text_type),
        gives(
            "all",
            "nothing sent yet: the text of all ids",
            _new(_ids("hello world"), 0),
            "hello world",
            "the piece",
            "With sent=0 nothing is out, so all the text of the ids may go out.",
            (" world", "You decode the last id alone. Decode all of token_ids together."),
            ("", "You hold everything back. Only an unfinished character must wait."),
            ("ello world", "The first character is missing: begin at character `sent` itself."),
            ("hello worl", "You always hold back a character. Only an unfinished one must wait."),
            (
                lambda got: "\u0120" in got,
                "You join the tokens as they are spelt in the vocabulary, where Ġ stands for a "
                "space. tokenizer.decode makes text of ids.",
            ),
            (
                lambda got: got.split() == ["hello", "world"],
                "White space is changed. Text goes out exactly as it is, spaces included.",
            ),
        ),
        gives(
            "sent",
            "only what follows the characters already out",
            _new(_ids("hello world"), 4),
            "o world",
            "the piece",
            "4 characters are out, so the piece begins with the fifth.",
            ("hello world", "You send everything again, what is out already too. Use `sent`."),
            ("", "`sent` counts characters, and you cut off that many ids. Decode, then cut."),
            (" world", "You begin one character too late: text[sent:] starts right behind."),
        ),
        gives(
            "space",
            "a space is text",
            _new(_ids("hello world"), 5),
            " world",
            "the piece",
            "5 characters are out. The next one is a space, and it belongs to the text.",
            ("world", "You strip white space, so words will stick together. Leave it alone."),
        ),
        gives(
            "both ends",
            "spaces at the beginning and at the end",
            _new(_ids(" hello "), 0, final=True),
            " hello ",
            "the piece",
            "The text begins and ends with a space, and both belong to it.",
            (
                lambda got: got.strip() == "hello",
                "You strip white space off the ends. It is text like any other.",
            ),
        ),
        gives(
            "unfinished",
            "half an emoji waits",
            _new(_ids("hi ") + _bytes("🥳".encode()[:2]), 3),
            "",
            "the piece",
            "Two of the emoji's four bytes are here. Nothing of it may go out yet.",
            (None, 'Nothing may go out, but that is a str as well: return "", not None.'),
            (
                lambda got: got.startswith("hi"),
                "While you hold back you send what is out already. Use `sent` here, too.",
            ),
            (
                lambda got: MARK in got,
                "You send U+FFFD for a character that is only half here, and it cannot be taken "
                "back. Hold the end of the text back while it is U+FFFD.",
            ),
        ),
        gives(
            "finished",
            "the whole emoji goes",
            _new(_ids("hi ") + _bytes("🥳".encode()), 3),
            "🥳",
            "the piece",
            "All four bytes are here, so the emoji goes out.",
            (
                lambda got: got == "" or set(got) == {MARK},
                "Its four bytes are four tokens. Decode all ids together: one by one they are no "
                "character.",
            ),
        ),
        gives(
            "final",
            "nothing more will come",
            _new(_ids("hi ") + _bytes("🥳".encode()[:2]), 3, final=True),
            MARK,
            "the piece",
            "The answer ends in mid-character, so U+FFFD is its text now, and goes out.",
            ("", "You hold back although final=True: then nothing more comes, and it is lost."),
            ("hi " + MARK, "With final=True you give the whole answer. Use `sent` here, too."),
        ),
        gives(
            "default",
            "more will come where nobody says anything about it",
            lambda fn: fn(tiny_tokenizer(), _ids("hi ") + _bytes("🥳".encode()[:2]), 3),
            "",
            "the piece",
            "Called without final, it is False: its default stands in the function's first line.",
        ),
        gives(
            "characters",
            "sent counts characters, not bytes",
            _new(_ids("café au"), 5),
            "au",
            "the piece",
            "5 characters are out: c, a, f, é and the space.",
            (
                " au",
                "You cut off bytes, and é is two of them. `sent` counts characters: text[sent:].",
            ),
        ),
        gives(
            "real U+FFFD",
            "a broken byte in the middle is text",
            _new(_bytes(b"a\x80b"), 0),
            f"a{MARK}b",
            "the piece",
            "A stray byte became U+FFFD, but a letter follows: it will not change any more.",
            ("ab", "You delete every U+FFFD. Only one at the very end may still change."),
            (
                lambda got: got in ("", "a"),
                "You hold back from the first U+FFFD on, wherever it stands. Only at the very "
                "end of the text may it still change.",
            ),
        ),
        Stage("whole", "emoji, Chinese and accents, byte by byte", _text_whole),
    ),
)


# sse_event. Any JSON will do, so the event is read back rather than compared.
def _event_type(fn: Any) -> None:
    got = fn({"text": "Hi"})
    hint = f"The result is {kind(got)}. Return a str; the server encodes it."
    instance(got, str, "a str", hint="" if got is None else hint)


def _event_line(fn: Any) -> None:
    got = fn({"text": "Hi"})
    expect(
        got.startswith("data:"),
        "An event's line begins with the field name: data: and then the JSON.",
        expected=Words("a text that begins with data:"),
        got=got,
    )


def _event_end(fn: Any) -> None:
    got = fn({"text": "Hi"})
    body = got.rstrip("\r\n")
    end = got[len(body) :].replace("\r\n", "\n")
    if got.endswith("\\n"):
        end = "\\n"
    elif got.endswith(" ") and "\n" in got:
        end = " "
    known = {
        "\\n": "Your newlines are a backslash and an n. Is a raw string (r'…') in it?",
        " ": "There is a space behind the end of the line. Nothing follows the two newlines.",
        "": "Your event has no end of line at all. End the line, and add an empty one.",
        "\n": "The empty line is missing. It ends an event; without it the client waits on.",
    }
    hint = known.get(end, "More than one empty line at the end. One ends the event.")
    expect(end == "\n\n", hint, expected=Words("… and at its end \\n\\n"), got=got)


def _payload(fn: Any, payload: Any, hint: str) -> None:
    """The event must be one `data` line of JSON that means the payload."""
    got = fn(payload)
    lines = got.rstrip("\r\n").split("\n")
    if len(lines) > 1:
        if "" in lines and lines[-1].startswith("data:"):
            hint = "You give several events. One payload is one event, and nothing is added to it."
        raise Wrong(hint, expected=Words("one line, then an empty one"), got=got)
    text = got.rstrip("\r\n").removeprefix("data:")
    _compare_json(text, payload, got)


def _compare_json(text: str, payload: Any, got: str) -> None:
    expected = Words(f"data: {json.dumps(payload)}")
    try:
        found = json.loads(text)
    except ValueError:
        hint = "What follows data: is not JSON. Use json.dumps on the whole payload."
        if "(" in text:
            hint = "The call itself stands in the text. Put an f before the quotes: f'…'."
        elif text.lstrip().startswith("b'"):
            hint = "b'…' is how Python writes bytes. Put in the str that json.dumps gives."
        elif "'" in text and '"' not in text:
            hint = (
                "That is Python's way to write a dict, with single quotes. Clients read JSON: "
                "use json.dumps."
            )
        raise Wrong(hint, expected=expected, got=got) from None
    if isinstance(found, str) and found == json.dumps(payload):
        raise Wrong("It is JSON inside JSON: dumps was called twice.", expected=expected, got=got)
    hint = "The JSON must be the payload itself, with all that it holds."
    expect(found == payload, hint, expected=expected, got=got)


def _event_json(fn: Any) -> None:
    _payload(
        fn,
        {"text": "Hi", "n": 1, "more": [True, None]},
        "Your JSON is spread over several lines, and each would need its own data:. No indent.",
    )


def _event_newline(fn: Any) -> None:
    _payload(
        fn,
        {"text": "one\n\ntwo"},
        "A newline of the text stands in the frame as it is, and ends the event in its middle. "
        "json.dumps writes it as the two characters \\n.",
    )


def _event_ascii(fn: Any) -> None:
    payload = {"text": "é 🥳 one\u2028two"}
    got = fn(payload)
    expect(
        got.isascii(),
        "There are characters outside ASCII. U+2028 among them ends a line for some clients. "
        "Let json.dumps escape them, as it does unless told otherwise.",
        expected=Words("only ASCII characters"),
        got=got,
    )
    _payload(fn, payload, "U+2028 ends a line for some clients, so it must be escaped.")


def _event_whole(fn: Any) -> None:
    payloads = [{"text": ""}, {"finish_reason": "stop", "timing": {"ttft_ms": 1.5}}, {}]
    wire = "".join(fn(payload) for payload in payloads)
    got = [json.loads(data) for _, data in read_events([wire.encode()])]
    equal(got, payloads, "what a client reads", "Three events in a row are read as three.")


SSE_EVENT = Task(
    name="sse_event",
    lesson=6,
    minutes=5,
    difficulty="easy",
    statement="Frame one payload as a Server-Sent Event that no client splits wrongly.",
    solution=sse_event,
    hints=(
        "An event is a line that begins with `data: ` and an empty line behind it. What "
        "stands in the line must hold no line end of its own, so write it as JSON.",
        "payload is anything that JSON can hold; the result is one str: the field name, "
        "json.dumps of the payload, and two newlines.",
        'import json, and return f"data: {json.dumps(payload)}\\n\\n". Its default, '
        "ensure_ascii=True, is just right.",
    ),
    stages=(
        Stage("type", "a str", _event_type),
        Stage("line", "begins with data:", _event_line),
        Stage("end", "ends with one empty line", _event_end),
        Stage("json", "the payload as one line of JSON", _event_json),
        Stage("newline", "a newline in the text stays inside", _event_newline),
        Stage("ascii", "nothing but ASCII", _event_ascii),
        Stage("whole", "three events in a row", _event_whole),
    ),
)


# read_events
def _read(fn: Any, chunks: Iterable[bytes]) -> list[Any]:
    got = fn(list(chunks))
    try:
        return list(got)
    except TypeError:
        hint = f"The result is {kind(got)}. Give the events one after the other: yield, or a list."
        raise Wrong(hint, expected=Words("an iterable of (event, data)"), got=got) from None


def _events_type(fn: Any) -> None:
    events = _read(fn, [b"data: one\n\n"])
    expect(
        len(events) == 1,
        "One event came in, so one must come out.",
        expected=[("message", "one")],
        got=events,
    )
    event = events[0]
    pair = isinstance(event, tuple | list) and len(event) == 2
    hint = "Each event is a pair: its name and its data, both str. Without a name: 'message'."
    if isinstance(event, str):
        hint = "You give the data alone. Each event is a pair (event, data)."
    expect(pair and all(isinstance(x, str) for x in event), hint, expected=("message", "one"),
           got=event)  # fmt: skip
    swapped = tuple(event) == ("one", "message")
    expect(not swapped, "The pair is the wrong way round: first the name, then the data.",
           expected=("message", "one"), got=event)  # fmt: skip
    hint = "Without a name it is a message; its data is what follows `data: `, no line end in it."
    expect(tuple(event) == ("message", "one"), hint, expected=("message", "one"), got=event)


def _reads(
    name: str, about: str, chunks: list[bytes], hint: str, *known: Any, **more: Any
) -> Stage:
    """A stage that compares the events in some chunks with what the standard says."""
    expected = list(read_events(chunks))
    return gives(
        name,
        about,
        lambda fn: [tuple(event) for event in _read(fn, chunks)],
        expected,
        "the events",
        hint,
        *known,
        **more,
    )


def _events_everywhere(fn: Any) -> None:
    wire = 'data: {"text": "né 🥳"}\r\n\r\n: ping\nevent: error\ndata: a\ndata: b\n\n'.encode()
    expected = list(read_events([wire]))
    for cut in range(len(wire) + 1):
        got = [tuple(event) for event in _read(fn, [wire[:cut], wire[cut:]])]
        hint = (
            f"Cut after byte {cut}, the events are others than in one chunk. A chunk may end "
            "anywhere, in the middle of a line end too: keep the rest for the next one."
        )
        equal(got, expected, "the events", hint)


READ_EVENTS = Task(
    name="read_events",
    lesson=6,
    minutes=20,
    difficulty="hard",
    statement="Read events back from bytes that the network cut anywhere.",
    solution=read_events,
    helpers=(_lines,),
    hints=(
        "Collect bytes until a line is complete, and handle one line at a time. A line with a "
        "field adds to the event; an empty line ends it and gives it out. What is not a "
        "complete line yet stays for the next chunk.",
        "chunks is an iterable of bytes; give pairs (event, data) of str. Keep three things: "
        "the bytes of the unfinished line, the name so far, the data lines so far (a list). "
        "Cut the bytes at b'\\n', take a b'\\r' off the end, and only then decode.",
        "For each chunk: rest += chunk; *lines, rest = rest.split(b'\\n'). For each line, "
        "decoded and without '\\r': empty → if there is data, yield (name, '\\n'.join(data)), "
        "then forget both; otherwise partition(':'), take one space off the value's front, "
        "and use it if the field is data or event.",
    ),
    stages=(
        Stage("type", "pairs of name and data", _events_type),
        _reads(
            "two",
            "two events in one chunk",
            [b"data: one\n\ndata: two\n\n"],
            "Two events came in one chunk, and two must come out.",
            (
                [("message", "one\ntwo")],
                "Both became one. An empty line ends an event: give it out there, and begin anew.",
            ),
            (lambda got: len(got) == 1, "You take a chunk for an event. It may hold several."),
            (lambda got: len(got) > 2, "An event is given out more than once. Forget it after."),
            (
                lambda got: len(got) == 2 and got[1][1] != "two",
                "strip takes letters, and lstrip('data: ') takes the t off two as well. Take off "
                "a beginning with removeprefix, or cut at the colon.",
            ),
        ),
        _reads(
            "cut",
            "an event in two chunks",
            [b"data: o", b"ne\n\n"],
            "The chunk ended in mid-line. Keep what is unfinished, and put the next one behind it.",
            ([], "Half an event was thrown away. Keep what is unfinished for the next chunk."),
        ),
        _reads(
            "cut character",
            "a character in two chunks",
            [b"data: \xc3", b"\xa9\n\n"],
            "A chunk ended in mid-character. Decode whole lines, not chunks.",
            (
                lambda got: MARK in str(got) or got == [("message", "")],
                "A character that was cut is lost. Decode whole lines, not chunks.",
            ),
            raises=(
                (
                    UnicodeDecodeError,
                    "",
                    "A chunk may end in mid-character, so decoding a "
                    "chunk fails. Collect bytes, and decode whole lines.",
                ),
            ),
        ),
        _reads(
            "name",
            "an event's own name",
            [b"event: error\ndata: bad\n\ndata: good\n\n"],
            "The first event is called error. The next has no name, so it is a message again.",
            (
                [("message", "bad"), ("message", "good")],
                "The event's name is lost, and an error looks like text. Read the field event.",
            ),
            (
                [("error", "bad"), ("error", "good")],
                "The name of the event before stays on. Each event begins as 'message'.",
            ),
        ),
        _reads(
            "comment",
            "lines that say nothing",
            [b": ping\n\nid: 7\nretry: 10\ndata: one\n\n"],
            "A line that begins with a colon is a comment; fields other than data and event are "
            "passed over. An event without data is none.",
            (
                lambda got: len(got) > 1 and ("message", "") in got,
                "An empty event came out. Without a data line there is none to give out.",
            ),
        ),
        _reads(
            "lines",
            "several data lines",
            [b"data: one\ndata: two\n\n"],
            "Two data lines are one event, joined by a newline.",
            ([("message", "two")], "Only the last data line is kept. Collect them in a list."),
            ([("message", "onetwo")], "The lines are joined without the newline between them."),
        ),
        _reads(
            "space",
            "one space after the colon",
            [b"data:none\ndata:  two \n\n"],
            "One space after the colon is taken off, if there is one, and no other.",
            (
                lambda got: got == [("message", "none\ntwo")],
                "You strip all white space. It is text: take off one space after the colon only.",
            ),
        ),
        _reads(
            "colon",
            "a colon in the data",
            [b'data: {"data: a": 1}\n\n'],
            "Only the first colon ends the field's name; the others are data.",
            (
                lambda got: got in ([("message", '{"a": 1}')], [("message", '{" a": 1}')]),
                "You take out data: wherever it stands. Only the one in front is the field.",
            ),
            raises=((ValueError, "unpack", "Data may hold colons: split at the first one only."),),
        ),
        _reads(
            "CR LF",
            "lines that end with CR LF",
            [b"data: one\r\n\r\n"],
            "Lines may end with \\r\\n as well. The \\r is not part of the line.",
        ),
        _reads(
            "other ends",
            "what ends a line elsewhere",
            ["data: one\u2028two\x0bthree\n\n".encode()],
            "Only \\n and \\r\\n end a line here. str.splitlines knows many more, such as U+2028: "
            "split at \\n, or split bytes.",
        ),
        _reads(
            "broken off",
            "an event without its empty line",
            [b"data: one\n\ndata: two\n"],
            "The last event never ended, so it must not be given out: its rest may be missing.",
            (
                lambda got: len(got) == 2,
                "An event came out that never ended. Without its empty line it is incomplete.",
            ),
        ),
        Stage("everywhere", "cut at every byte", _events_everywhere),
    ),
)


# The bug hunt. What a learner is given tries short ends first.
def hold_stop(text: str, stop: str) -> tuple[str, str]:
    """Split text into what may go out, and an end that may be the beginning of `stop`."""
    for n in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:n]):
            return text[:-n], text[-n:]
    return text, ""


def _hold_pair(fn: Any) -> None:
    for part in unpack(fn("hello", "END"), "certain", "held"):
        instance(part, str, "a str")


HOLD_STOP = Task(
    name="hold_stop",
    lesson=6,
    minutes=5,
    difficulty="medium",
    statement="Mend the step that holds back what may be the beginning of a stop string.",
    solution=hold_stop,
    hunt=True,
    hints=(
        "With the stop string '\\n\\nUser:', what is held when the text ends with one newline, "
        "and what when it ends with two?",
        "text ends with stop[:1], and with stop[:2] as well. Both fit; which of them must be "
        "held so that the stop string can still be found?",
        "Try the long beginnings first: n from len(stop) - 1 down to 1. The first that fits is "
        "the longest.",
    ),
    stages=(
        Stage("pair", "what may go out, and what is held", _hold_pair),
        gives(
            "nothing",
            "no beginning of the stop string",
            lambda fn: tuple(fn("hello", "END")),
            ("hello", ""),
            "certain and held",
            "Nothing in this text can be the beginning of END.",
            (lambda got: got[1] != "", "You hold text that cannot begin the stop string."),
        ),
        gives(
            "one",
            "its first character",
            lambda fn: tuple(fn("the E", "END")),
            ("the ", "E"),
            "certain and held",
            "The E may be the beginning of END.",
            (("the E", ""), "Nothing is held, so the beginning of a stop string leaks out."),
            (("E", "the "), "The two have changed places: what may go out comes first."),
        ),
        gives(
            "two",
            "a beginning that repeats its first character",
            lambda fn: tuple(fn("hi\n\n", "\n\nUser:")),
            ("hi", "\n\n"),
            "certain and held",
            "Both newlines may be the beginning of the stop string.",
            (
                ("hi\n", "\n"),
                "One newline leaks out: the end fits a short beginning and a longer one, and "
                "the short one was taken. Hold the longest that fits.",
            ),
            (("hi\n\n", ""), "Two newlines leak out. Look at beginnings longer than one."),
        ),
        gives(
            "false start",
            "what looked like it and was not",
            lambda fn: tuple(fn("EN route", "END")),
            ("EN route", ""),
            "certain and held",
            "EN stands at the front, not at the end; it was no stop string after all.",
        ),
        gives(
            "short text",
            "less text than stop string",
            lambda fn: tuple(fn("E", "END")),
            ("", "E"),
            "certain and held",
            "The whole text may be the beginning.",
        ),
    ),
)

TASKS = (NEW_TEXT, SSE_EVENT, READ_EVENTS, HOLD_STOP)
