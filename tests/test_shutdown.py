"""Leaving in good order: who is here is answered, who comes is told, nothing is lost silently."""

import logging
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from processes import LONG_ANSWER, assert_calm, assert_free, endless, process
from server import (
    PATIENCE,
    GatedRunner,
    Reply,
    Server,
    events,
    read_reply,
    request_bytes,
    wait_until,
)
from tiny import tiny_llama

from tutorial_server import serving
from tutorial_server.api import create_app
from tutorial_server.config import Settings
from tutorial_server.errors import NotReady
from tutorial_server.serving import PatientServer, bind


@contextmanager
def leaving(grace: float) -> Iterator[tuple[Server, GatedRunner, threading.Thread]]:
    """A PatientServer whose forward passes the test lets through, ready, its gate closed."""
    runner = GatedRunner(tiny_llama())
    app = create_app(Settings(), load=lambda: runner)
    listener = bind("127.0.0.1", 0)
    uvicorn_server = PatientServer(uvicorn.Config(app, log_config=None), app.state.engine, grace)
    thread = threading.Thread(target=uvicorn_server.run, args=([listener],), daemon=True)
    thread.start()
    server = Server(app, uvicorn_server, listener.getsockname()[1])
    try:
        wait_until(lambda: server.engine.state().status == "ready", "the model")
        runner.close()
        yield server, runner, thread
    finally:
        runner.remove()
        uvicorn_server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()


def begin_to_leave(server: Server) -> None:
    server.uvicorn.should_exit = True
    wait_until(lambda: server.engine.state().status == "stopping", "the drain")


def assert_turned_away(reply: Reply) -> None:
    assert reply.status == 503
    assert reply.json() == {
        "detail": "The server is shutting down; ask again once it has started anew."
    }
    assert int(reply.headers["retry-after"]) >= 1
    assert reply.headers["connection"] == "close"


def test_who_is_here_is_answered_and_who_comes_is_told(caplog: Any) -> None:
    with leaving(grace=60) as (server, runner, thread):
        kept = server.connect()
        kept.sendall(request_bytes("GET", "/ready"))
        assert read_reply(kept).json() == {"status": "ready", "model": "tiny-llama"}
        running = server.open_stream(token_limit=6)
        runner.wait_begun(1)
        waiting = server.open_stream("/generate", token_limit=4)
        server.wait_line(waiting=1, running=1)
        begin_to_leave(server)
        assert_turned_away(server.post("/generate", prompt="late"))
        assert_turned_away(server.post("/stream", prompt="late"))
        kept.sendall(request_bytes("POST", "/generate", {"prompt": "late"}))
        assert_turned_away(read_reply(kept))
        ready = server.ask("GET", "/ready")
        assert (ready.status, ready.json()["status"]) == (503, "stopping")
        assert server.ask("GET", "/health").json() == {"status": "ok"}
        runner.open()
        assert events(read_reply(running).body)[-1] == ("message", "[DONE]")
        assert read_reply(waiting).json()["token_count"] == 4
        thread.join(5)
        assert not thread.is_alive(), "nobody is left: it does not wait for the grace to pass"
        assert_free(server.port)
    assert [r.message for r in caplog.records if r.levelno >= logging.WARNING] == []


def test_after_the_grace_each_is_told_in_words(caplog: Any) -> None:
    with leaving(grace=0.3) as (server, runner, thread):
        open_ = [server.open_stream(path) for path in ("/stream", "/generate")]
        runner.wait_begun(1)
        server.wait_line(waiting=1, running=1)
        open_ += [server.open_stream(path) for path in ("/stream", "/generate")]
        server.wait_line(waiting=3, running=1)
        begin_to_leave(server)
        replies = [read_reply(connection) for connection in open_]
        runner.open()  # a pass that has begun is waited for
        thread.join(5)
        assert not thread.is_alive()
        assert_free(server.port)
    sentence = "The server stopped before the answer was complete."
    for streamed in replies[::2]:
        assert events(streamed.body) == [("error", {"error": sentence})]
    for whole in replies[1::2]:
        assert (whole.status, whole.json()) == (503, {"detail": sentence})
        assert "retry-after" in whole.headers
    assert [r.message for r in caplog.records if r.levelno >= logging.WARNING] == []


def test_a_client_that_does_not_send_its_body_holds_nobody_up() -> None:
    with leaving(grace=0.2) as (server, _, thread), server.connect() as half:
        half.sendall(request_bytes("POST", "/generate", {"prompt": "hello"})[:-3])
        wait_until(lambda: len(server.uvicorn.server_state.connections) == 1, "the connection")
        server.uvicorn.should_exit = True
        thread.join(3)
        assert not thread.is_alive()


def test_a_connection_that_says_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "SILENT_SECONDS", 0.5)
    with leaving(grace=1) as (server, runner, _thread):
        running = server.open_stream(token_limit=2)
        runner.wait_begun(1)
        silent, half, second = [server.connect() for _ in range(3)]
        half.sendall(b"POST /generate HTTP/1.1\r\nHost: local")
        second.sendall(request_bytes("GET", "/health"))
        assert read_reply(second).status == 200
        second.sendall(b"GET /hea")  # from here on uvicorn itself sets no limit
        for connection in (silent, half, second):
            connection.settimeout(5)
            assert connection.recv(1) == b"", "closed, without a word"
            connection.close()
        runner.open()
        assert events(read_reply(running).body)[-1] == ("message", "[DONE]")


def test_a_connection_that_keeps_asking_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request is over long before anybody looks again."""
    monkeypatch.setattr(serving, "SILENT_SECONDS", 2.0)
    with leaving(grace=1) as (server, _runner, _thread), server.connect() as connection:
        end = time.monotonic() + 4.5
        while time.monotonic() < end:
            connection.sendall(request_bytes("GET", "/health"))
            assert read_reply(connection).status == 200
            time.sleep(0.3)


def access(method: str, path: str, status: int) -> logging.LogRecord:
    arguments = ("127.0.0.1:5000", method, path, "1.1", status)
    return logging.LogRecord("uvicorn.access", logging.INFO, "", 0, "%s %s", arguments, None)


@pytest.mark.parametrize(
    ("method", "path", "status", "logged"),
    [
        ("GET", "/metrics", 200, False),
        ("GET", "/ready", 200, False),
        ("GET", "/ready", 503, False),
        ("GET", "/health", 200, False),
        ("GET", "/health", 503, True),
        ("GET", "/metrics", 401, True),
        ("POST", "/metrics", 405, True),
        ("GET", "/", 200, True),
        ("POST", "/generate", 200, True),
    ],
)
def test_polls_are_not_logged(method: str, path: str, status: int, logged: bool) -> None:
    assert serving.is_worth_a_line(access(method, path, status)) is logged


@pytest.mark.parametrize("arguments", [None, (), ("GET",), ({"a": 1},)])
def test_another_line_of_the_access_log_is_kept(arguments: Any) -> None:
    record = logging.LogRecord("uvicorn.access", logging.INFO, "", 0, "hello", arguments, None)
    assert serving.is_worth_a_line(record)


def test_an_engine_that_drains_takes_nobody_in() -> None:
    with leaving(grace=0.2) as (server, _, _thread):
        server.engine.drain()
        with pytest.raises(NotReady, match="shutting down"):
            server.engine._ready_runner()
        server.engine.stop()
        assert server.engine.state().status == "stopped"


# Under load, as a process, with real signals.


class Client(threading.Thread):
    """Asks until something comes that is no whole answer; says how each request ended."""

    def __init__(self, port: int, path: str, limits: list[int]):
        super().__init__(daemon=True)
        self.port, self.path, self.limits = port, path, limits
        self.ends: list[str] = []

    def run(self) -> None:
        for limit in self.limits:
            self.ends.append(end := self._ask(limit))
            if end != "complete":
                return

    def _ask(self, limit: int) -> str:
        try:
            connection = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        except ConnectionRefusedError:
            return "refused"
        with connection:
            body = {"prompt": "hello", "token_limit": limit}
            connection.sendall(request_bytes("POST", self.path, body))
            return how_it_ended(read_reply(connection), limit)


def how_it_ended(reply: Reply, limit: int) -> str:
    """Say how an answer ended; fails where it is none of the ways that were promised."""
    if reply.status == 503:
        assert reply.json()["detail"].startswith("The server ")
        return "503"
    assert reply.status == 200, reply.body
    if "text/event-stream" not in reply.headers["content-type"]:
        assert reply.json()["token_count"] == limit
        return "complete"
    *_, last_but_one, last = [("", {}), *events(reply.body)]
    if last == ("message", "[DONE]"):
        assert last_but_one[1]["token_count"] == limit
        return "complete"
    assert last == ("error", {"error": "The server stopped before the answer was complete."})
    return "error event"


def test_under_load_nothing_is_lost_silently(tmp_path: Path) -> None:
    folder = endless(tmp_path / "tiny")
    short, long = [15] * 500, [LONG_ANSWER]
    with process("-m", "tutorial_server", "serve", "--model", str(folder)) as server:
        server.wait_for("/ready", 200)
        clients = [
            Client(server.port, ("/stream", "/generate")[i % 2], long if i % 5 == 0 else short)
            for i in range(50)
        ]
        for client in clients:
            client.start()
        wait_until(lambda: sum(len(c.ends) for c in clients) >= 50, "some answers")
        server.send(signal.SIGTERM)
        began = time.monotonic()
        late = Client(server.port, "/generate", short)
        late.start()
        for client in [*clients, late]:
            client.join(PATIENCE)
        code, stderr = server.wait()
    assert time.monotonic() - began < 6
    assert code == -signal.SIGTERM
    assert_calm(stderr)
    assert_free(server.port)
    assert all(client.ends and client.ends[-1] != "complete" for client in clients), "one hangs"
    last = Counter(client.ends[-1] for client in clients)
    assert set(last) <= {"503", "error event", "refused"}, last
    assert last["error event"] >= 1, "long streams were cut, in words"
    assert last["503"] >= 5, last
    assert last["refused"] == 0, "everybody asked again while the port was open"
    assert late.ends[-1] == "503"
