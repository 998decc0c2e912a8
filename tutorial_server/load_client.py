"""One client's request: sent, read event by event, and ended in one of five ways."""

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import httpx

from .load_plan import LoadPlan, Question
from .load_report import Ending, Outcome
from .sse import read_events

LINE_END = rb"(?:\r\n|\n|\r(?!\n|\Z))"
EVENT_END = re.compile(LINE_END + LINE_END)
MOST_BYTES = 1_000_000  # of one event


class StreamFault(Exception):
    """A stream that is not as it should be; the message goes into the report."""


class EventReader:
    """Gives events as they become complete, by the rules of `read_events`."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[tuple[str, str]]:
        """Take up bytes that may be split anywhere, and give the events that they complete."""
        self._rest += chunk
        end = max((found.end() for found in EVENT_END.finditer(self._rest)), default=0)
        whole, self._rest = self._rest[:end], self._rest[end:]
        yield from read_events([whole])
        if len(self._rest) > MOST_BYTES:
            raise StreamFault(f"an event of more than {MOST_BYTES} bytes")


@dataclass
class _Seen:
    """What a client has noted of its request up to now."""

    start: float = field(default_factory=perf_counter)
    status: int | None = None
    times: list[float] = field(default_factory=list)  # when each piece of text came
    end: dict[str, Any] = field(default_factory=dict)  # the stream's last event

    def outcome(self, ending: Ending, words: str = "") -> Outcome:
        return Outcome(
            ending=ending,
            seconds=perf_counter() - self.start,
            status=self.status,
            ttft=self.times[0] - self.start if self.times else None,
            gaps=tuple(b - a for a, b in zip(self.times, self.times[1:], strict=False)),
            tokens=self.end["token_count"] if ending == "complete" else 0,
            prompt_tokens=self.end["prompt_tokens"] if ending == "complete" else 0,
            words=words,
        )


async def ask(http: httpx.AsyncClient, plan: LoadPlan, question: Question, end: float) -> Outcome:
    """Send one question; `end` is when the whole load is over, by `perf_counter`.

    A refusal, a fault, and an end that does not come are outcomes as a complete answer is.
    """
    seen = _Seen()
    left = end - seen.start
    try:
        async with asyncio.timeout(min(left, plan.patience)):
            return await _stream(http, plan.url, question, seen)
    except TimeoutError:
        if left < plan.patience:
            return seen.outcome("unfinished")
        return seen.outcome("error", f"not complete after {plan.patience:g} s")
    except (httpx.HTTPError, StreamFault) as error:
        return seen.outcome("error", _one_line(str(error)) or type(error).__name__)


async def _stream(http: httpx.AsyncClient, url: str, question: Question, seen: _Seen) -> Outcome:
    body = {"prompt": question.prompt, "token_limit": question.token_limit}
    async with http.stream("POST", f"{url.rstrip('/')}/stream", json=body) as response:
        seen.status = response.status_code
        if seen.status == 429:
            return seen.outcome("refused")
        if seen.status != 200:
            raise StreamFault(f"status {seen.status}: {await _detail(response)}")
        if question.leave_after == 0:
            return await _leave(question, seen)
        reader = EventReader()
        async for chunk in response.aiter_raw():
            for event, data in reader.feed(chunk):
                if data == "[DONE]" and seen.end:
                    return seen.outcome("complete")
                _note(seen, event, data)
                if len(seen.times) == question.leave_after:
                    return await _leave(question, seen)
    raise StreamFault("the stream ended before [DONE]")


async def _leave(question: Question, seen: _Seen) -> Outcome:
    await asyncio.sleep(question.leave_pause)
    return seen.outcome("left")


def _note(seen: _Seen, event: str, data: str) -> None:
    """Take down one event. Raises StreamFault for one that is none of ours."""
    try:
        payload = json.loads(data)
    except (ValueError, RecursionError):
        payload = None
    match payload:
        case {"error": str(message)} if event == "error":
            raise StreamFault(f"the answer broke off: {message}")
        case {"text": str()}:
            seen.times.append(perf_counter())
        case {"token_count": int(), "prompt_tokens": int()}:
            seen.end = payload
        case _:
            raise StreamFault(f"an event that is none of ours: {data[:80]!r}")


async def _detail(response: httpx.Response) -> str:
    """Read why a request was not answered, up to a few lines."""
    body = b""
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > 10_000:
            break
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return repr(body[:80].decode(errors="replace"))


def _one_line(words: str) -> str:
    """Let a server say what it likes, but not to the terminal that shows it."""
    return "".join(c if c.isprintable() else " " for c in words[:200]).strip()
