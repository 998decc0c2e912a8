"""Events on the wire: their exact bytes, and a reader that no split confuses."""

import json
from typing import Any

import pytest

from tutorial_server.sse import DONE, error_event, read_events, sse_event

NASTY = [
    "", "a", "\n", "\r\n", "\r", "\n\n", "data: x\n\n", "a\u2028b\u2029c\x85d\x0b\x0c\x1c\x1d\x1e",
    '"\\', "\0", "\U0001f600", "é", "\ufeff", "[DONE]", ": comment", "event: error", "\ud7ff\ue000",
]  # fmt: skip


@pytest.mark.parametrize(
    ("payload", "bytes_"),
    [
        ({"text": "hi"}, b'data: {"text": "hi"}\n\n'),
        ({"text": "\n"}, b'data: {"text": "\\n"}\n\n'),
        ({"text": "é"}, b'data: {"text": "\\u00e9"}\n\n'),
        ({"text": "\u2028"}, b'data: {"text": "\\u2028"}\n\n'),
        ({"text": "\U0001f600"}, b'data: {"text": "\\ud83d\\ude00"}\n\n'),
        ([1, None, True], b"data: [1, null, true]\n\n"),
        ("[DONE]", b'data: "[DONE]"\n\n'),
    ],
)
def test_the_bytes_of_an_event(payload: Any, bytes_: bytes) -> None:
    assert sse_event(payload).encode() == bytes_


@pytest.mark.parametrize("text", NASTY, ids=ascii)
def test_an_event_is_one_line_and_comes_back(text: str) -> None:
    event = sse_event({"text": text})
    assert event.isascii()
    assert event.endswith("\n\n")
    assert len(event.splitlines()) == 2  # any reader's idea of a line's end
    ((name, data),) = read_events([event.encode()])
    assert (name, json.loads(data)) == ("message", {"text": text})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_json_is_no_event(value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        sse_event({"text": value})


def test_the_last_event() -> None:
    assert DONE == "data: [DONE]\n\n"
    assert list(read_events([DONE.encode()])) == [("message", "[DONE]")]


def test_a_failure_has_a_name_of_its_own() -> None:
    event = error_event("broken:\n it fell")
    assert event == 'event: error\ndata: {"error": "broken:\\n it fell"}\n\n'
    ((name, data),) = read_events([event.encode()])
    assert (name, json.loads(data)) == ("error", {"error": "broken:\n it fell"})


def split_everywhere(data: bytes) -> list[list[bytes]]:
    halves = [[data[:at], data[at:]] for at in range(len(data) + 1)]
    thirds = [[data[:at], data[at : at + 1], data[at + 1 :]] for at in range(len(data))]
    single = [bytes([byte]) for byte in data]
    return [[data], *halves, *thirds, single, [b"", *single, b""]]


READ = {
    "two events": (b"data: a\n\ndata: b\n\n", [("message", "a"), ("message", "b")]),
    "CR LF": (b"data: a\r\n\r\ndata: b\r\n\r\n", [("message", "a"), ("message", "b")]),
    "CR": (b"data: a\r\rdata: b\r\r", [("message", "a"), ("message", "b")]),
    "mixed line ends": (b"data: a\r\n\rdata: b\n\r\n", [("message", "a"), ("message", "b")]),
    "CR, CR LF": (b"data: a\r\r\ndata: b\n\n", [("message", "a"), ("message", "b")]),
    "a name": (b"event: error\ndata: a\n\ndata: b\n\n", [("error", "a"), ("message", "b")]),
    "the name after": (b"data: a\nevent: end\n\n", [("end", "a")]),
    "an empty name": (b"event: x\nevent:\ndata: a\n\n", [("message", "a")]),
    "lines of data": (b"data: a\ndata:\ndata: b\n\n", [("message", "a\n\nb")]),
    "data without a colon": (b"data\ndata\n\n", [("message", "\n")]),
    "one space goes": (b"data:  a \n\ndata:b\n\n", [("message", " a "), ("message", "b")]),
    "colons in data": (b"data: a: b:c\n\n", [("message", "a: b:c")]),
    "comments": (b": ping\n\n:\ndata: a\n: b\n\n", [("message", "a")]),
    "unknown fields": (b"id: 7\nretry: 10\nfoo\nDATA: no\ndata: a\n\n", [("message", "a")]),
    "a name without data": (b"event: x\n\ndata: a\n\n", [("message", "a")]),
    "broken off": (b"data: a\n\ndata: b\n", [("message", "a")]),
    "broken off in a line": (b"data: a\n\ndata: b", [("message", "a")]),
    "a lone end": (b"\n\n\r\n\r", []),
    "nothing": (b"", []),
    "a mark in front": (b"\xef\xbb\xbfdata: a\n\n", [("message", "a")]),
    "a mark later": (b"data: \xef\xbb\xbfa\n\n", [("message", "\ufeffa")]),
    "UTF-8": ("data: é你\U0001f600\u2028x\n\n".encode(), [("message", "é你\U0001f600\u2028x")]),
    "no UTF-8": (b"data: \xff\n\n", [("message", "\ufffd")]),
    "other separators": (b"data: a\x0b\x0c\x1c\xc2\x85b\n\n", [("message", "a\x0b\x0c\x1c\x85b")]),
}


@pytest.mark.parametrize("name", READ)
def test_the_reader(name: str) -> None:
    data, expected = READ[name]
    for chunks in split_everywhere(data):
        assert list(read_events(chunks)) == expected, chunks


def test_a_whole_stream_split_everywhere() -> None:
    stream = "".join([*(sse_event({"text": text}) for text in NASTY[:6]), DONE]).encode()
    expected = [json.dumps({"text": text}) for text in NASTY[:6]] + ["[DONE]"]
    for chunks in split_everywhere(stream):
        assert [data for _, data in read_events(chunks)] == expected


def test_events_are_given_as_they_come() -> None:
    seen = []

    def chunks() -> Any:
        yield b"data: a\n\nda"
        seen.append("asked for more")
        yield b"ta: b\n\n"

    found = read_events(chunks())
    assert next(found) == ("message", "a")
    assert seen == []
    assert list(found) == [("message", "b")]
