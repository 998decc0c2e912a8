"""A real server on a real socket inside the test process, and a client that hides nothing.

Starlette's TestClient buffers streams and hides disconnects, so no test uses it.
"""

import asyncio
import http.client
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import uvicorn

from tutorial_server.api import create_app
from tutorial_server.config import Settings
from tutorial_server.models import LLM
from tutorial_server.runner import Runner, TransformersRunner
from tutorial_server.sequence import Sequence
from tutorial_server.serving import bind
from tutorial_server.sse import read_events
from tutorial_server.steps import Steps

PATIENCE = 20.0  # seconds until a test says that something will never happen


def wait_until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> None:
    """Look every millisecond; fail with `what` where it does not come true in time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s in vain for: {what}"
        time.sleep(0.001)


class GatedRunner:
    """A runner whose forward passes wait at a gate, so that a test decides when each happens.

    `begun` counts passes that reached the gate, `passes` (a forward hook) those through it.
    """

    rows = 1

    def __init__(self, llm: LLM):
        self.llm = llm
        self.begun = 0
        self.passes = 0
        self.sequences: list[Sequence] = []
        self.fail_at: int | None = None  # the pass, counted from 1, that raises
        self.pace = 0.0  # seconds that each pass takes longer
        self._inner = TransformersRunner(llm)
        self._tickets = threading.Condition()
        self._left: int | None = None  # None: open
        self._hook = llm.model.register_forward_hook(self._count)

    def prefill(self, sequences: Any, limit: int | None = None) -> list[torch.Tensor | None]:
        self.sequences += sequences
        self._wait()
        return self._inner.prefill(sequences, limit)

    def decode(self, sequences: Any) -> torch.Tensor:
        self._wait()
        return self._inner.decode(sequences)

    def release(self, sequence: Sequence) -> None:
        self._inner.release(sequence)

    def close(self, passes: int = 0) -> None:
        """Count anew, and let so many more passes through."""
        with self._tickets:
            self.begun = self.passes = 0
            self.sequences.clear()
            self._left = passes

    def allow(self, passes: int) -> None:
        with self._tickets:
            assert self._left is not None
            self._left += passes
            self._tickets.notify_all()

    def open(self) -> None:
        with self._tickets:
            self._left = None
            self._tickets.notify_all()

    def wait_begun(self, count: int) -> None:
        wait_until(lambda: self.begun >= count, f"forward pass {count}")

    def remove(self) -> None:
        self._hook.remove()
        self.open()

    def _wait(self) -> None:
        time.sleep(self.pace)
        with self._tickets:
            self.begun += 1
            if self.begun == self.fail_at:
                raise RuntimeError("the device fell off the bus")
            assert self._tickets.wait_for(lambda: self._left != 0, PATIENCE), "nobody opened"
            if self._left is not None:
                self._left -= 1

    def _count(self, *_: Any) -> None:
        self.passes += 1


class Server:
    """What a test holds of a running server."""

    def __init__(self, app: Any, uvicorn_server: uvicorn.Server, port: int):
        self.app = app
        self.uvicorn = uvicorn_server
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.engine = app.state.engine

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def ask(self, method: str, path: str, body: Any = None, headers: Any = ()) -> "Reply":
        """Send one request on a connection of its own; a body that is no bytes becomes JSON."""
        with self.connect() as connection:
            connection.sendall(request_bytes(method, path, body, dict(headers)))
            return read_reply(connection, method)

    def post(self, path: str, body: Any = None, **fields: Any) -> "Reply":
        return self.ask("POST", path, fields if body is None else body)

    def generate(self, prompt: str = "hello", **fields: Any) -> dict[str, Any]:
        reply = self.post("/generate", prompt=prompt, **fields)
        assert reply.status == 200, reply.body
        return reply.json()

    def stream(self, prompt: str = "hello", **fields: Any) -> list[tuple[str, Any]]:
        """Give the events of a stream; data is parsed except for `[DONE]`."""
        reply = self.post("/stream", prompt=prompt, **fields)
        assert reply.status == 200, reply.body
        return events(reply.body)

    def open_stream(self, path: str = "/stream", **fields: Any) -> socket.socket:
        """Send a request, and leave its answer to be read piece by piece."""
        connection = self.connect()
        connection.sendall(request_bytes("POST", path, {"prompt": "hello", **fields}))
        return connection

    def wait_line(self, waiting: int, running: int) -> None:
        def is_so() -> bool:
            state = self.engine.state()
            return (state.waiting, state.running) == (waiting, running)

        wait_until(is_so, f"{waiting} waiting, {running} running")

    def wait_connections(self, count: int) -> None:
        """Wait until uvicorn has noticed who left, and the event loop has told the app."""
        wait_until(
            lambda: len(self.uvicorn.server_state.connections) == count,
            f"{count} connections, not {len(self.uvicorn.server_state.connections)}",
            seconds=2.0,
        )
        for _ in range(3):
            assert self.ask("GET", "/health").status == 200


class Reply:
    """Status, headers and body of one answer; headers by their small-letter name."""

    def __init__(self, response: http.client.HTTPResponse):
        self.status = response.status
        self.body = response.read()
        self.headers = {name.lower(): value for name, value in response.getheaders()}

    def json(self) -> Any:
        """Parse as strictly as the standard: no NaN, one value, ASCII or UTF-8."""

        def refuse(constant: str) -> None:
            raise AssertionError(f"{constant} is not JSON")

        return json.loads(self.body.decode("utf-8"), parse_constant=refuse)


def request_bytes(
    method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> bytes:
    headers = {"Host": "localhost", "Content-Type": "application/json"} | (headers or {})
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    if body is not None and "Transfer-Encoding" not in headers:
        headers.setdefault("Content-Length", str(len(body)))
    lines = [f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items()), "", ""]
    return "\r\n".join(lines).encode() + (body or b"")


def read_reply(connection: socket.socket, method: str = "POST") -> Reply:
    response = http.client.HTTPResponse(connection, method=method)
    response.begin()
    return Reply(response)


def events(body: bytes) -> list[tuple[str, Any]]:
    found = read_events([body])
    return [(name, data if data == "[DONE]" else json.loads(data)) for name, data in found]


def joined(found: list[tuple[str, Any]]) -> str:
    return "".join(data["text"] for _, data in found if isinstance(data, dict) and "text" in data)


def leave(connection: socket.socket, how: str) -> None:
    """Go without a word: `FIN` as a closed program does, `RST` as a killed connection."""
    if how == "RST":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@contextmanager
def serving(
    load: Callable[[], Runner] | None,
    settings: Settings | None = None,
    steps: Steps | None = None,
    ready: bool = True,
) -> Iterator[Server]:
    """Run `create_app` until the block ends, on a free port; `ready`: wait for the model."""
    app = create_app(settings or Settings(), steps, load)
    listener = bind("127.0.0.1", 0)
    config = uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])), daemon=True)
    thread.start()
    wait_until(lambda: server.started, "the server's start")
    here = Server(app, server, listener.getsockname()[1])
    try:
        if ready:
            wait_until(lambda: here.engine.state().status != "loading", "the model")
        yield here
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the server did not stop"


@contextmanager
def gated(
    llm: LLM, settings: Settings | None = None, steps: Steps | None = None
) -> Iterator[tuple[Server, GatedRunner]]:
    """Run a server whose passes the test lets through; the gate is closed once it is ready."""
    runner = GatedRunner(llm)
    try:
        with serving(lambda: runner, settings, steps) as server:
            runner.close()
            try:
                yield server, runner
            finally:
                runner.open()
    finally:
        runner.remove()
