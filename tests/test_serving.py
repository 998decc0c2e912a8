"""The server as a process: its port, its ending by Ctrl-C, and what it says when it cannot serve."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from server import Reply, events, joined, read_reply, request_bytes
from tiny import save_tiny, tiny_llama

from tutorial_server.errors import TutorialServerError
from tutorial_server.serving import bind

SECONDS_TO_END = 5.0
LONG_ANSWER = 40_000

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
    """A tiny model whose answers never end before the limit, since no known id ends a turn."""
    folder = save_tiny(tmp_path_factory.mktemp("models") / "tiny")
    unknown_id = {"eos_token_id": len(tiny_llama().tokenizer) + 1}
    change(folder / "config.json", unknown_id | {"max_position_embeddings": 2 * LONG_ANSWER})
    change(folder / "generation_config.json", unknown_id)
    change(folder / "tokenizer_config.json", {"eos_token": None})
    return folder


def change(file: Path, fields: dict[str, Any]) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


class Process:
    """A server process, the port it said, and what it wrote."""

    def __init__(self, arguments: list[str], port: int):
        self.popen = subprocess.Popen(
            [sys.executable, *arguments, "--port", str(port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.popen.stdout is not None
        self.greeting = self.popen.stdout.readline()
        self.port = int(self.greeting.split("127.0.0.1:")[1].split()[0])

    def open(self, path: str, **fields: object) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        connection.sendall(request_bytes("POST", path, {"prompt": "hello", **fields}))
        return connection

    def get(self, path: str) -> Reply:
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as connection:
            connection.sendall(request_bytes("GET", path))
            return read_reply(connection)

    def wait_for(self, path: str, status: int) -> None:
        end = time.monotonic() + 60
        while self.get(path).status != status:
            assert self.popen.poll() is None, self.popen.communicate()
            assert time.monotonic() < end
            time.sleep(0.02)

    def interrupt(self) -> tuple[int, str]:
        """Press Ctrl-C: the exit code and stderr, in time."""
        start = time.monotonic()
        os.killpg(self.popen.pid, signal.SIGINT)
        _, stderr = self.popen.communicate(timeout=30)
        assert time.monotonic() - start < SECONDS_TO_END
        return self.popen.returncode, stderr


@contextmanager
def process(*arguments: str, port: int = 0) -> Iterator[Process]:
    running = Process(list(arguments), port)
    try:
        yield running
    finally:
        running.popen.kill()
        running.popen.communicate()


def assert_calm(stderr: str) -> None:
    for ugly in ("Traceback", "Error", "ERROR", "terminate", "Fatal", "Aborted", "core"):
        assert ugly not in stderr, stderr


def assert_free(port: int) -> None:
    bind("127.0.0.1", port).close()


def test_ctrl_c_with_a_stream_and_a_request_in_line(folder: Path) -> None:
    with process("-m", "tutorial_server", "serve", "--model", str(folder)) as server:
        server.wait_for("/ready", 200)
        stream = server.open("/stream", token_limit=LONG_ANSWER)
        assert b"200 OK" in stream.recv(4096)
        waiting = server.open("/generate", token_limit=LONG_ANSWER)
        time.sleep(0.2)
        code, stderr = server.interrupt()
        rest = b"".join(iter(lambda: stream.recv(65536), b""))
        refusal = read_reply(waiting)
        stream.close()
        waiting.close()
    assert code == 130
    assert_calm(stderr)
    assert b"event: error\ndata: " in rest
    assert b"[DONE]" not in rest
    assert rest.endswith(b"\r\n0\r\n\r\n"), "the stream was ended, not cut"
    assert refusal.status == 500
    assert "stopped" in refusal.json()["detail"]
    assert_free(server.port)


def test_ctrl_c_lets_a_short_answer_end(folder: Path) -> None:
    with process("-m", "tutorial_server", "serve", "--model", str(folder)) as server:
        server.wait_for("/ready", 200)
        stream = server.open("/stream", token_limit=30)
        code, stderr = server.interrupt()
        found = events(read_reply(stream).body)
        stream.close()
    assert code == 130
    assert_calm(stderr)
    assert found[-1] == ("message", "[DONE]")
    assert joined(found)


def test_ctrl_c_while_the_model_loads() -> None:
    with process("-c", NEVER_LOADED, "serve") as server:
        assert server.get("/ready").status == 503
        code, stderr = server.interrupt()
    assert code == 130
    assert_calm(stderr)
    assert_free(server.port)
