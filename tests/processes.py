"""A server as a process of its own, to be ended by signals."""

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

from server import Reply, read_reply, request_bytes
from tiny import save_tiny, tiny_llama

from tutorial_server.serving import bind

SECONDS_TO_END = 5.0
LONG_ANSWER = 40_000


def endless(folder: Path) -> Path:
    """Write a tiny model whose answers never end before the limit: no known id ends a turn."""
    save_tiny(folder)
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
        self.port = int(self.greeting.split("://")[1].split()[0].rpartition(":")[2])

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
            time.sleep(0.1)  # each look takes time from what is waited for

    def send(self, sig: int = signal.SIGINT) -> None:
        """Send a signal as a terminal does, to the whole group."""
        os.killpg(self.popen.pid, sig)

    def interrupt(self, sig: int = signal.SIGINT) -> tuple[int, str]:
        """Press Ctrl-C, or send another signal: the exit code and stderr, in time."""
        start = time.monotonic()
        self.send(sig)
        code, stderr = self.wait()
        assert time.monotonic() - start < SECONDS_TO_END
        return code, stderr

    def wait(self) -> tuple[int, str]:
        """Wait for the end: the exit code and stderr."""
        _, stderr = self.popen.communicate(timeout=30)
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
