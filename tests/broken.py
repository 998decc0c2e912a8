"""Servers that are right but for one thing, for the contract's checks to find."""

import asyncio
import dataclasses
import json
import zlib
from array import array
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event
from time import sleep
from typing import Any

import torch
from server import wait_until
from tiny import tiny_llama

from tutorial_server.api import create_app
from tutorial_server.background import background
from tutorial_server.config import Settings
from tutorial_server.sequence import Sequence

Asgi = Callable[[Any, Any, Any], Awaitable[None]]
Breakage = Callable[[Asgi, Any, Any, Any], Awaitable[None]]


class ScriptedRunner:
    """Scores letters by the prompt and the position alone: fast, and each prompt's text its own."""

    def __init__(self, rows: int = 4, pace: float = 0.001):
        self.llm = dataclasses.replace(tiny_llama(), context_length=4096)
        self.rows = rows
        self.pace = pace
        self._letters = torch.tensor(self.llm.tokenizer.encode("abcdefghijklmnopqrstuvwxyz"))

    def prefill(self, sequences: Any, limit: int | None = None) -> list[torch.Tensor | None]:
        for sequence in sequences:
            sequence.prompt_read = len(sequence.prompt_ids)
            sequence.cache_used = True
        sleep(self.pace)
        return [self._scores(sequence) for sequence in sequences]

    def decode(self, sequences: Any) -> torch.Tensor:
        sleep(self.pace)
        return torch.cat([self._scores(sequence) for sequence in sequences])

    def release(self, sequence: Sequence) -> None:
        sequence.cache = None

    def _scores(self, sequence: Sequence) -> torch.Tensor:
        logits = torch.full((1, self.llm.vocab_size), -torch.inf)
        prompt = zlib.crc32(array("i", sequence.prompt_ids).tobytes())
        mixed = (prompt + 7919 * len(sequence.token_ids)) * (self._letters + 104729)
        logits[0, self._letters] = (mixed * 48271 % 2147483647).float() / 2**29
        return logits


@dataclass
class Seen:
    """A request, and what the right server answered."""

    path: str
    method: str
    headers: dict[bytes, bytes]
    request: bytearray = field(default_factory=bytearray)
    status: int = 0
    kind: bytes = b""
    body: bytes = b""

    def edit(self, change: Callable[[Any], Any]) -> None:
        """Change a JSON body in place, or by what `change` gives."""
        found = json.loads(self.body)
        changed = change(found)
        self.body = json.dumps(found if changed is None else changed).encode()

    def become(self, status: int, body: Any, kind: bytes = b"application/json") -> None:
        self.status, self.kind = status, kind
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()


def rewriting(
    path: str, mark: bytes, change: Callable[[Seen], None], linger: float = 0.0
) -> Breakage:
    """Hold back the answers to requests for `path` (or any) that hold `mark`, and change them."""

    async def broken(app: Asgi, scope: Any, receive: Any, send: Any) -> None:
        seen = Seen(scope["path"], scope["method"], dict(scope["headers"]))
        held: list[Any] = []

        async def record() -> Any:
            message = await receive()
            seen.request += message.get("body", b"")[:1000]
            return message

        async def hold(message: Any) -> None:
            if path not in ("", seen.path) or mark not in bytes(seen.request):
                await send(message)
            else:
                held.append(message)

        await app(scope, record, hold)
        if held:
            await asyncio.sleep(linger)
            await _send_changed(seen, held, change, send)

    return broken


async def _send_changed(
    seen: Seen, held: list[Any], change: Callable[[Seen], None], send: Any
) -> None:
    start, *rest = held
    headers = dict(start["headers"])
    seen.status, seen.kind = start["status"], headers.pop(b"content-type", b"")
    seen.body = b"".join(message.get("body", b"") for message in rest)
    change(seen)
    headers.pop(b"content-length", None)
    headers[b"content-type"] = seen.kind
    await send({**start, "status": seen.status, "headers": list(headers.items())})
    await send({"type": "http.response.body", "body": seen.body})


def deaf(path: str, over: Event) -> Breakage:
    """Never tell the app that a client has left `path`, until all is over."""

    async def broken(app: Asgi, scope: Any, receive: Any, send: Any) -> None:
        async def listen() -> Any:
            message = await receive()
            if message["type"] == "http.disconnect" and scope["path"] == path:
                while not over.is_set():
                    await asyncio.sleep(0.01)
            return message

        await app(scope, listen, send)

    return broken


def crowded(path: str, mark: bytes) -> Breakage:
    """Turn an answer's text round where another request was there at the same time."""
    here: list[bytes] = []

    def change(seen: Seen) -> None:
        if len(here) > 1:
            seen.edit(lambda answer: answer.update(text=answer["text"][::-1]))

    rewrite = rewriting(path, mark, change, linger=0.1)

    async def broken(app: Asgi, scope: Any, receive: Any, send: Any) -> None:
        here.append(scope["raw_path"])
        try:
            await rewrite(app, scope, receive, send)
        finally:
            here.pop()

    return broken


class Switch:
    """The right server behind one thing that is wrong, which a test sets."""

    def __init__(self, app: Any):
        self.app = app
        self.state = app.state
        self.broken: Breakage | None = None
        self.url = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self.broken is None or scope["type"] != "http":
            await self.app(scope, receive, send)
        else:
            await self.broken(self.app, scope, receive, send)


@contextmanager
def breakable(runner: ScriptedRunner, settings: Settings | None = None) -> Iterator[Switch]:
    """Serve a scripted model, ready, in a way that can be broken."""
    switch = Switch(create_app(settings or Settings(), load=lambda: runner))
    with background(switch) as url:
        wait_until(lambda: switch.state.engine.state().status == "ready", "the model")
        switch.url = url
        yield switch
