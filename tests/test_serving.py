"""The server as a process: its port, its end by Ctrl-C, what it says when it cannot serve."""

import logging
import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import LONG_ANSWER, assert_calm, assert_free, endless, process
from server import events, read_reply, request_bytes

from tutorial_server.cli import main
from tutorial_server.errors import ModelError, TutorialServerError
from tutorial_server.serving import _url, bind

# A load that never ends and, as a real one does, spends its time inside torch.
NEVER_LOADED = """
import sys, torch, tutorial_server.api
from tutorial_server.cli import main

def load_model(*args, **kwargs):
    matrix = torch.eye(1000)
    while True:
        matrix = matrix @ matrix

tutorial_server.api.load_model = load_model
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return endless(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def uvicorn_loggers() -> Iterator[None]:
    """Put back what uvicorn's own logging changes in this process."""
    loggers = [logging.getLogger(name) for name in ("uvicorn", "uvicorn.error", "uvicorn.access")]
    before = [(list(logger.handlers), logger.propagate, logger.level) for logger in loggers]
    yield
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


def test_ctrl_c_lets_short_answers_end_and_tells_the_others(folder: Path) -> None:
    with process("-m", "tutorial_server", "serve", "--model", str(folder)) as server:
        server.wait_for("/ready", 200)
        short = server.open("/stream", token_limit=20)
        stream = server.open("/stream", token_limit=LONG_ANSWER)
        assert b"200 OK" in stream.recv(4096)
        waiting = server.open("/generate", token_limit=LONG_ANSWER)
        half = socket.create_connection(("127.0.0.1", server.port))
        half.sendall(request_bytes("POST", "/generate", {"prompt": "hello"})[:-3])
        time.sleep(0.2)
        code, stderr = server.interrupt()
        ended = read_reply(short)
        rest = b"".join(iter(lambda: stream.recv(65536), b""))
        refusal = read_reply(waiting)
        for connection in (short, stream, waiting, half):
            connection.close()
    assert code == 130
    assert_calm(stderr)
    assert events(ended.body)[-1] == ("message", "[DONE]")
    assert rest.endswith(b"\r\n0\r\n\r\n"), "the stream was ended, not cut"
    assert b"event: error\ndata: " in rest
    assert b"[DONE]" not in rest
    assert refusal.status == 503
    assert "stopped" in refusal.json()["detail"]
    assert "hello" not in stderr, "prompts are not logged"
    assert_free(server.port)


def test_ctrl_c_while_the_model_loads() -> None:
    with process("-c", NEVER_LOADED, "serve", "--host", "0.0.0.0") as server:
        assert server.get("/ready").status == 503
        code, stderr = server.interrupt()
    assert code == 130
    assert_calm(stderr)
    assert "WARNING: 0.0.0.0 is reachable from other machines" in stderr
    assert_free(server.port)


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_at_once(folder: Path, sig: int) -> None:
    flags = ["--model", str(folder), "--shutdown-seconds", "60"]
    with process("-m", "tutorial_server", "serve", *flags) as server:
        server.wait_for("/ready", 200)
        with server.open("/stream", token_limit=LONG_ANSWER) as stream:
            assert b"200 OK" in stream.recv(4096)
            server.send(sig)
            time.sleep(0.3)
            code, stderr = server.interrupt(sig)
    assert code == 128 + sig
    assert_calm(stderr)
    assert_free(server.port)


def test_a_load_that_fails_ends_the_process(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, uvicorn_loggers: None
) -> None:
    def load_model(*args: Any, **kwargs: Any) -> Any:
        raise ModelError("The disk is full; make room.")

    monkeypatch.setattr("tutorial_server.api.load_model", load_model)
    assert main(["serve", "--port", "0"]) == 2
    captured = capsys.readouterr()
    assert captured.out.startswith("Listening on http://127.0.0.1:")
    assert captured.err.splitlines()[-1] == "tutorial-server: The disk is full; make room."
    assert_calm(captured.err)


def test_a_model_that_is_not_there_is_named(capsys: Any, uvicorn_loggers: None) -> None:
    assert main(["serve", "--port", "0", "--model", "/no/such/folder"]) == 2
    assert "/no/such/folder" in capsys.readouterr().err.splitlines()[-1]


def test_a_taken_port_is_known_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(
        "tutorial_server.api.load_model", lambda *args, **kwargs: pytest.fail("it loaded")
    )
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "--port", str(port)]) == 2
    sentence = f"Cannot listen on 127.0.0.1 port {port} (Address already in use); "
    assert capsys.readouterr().err == (
        f"tutorial-server: {sentence}choose another with --host and --port.\n"
    )


def test_a_bound_port_takes_connections_at_once() -> None:
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            assert connection.getpeername() == ("127.0.0.1", port)
    assert_free(port)


def test_a_small_piece_does_not_wait_for_the_one_before() -> None:
    """Without the option a client that confirms late has each piece 40 ms late."""
    with bind("127.0.0.1", 0) as listener:
        client = socket.create_connection(listener.getsockname(), timeout=1)
        served, _ = listener.accept()
        with client, served:
            assert served.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def test_a_port_is_free_again_at_once_after_connections() -> None:
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        served, _ = listener.accept()
        served.close()  # this side leaves first, and waits out its time
    assert_free(port)
    client.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "::1"])
def test_hosts(host: str) -> None:
    if host == "::1" and not can_speak_ipv6():
        pytest.skip("this machine has no IPv6")
    with bind(host, 0) as listener:
        assert listener.getsockname()[1] > 0
        assert re.fullmatch(r"http://(\d+(\.\d+){3}|\[::1\]):\d+", _url(listener))


def can_speak_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("host", ["no.such.host.invalid", "a" * 80, "..", "300.1.1.1", "\0"])
def test_hosts_that_are_none(host: str) -> None:
    with pytest.raises(TutorialServerError, match="choose another"):
        bind(host, 0)
