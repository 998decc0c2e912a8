"""A server as a process of its own, for as long as somebody measures it."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from types import FrameType
from typing import IO

import httpx

from .config import Settings
from .errors import TutorialServerError

PREFIX = "TUTORIAL_SERVER_"
START_SECONDS = 600.0  # a large model takes its time
END_SECONDS = 10.0
SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
LISTENING = re.compile(r"^Listening on (http://\S+)", re.MULTILINE)


@contextmanager
def server_process(settings: Settings) -> Iterator[str]:
    """Run `tutorial-server serve` on a free port of this machine; gives its address.

    It has the model and the room for it of `settings`, and defaults for everything else.
    It is ready when the block begins, and ended when the block does, however that ends:
    SIGTERM and SIGHUP end the block too.
    Raises TutorialServerError where it does not start, in the server's own words.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tutorial_server", "serve", *_flags(settings)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={name: value for name, value in os.environ.items() if PREFIX not in name},
            start_new_session=True,  # Ctrl-C reaches us alone, and we end it
        )
        heeded = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
        before = {number: signal.signal(number, _leave) for number in heeded}
        try:
            yield _wait_until_ready(process, log)
        finally:
            _end(process)
            for number, handler in before.items():
                signal.signal(number, handler)


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _flags(settings: Settings) -> list[str]:
    flags = ["--host", "127.0.0.1", "--port", "0", "--cache", str(settings.cache)]
    for name in ("model", "device", "dtype", "kv_cache_gb", "max_running"):
        if (value := getattr(settings, name)) is not None:
            flags += [f"--{name.replace('_', '-')}", str(value)]
    return flags


def _wait_until_ready(process: subprocess.Popen[bytes], log: IO[str]) -> str:
    end = monotonic() + START_SECONDS
    while monotonic() < end and process.poll() is None:
        found = LISTENING.search(_read(log))
        if found and _is_ready(found[1]):
            return found[1]
        sleep(0.1)
    lines = _read(log).strip().splitlines() or ["it said nothing"]
    raise TutorialServerError(f"The server did not start: {lines[-1]}")


def _read(log: IO[str]) -> str:
    """Read all that was written up to now, and leave the place of writing alone."""
    size = os.fstat(log.fileno()).st_size
    return os.pread(log.fileno(), size, 0).decode(errors="replace")


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/ready", timeout=5.0, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
