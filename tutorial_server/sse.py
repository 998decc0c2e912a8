"""Server-Sent Events: how a piece of an answer looks on the wire."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

DONE = "data: [DONE]\n\n"


def sse_event(payload: Any) -> str:
    r"""Frame one payload as an event: `data: `, one line of ASCII JSON, an empty line.

    JSON writes a newline as the two characters `\n`, and everything outside ASCII as
    `\uXXXX`: no client can see a line's end where none is meant (some split at U+2028).
    Source: the WHATWG HTML standard, section 9.2, server-sent events.
    """
    return f"data: {json.dumps(payload, ensure_ascii=True, allow_nan=False)}\n\n"


def error_event(message: str) -> str:
    """Frame a failure after the 200 is out, under a name of its own so nobody takes it for text."""
    return "event: error\n" + sse_event({"error": message})


def read_events(chunks: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    """Give `(event, data)` for each event in bytes that may be split anywhere.

    An event without a name is a `message`. Comments and unknown fields are passed over,
    and so is an event that breaks off before its empty line, as the standard asks.
    """
    event, data = "message", []  # type: tuple[str, list[str]]
    for number, line in enumerate(_lines(chunks)):
        if number == 0:
            line = line.removeprefix("\ufeff")
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data:
                yield event, "\n".join(data)
            event, data = "message", []
        elif field == "data":
            data.append(value)
        elif field == "event":
            event = value or "message"


def _lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """Split bytes into lines at CR LF, LF or CR, wherever the chunks are cut."""
    rest = b""
    for chunk in chunks:
        # A CR at the very end waits: an LF that belongs to it may come next.
        rest = (rest + chunk).replace(b"\r\n", b"\n")
        waits = rest.endswith(b"\r")
        *lines, rest = rest[: len(rest) - waits].replace(b"\r", b"\n").split(b"\n")
        rest += b"\r" * waits
        for line in lines:
            yield line.decode("utf-8", errors="replace")
    if rest.endswith(b"\r"):
        yield rest[:-1].decode("utf-8", errors="replace")
