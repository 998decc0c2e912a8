"""POST /stream: Server-Sent Events."""

from typing import Any

from .answers import wrong_fields
from .check import check
from .client import Client, NotHere, Streamed, Unmet

GROUP = "/stream"
END = ("finish_reason", "timing", "token_count", "prompt_tokens")
LATE = 0.9  # the part of a stream's time after which a first piece comes too late to be one


@check(
    GROUP,
    "A stream is answered 200 with the content type text/event-stream.",
    'Give the response the media type "text/event-stream".',
)
def stream_type(client: Client) -> None:
    """Look at the headers."""
    found = client.stream("Name a tree.", token_limit=4).headers.get("content-type", "")
    if found.partition(";")[0].strip().lower() != "text/event-stream":
        raise Unmet(f"the content type {found!r}.")


@check(
    GROUP,
    "Each event is one line `data: ` of ASCII JSON, or data: [DONE], and an empty line.",
    "Write `data: ` + json.dumps(payload, ensure_ascii=True) + two newlines, and nothing else.",
)
def stream_frames(client: Client) -> None:
    """Look at the bytes."""
    body = client.stream("Name a bird.", token_limit=8).body
    if not body.isascii():
        raise Unmet("bytes outside ASCII.")
    *frames, rest = body.decode().split("\n\n")
    if rest:
        raise Unmet(f"no empty line after {rest[-60:]!r}.")
    for frame in frames:
        if "\n" in frame or "\r" in frame or not frame.startswith("data: "):
            raise Unmet(f"{frame[:100]!r}.")
    _check_payloads(Streamed({}, ((0.0, body),)))  # type: ignore[arg-type]


def _check_payloads(streamed: Streamed) -> None:
    for name, data in streamed.events:
        if not isinstance(data, dict) and data != "[DONE]":
            raise Unmet(f"an event {name!r} whose data is no JSON object: {data!r}.")


@check(
    GROUP,
    "A stream's pieces, joined, are the text that /generate gives (temperature 0).",
    "Send each piece of text once, in its order, and flush what was held back at the end.",
)
def stream_equals_generate(client: Client) -> None:
    """Ask both routes."""
    asked: dict[str, Any] = {"prompt": "What is the sea like?", "token_limit": 16}
    whole, joined = client.generate(**asked)["text"], client.stream(**asked).text
    if whole != joined:
        raise Unmet(f"/generate says {whole!r}, the stream's pieces {joined!r}.")


@check(
    GROUP,
    "Pieces arrive while the answer is being made: the first long before the last.",
    "Yield each piece as it becomes certain; let nothing on the way collect the response.",
)
def stream_piecewise(client: Client) -> None:
    """Watch the clock; twice, for a hiccup is no buffer."""
    for _ in range(2):
        streamed = client.stream("Describe a garden.", token_limit=24)
        pieces = [d for _, d in streamed.events if isinstance(d, dict) and d.get("text")]
        if _tokens(streamed) < 4:
            raise NotHere("the model's answer is too short to see it arrive")
        texts = [t for t, data in streamed.arrivals if b'"text"' in data]
        last = streamed.arrivals[-1][0]
        if len(pieces) > 1 and len(texts) > 1 and texts[0] < LATE * last:
            return
    first = f"the first after {texts[0]:.3f} s" if texts else "none with a text"
    raise Unmet(f"{len(pieces)} pieces in {len(texts)} reads, {first}, the end at {last:.3f} s.")


def _tokens(streamed: Streamed) -> int:
    counts = [d["token_count"] for _, d in streamed.events if isinstance(d, dict) and _counts(d)]
    return counts[-1] if counts else 99


def _counts(payload: dict[str, Any]) -> bool:
    return isinstance(payload.get("token_count"), int)


@check(
    GROUP,
    f"After the last piece comes one event with {', '.join(END)}, then data: [DONE].",
    "Send the ending as an event of its own, then [DONE]; never after a failure.",
)
def stream_end(client: Client) -> None:
    """Look at the last two events."""
    found = [data for _, data in client.stream("Name a city.", token_limit=8).events]
    if "[DONE]" not in found:
        raise Unmet(f"no [DONE]; the last event was {found[-1] if found else 'none'!r}.")
    before = found[: found.index("[DONE]")]
    ends = [d for d in before if isinstance(d, dict) and "finish_reason" in d]
    if len(ends) != 1 or before[-1] is not ends[0]:
        raise Unmet(f"{len(ends)} events with a finish_reason; before [DONE] came {before[-1:]}.")
    if faults := wrong_fields(ends[0], END):
        raise Unmet("; ".join(faults) + ".")


@check(
    GROUP,
    "Nothing comes after data: [DONE], and the response ends.",
    "Return from the generator after [DONE].",
)
def stream_nothing_after(client: Client) -> None:
    """Look behind [DONE]."""
    found = [data for _, data in client.stream("Name a lake.", token_limit=8).events]
    after = found[found.index("[DONE]") + 1 :] if "[DONE]" in found else []
    if after:
        raise Unmet(f"after [DONE] came {after[:3]}.")


CHECKS = (
    stream_type,
    stream_frames,
    stream_equals_generate,
    stream_piecewise,
    stream_end,
    stream_nothing_after,
)
