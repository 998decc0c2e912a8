"""A client that takes a server at its word: what it sends, in which pieces, and when."""

import contextlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from time import monotonic
from typing import Any

import httpx

from ..sse import read_events

Body = dict[str, Any] | bytes | Iterable[bytes]
LEAVE_SECONDS = 0.3  # after which a client that gets nothing goes
SHOWN = 160  # characters of an answer that a failure quotes


class Unmet(Exception):
    """A check's expectation was not met; the message says what came instead."""


class NotHere(Exception):
    """A check does not apply to this server; the message says why."""


@dataclass(frozen=True)
class Reply:
    """One whole answer."""

    status: int
    headers: httpx.Headers
    body: bytes

    def __str__(self) -> str:
        text = self.body[:SHOWN].decode("utf-8", errors="replace").strip()
        kind = self.headers.get("content-type", "no content type")
        return f"{self.status}, {kind}: {text or 'an empty body'}"

    def object(self) -> dict[str, Any]:
        """Parse a JSON object as strictly as the standard does. Raises Unmet."""
        try:
            found = json.loads(self.body.decode("utf-8"), parse_constant=_refuse)
        except (ValueError, RecursionError):
            raise Unmet(f"no valid JSON, but {self}") from None
        if not isinstance(found, dict):
            raise Unmet(f"JSON that is no object: {self}")
        return found

    def need(self, status: int) -> "Reply":
        """Give this answer if it has the status. Raises Unmet."""
        if self.status != status:
            raise Unmet(f"{self}")
        return self


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


@dataclass(frozen=True)
class Streamed:
    """One whole stream: `arrivals` are its reads, each with seconds since the request."""

    headers: httpx.Headers
    arrivals: tuple[tuple[float, bytes], ...]

    @property
    def body(self) -> bytes:
        """All bytes."""
        return b"".join(data for _, data in self.arrivals)

    @property
    def events(self) -> list[tuple[str, Any]]:
        """Name and payload of each event; what is no JSON stays a string."""
        return [(name, _parsed(data)) for name, data in read_events([self.body])]

    @property
    def text(self) -> str:
        """The pieces joined, as far as the event with the ending or [DONE]."""
        pieces = []
        for _, data in self.events:
            if data == "[DONE]" or (isinstance(data, dict) and "finish_reason" in data):
                break
            if isinstance(data, dict) and isinstance(data.get("text"), str):
                pieces.append(data["text"])
        return "".join(pieces)


def _parsed(data: str) -> Any:
    try:
        return json.loads(data, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return data


class Client:
    """Asks one server, within `seconds` from now for all requests together.

    Each check has a client of its own, so that none inherits another's connections.
    """

    def __init__(self, url: str, api_key: str | None = None, seconds: float = 60.0):
        self.url = url
        self.api_key = api_key
        self._end = monotonic() + seconds
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        tls = url.startswith("https:")  # certificates take long to load, and http needs none
        self._http = httpx.Client(base_url=url, headers=headers, trust_env=False, verify=tls)

    def another(self) -> "Client":
        """Give a second client, to be used beside this one."""
        return Client(self.url, self.api_key, self.left())

    def left(self) -> float:
        """Seconds that are left."""
        return max(0.05, self._end - monotonic())

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def ask(
        self, method: str, path: str, body: Body | None = None, seconds: float | None = None
    ) -> Reply:
        """Send a request; a dict becomes JSON, bytes go as they are, an iterable in chunks."""
        content = json.dumps(body).encode() if isinstance(body, dict) else body
        headers = {"Content-Type": "application/json"} if body is not None else {}
        timeout = self.left() if seconds is None else min(seconds, self.left())
        reply = self._http.request(method, path, content=content, headers=headers, timeout=timeout)
        return Reply(reply.status_code, reply.headers, reply.content)

    def get(self, path: str) -> Reply:
        """GET a path."""
        return self.ask("GET", path)

    def post(self, path: str, body: Body) -> Reply:
        """POST a body."""
        return self.ask("POST", path, body)

    def generate(self, prompt: str, **fields: Any) -> dict[str, Any]:
        """Have a prompt answered whole. Raises Unmet where no answer with a text comes."""
        answer = self.post("/generate", {"prompt": prompt, **fields}).need(200).object()
        if not isinstance(answer.get("text"), str):
            raise Unmet("an answer without a text")
        return answer

    def stream(self, prompt: str, **fields: Any) -> Streamed:
        """Have an answer streamed to its end. Raises Unmet where the status is not 200."""
        return self.stream_body("/stream", {"prompt": prompt, **fields})

    def stream_body(self, path: str, body: dict[str, Any]) -> Streamed:
        """Do the same with a body of another route's."""
        with self._open(path, body) as (reply, arrivals):
            if reply.status_code != 200:
                raise Unmet(f"{Reply(reply.status_code, reply.headers, reply.read())}")
            return Streamed(reply.headers, tuple(arrivals))

    @contextlib.contextmanager
    def _open(
        self, path: str, body: dict[str, Any]
    ) -> Iterator[tuple[httpx.Response, Iterator[tuple[float, bytes]]]]:
        began = monotonic()
        with self._http.stream("POST", path, json=body, timeout=self.left()) as reply:

            def arrivals() -> Iterator[tuple[float, bytes]]:
                for data in reply.iter_raw():
                    if monotonic() > self._end:
                        raise httpx.ReadTimeout("the stream went on and on")
                    yield monotonic() - began, data

            yield reply, arrivals()

    def leave(self, path: str, body: dict[str, Any]) -> int | None:
        """Ask, and go once the answer has begun (or should have); the status, if one came."""
        if path == "/stream":
            with self._open(path, body) as (reply, arrivals):
                next(arrivals, None)
                return reply.status_code
        try:
            return self.ask("POST", path, body, LEAVE_SECONDS).status
        except httpx.ReadTimeout:
            return None
