"""A server beside other code: in a notebook, in a test."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

import uvicorn

from .serving import PatientServer, bind

START_SECONDS = 30.0
GRACE_SECONDS = 1.0


@dataclass(frozen=True)
class BackgroundServer:
    """A uvicorn on a thread of its own; `url` is where it listens."""

    url: str
    uvicorn: uvicorn.Server
    thread: threading.Thread

    def stop(self) -> None:
        """Let running answers end within a second, tell the others why not, and free the port."""
        self.uvicorn.should_exit = True
        self.thread.join()


def start_in_background(app: Any) -> BackgroundServer:
    """Serve an ASGI app on a free port of this machine, and return once it listens.

    uvicorn has an event loop of its own, on its own thread, so the notebook's stays free.
    Raises RuntimeError where the app does not start.
    """
    listener = bind("127.0.0.1", 0)
    engine = getattr(getattr(app, "state", None), "engine", None)
    engine = engine if hasattr(engine, "drain") else None
    config = uvicorn.Config(app, log_level="warning")
    server = PatientServer(config, engine, GRACE_SECONDS)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])), daemon=True)
    thread.start()
    end = monotonic() + START_SECONDS
    while not server.started:
        if not thread.is_alive() or monotonic() > end:
            raise RuntimeError("The app did not start; the log above says why.")
        sleep(0.005)
    return BackgroundServer(f"http://127.0.0.1:{listener.getsockname()[1]}", server, thread)


@contextmanager
def background(app: Any) -> Iterator[str]:
    """Serve an app for as long as a `with` block runs; gives its address."""
    server = start_in_background(app)
    try:
        yield server.url
    finally:
        server.stop()
