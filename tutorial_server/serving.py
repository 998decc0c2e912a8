"""The server as a process: bind, run, leave."""

import asyncio
import logging
import math
import os
import socket
from time import monotonic
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary, ref

import uvicorn

from .api import create_app
from .auth import warn_if_open
from .config import Settings
from .engine import Engine
from .errors import TutorialServerError
from .steps import Steps

HANG_UP_SECONDS = 0.5  # for last events to reach their clients
LINGER_SECONDS = 0.1  # for who has connected before the port closed to send a request
POLL_SECONDS = 0.02
SILENT_SECONDS = 30.0  # for a connection to send a request's head
QUIET_PATHS = ("/metrics", "/ready", "/health")  # asked again and again by pages and dashboards


def is_worth_a_line(record: logging.LogRecord) -> bool:
    """Keep polls that found nothing new out of the access log: they would hide the requests."""
    if not isinstance(record.args, tuple) or len(record.args) != 5:
        return True
    _, method, path, _, status = record.args  # as uvicorn gives them
    expected = (200, 503) if path == "/ready" else (200,)
    return not (method == "GET" and path in QUIET_PATHS and status in expected)


def bind(host: str, port: int) -> socket.socket:
    """Take a port before the model loads, so that a taken one is known at once.

    Who connects from now on waits until the server takes up its work. Port 0 takes a
    free one. Raises TutorialServerError.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address, family=family)
        # For all connections: asyncio does not set it here, and a small piece would wait for
        # the client to confirm the one before, up to 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except (OSError, ValueError) as error:  # ValueError: a name that cannot be looked up at all
        reason = str(getattr(error, "strerror", None) or error).partition(" (")[0]
        raise TutorialServerError(
            f"Cannot listen on {host} port {port} ({reason}); "
            "choose another with --host and --port."
        ) from None
    return listener


class PatientServer(uvicorn.Server):
    """Leaves in good order: who is here is answered within `grace` seconds, who comes is told.

    uvicorn alone closes its port at once, cancels what still runs after its own timeout, and
    each stream breaks off without a last event and leaves a traceback. Here, when
    `should_exit` is set or a signal comes, the port stays open while the engine drains:
    new requests get a 503 in words. After the grace the engine ends what is left, in words
    too. An app without an engine gets the grace alone.
    """

    def __init__(self, config: uvicorn.Config, engine: Engine | None, grace: float):
        # The last resort, cancelling, comes after everything else has been tried.
        config.timeout_graceful_shutdown = math.ceil(grace + 2 * HANG_UP_SECONDS)
        super().__init__(config)
        self._engine = engine
        self._grace = grace
        self._heard: WeakKeyDictionary[Any, tuple[Any, float]] = WeakKeyDictionary()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to shut down; who presses Ctrl-C again does not want to wait."""
        if self.should_exit:
            os._exit(128 + sig)
        super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        """Do what uvicorn does ten times a second; once a second, look who says nothing."""
        if counter % 10 == 0:
            self._close_silent(monotonic())
        return await super().on_tick(counter)

    def _close_silent(self, now: float) -> None:
        """Close connections that have been open for long without a whole request's head.

        uvicorn limits how long one stays open after an answer, until the next byte comes.
        """
        for connection in list(self.server_state.connections):
            cycle = getattr(connection, "cycle", None)  # its latest request, with the answer
            before, since = self._heard.get(connection, (None, now))
            asks_anew = cycle is not None and (before is None or before() is not cycle)
            if asks_anew or (cycle is not None and not cycle.response_complete):
                since = now
            elif now - since > SILENT_SECONDS:
                connection.transport.close()
            # A weak one, since a cycle refers to its connection, which would never go.
            self._heard[connection] = (None if cycle is None else ref(cycle), since)

    async def main_loop(self) -> None:
        """Serve until told to stop, then until nobody is left or the grace is over."""
        await super().main_loop()
        end = asyncio.get_running_loop().time() + self._grace
        if self._engine is not None:
            await self._drain(self._engine, end)
        await asyncio.sleep(0)  # who has connected already is let in
        for server in self.servers:
            server.close()
        self._set_time(max(0.0, end - asyncio.get_running_loop().time()))
        await asyncio.sleep(LINGER_SECONDS)

    async def _drain(self, engine: Engine, end: float) -> None:
        logging.getLogger("uvicorn.error").info("Shutting down: running answers end first")
        engine.drain()
        # A client that would send its next request here is to see that nobody reads it.
        self.server_state.default_headers.append((b"connection", b"close"))
        while (state := engine.state()).waiting + state.running:
            if asyncio.get_running_loop().time() >= end:
                break
            await asyncio.sleep(POLL_SECONDS)

    def _set_time(self, seconds: float) -> None:
        """Set the engine and the clients their time, counted from now."""
        loop = asyncio.get_running_loop()
        if self._engine is not None:
            loop.call_later(seconds, self._engine.stop, 0.0)
        loop.call_later(seconds + HANG_UP_SECONDS, self._hang_up)

    def _hang_up(self) -> None:
        """Leave clients that have not sent their whole body, or do not read."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def learner_steps() -> Steps:
    """Take the learner's own steps where they pass their checks, and say whose each one is."""
    from .exercises import load_mine, saved_besides

    mine = load_mine()
    for step in mine.values():
        print(step, flush=True)
    if others := saved_besides(mine):
        print(f"not among the server's {len(mine)} steps: {', '.join(others)}", flush=True)
    return Steps(**{name: step.function for name, step in mine.items() if step.function})


def serve(settings: Settings, mine: bool = False) -> int:
    """Run the server until it is told to stop; with `mine`, with the learner's own code.

    Raises TutorialServerError if it cannot serve.
    """
    steps = learner_steps() if mine else None
    listener = bind(settings.host, settings.port)
    warn_if_open(settings)
    app = create_app(settings, steps)
    engine = app.state.engine
    config = uvicorn.Config(app)
    logging.getLogger("uvicorn.access").addFilter(is_worth_a_line)
    server = PatientServer(config, engine, settings.shutdown_seconds)
    engine.on_stopped = lambda: setattr(server, "should_exit", True)
    print(f"Listening on {_url(listener)} while the model loads.", flush=True)
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:
        # The engine's thread may be inside torch, and Python's own exit would abort it there.
        os._exit(130)
    if error := engine.state().error:
        raise TutorialServerError(error)
    return 0


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
