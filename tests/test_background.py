"""A server beside other code: there while it is wanted, gone after."""

import asyncio
import contextlib
import http.client
import logging
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from server import GatedRunner, events, read_reply, request_bytes, wait_until
from tiny import tiny_llama

from tutorial_server.api import create_app
from tutorial_server.background import background, start_in_background


def hello() -> FastAPI:
    app = FastAPI()
    app.get("/hello")(lambda: {"hello": "you"})
    return app


def test_serves_inside_the_block_and_not_after():
    with background(hello()) as url:
        assert httpx.get(f"{url}/hello").json() == {"hello": "you"}
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/hello")


def test_two_at_once_have_addresses_of_their_own():
    first, second = start_in_background(hello()), start_in_background(hello())
    try:
        assert first.url != second.url
        assert [httpx.get(f"{s.url}/hello").status_code for s in (first, second)] == [200, 200]
    finally:
        first.stop()
        second.stop()
    assert not first.thread.is_alive() and not second.thread.is_alive()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_app_that_does_not_start_says_so():
    @asynccontextmanager
    async def broken(app: FastAPI):
        raise RuntimeError("no disk")
        yield

    with pytest.raises(RuntimeError, match="did not start"):
        start_in_background(FastAPI(lifespan=broken))


@pytest.fixture
def endless() -> Iterator[FastAPI]:
    """The reference's app, whose answer takes longer than anybody waits."""
    runner = GatedRunner(tiny_llama())
    runner.pace = 0.1
    yield create_app(load=lambda: runner)
    runner.remove()


def stop_with_an_open_stream(app: FastAPI) -> bytes:
    server = start_in_background(app)
    if engine := getattr(app.state, "engine", None):
        wait_until(lambda: engine.state().status == "ready", "the model")
    port = httpx.URL(server.url).port
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        body = {"prompt": "hello", "token_limit": 400}
        connection.sendall(request_bytes("POST", "/stream", body))
        assert connection.recv(12, socket.MSG_PEEK) == b"HTTP/1.1 200"
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 4
        with contextlib.suppress(http.client.IncompleteRead, ConnectionError):
            return read_reply(connection).body
        return b""


def test_an_open_stream_is_told_when_the_server_stops(
    endless: FastAPI, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    found = events(stop_with_an_open_stream(endless))
    sentence = "The server stopped before the answer was complete."
    assert found[-1] == ("error", {"error": sentence})
    assert [r.message for r in caplog.records if r.levelno >= logging.WARNING] == []
    assert "Traceback" not in capfd.readouterr().err


def test_an_app_without_an_engine_leaves_no_traceback_either(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    async def forever() -> AsyncIterator[bytes]:
        while True:
            yield b"data: {}\n\n"
            await asyncio.sleep(0.05)

    app = FastAPI()
    app.post("/stream")(lambda: StreamingResponse(forever(), media_type="text/event-stream"))
    stop_with_an_open_stream(app)
    assert [r.message for r in caplog.records if r.levelno >= logging.WARNING] == []
    assert "Traceback" not in capfd.readouterr().err
