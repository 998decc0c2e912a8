"""The server as a process: bind, run, leave."""

import asyncio
import os
import socket
from types import FrameType

import uvicorn

from .api import create_app
from .config import Settings
from .engine import Engine
from .errors import TutorialServerError
from .steps import Steps

HANG_UP_SECONDS = 0.5  # for last events to reach their clients


def bind(host: str, port: int) -> socket.socket:
    """Take a port before the model loads, so that a taken one is known at once.

    Who connects from now on waits until the server takes up its work. Port 0 takes a
    free one. Raises TutorialServerError.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address, family=family)
    except (OSError, ValueError) as error:  # ValueError: a name that cannot be looked up at all
        reason = str(getattr(error, "strerror", None) or error).partition(" (")[0]
        raise TutorialServerError(
            f"Cannot listen on {host} port {port} ({reason}); "
            "choose another with --host and --port."
        ) from None
    return listener


class PatientServer(uvicorn.Server):
    """After Ctrl-C, gives running answers `grace` seconds before the engine ends them.

    uvicorn alone would cancel their tasks: a stream would break off without its last
    event, and each task leave a traceback.
    """

    def __init__(self, config: uvicorn.Config, engine: Engine, grace: float):
        super().__init__(config)
        self._engine = engine
        self._grace = grace

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to shut down; who presses Ctrl-C again does not want to wait."""
        if self.should_exit:
            os._exit(128 + sig)
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down as uvicorn does, and set the engine and the clients their time."""
        loop = asyncio.get_running_loop()
        loop.call_later(self._grace, self._engine.stop, 0.0)
        loop.call_later(self._grace + HANG_UP_SECONDS, self._hang_up)
        await super().shutdown(sockets)

    def _hang_up(self) -> None:
        """Leave clients that have not sent their whole body, or do not read."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def learner_steps() -> Steps:
    """Take the learner's own steps where they pass their checks, and say whose each one is."""
    from .exercises import load_mine

    mine = load_mine()
    for step in mine.values():
        print(step, flush=True)
    return Steps(**{name: step.function for name, step in mine.items() if step.function})


def serve(settings: Settings, mine: bool = False) -> int:
    """Run the server until it is told to stop; with `mine`, with the learner's own code.

    Raises TutorialServerError if it cannot serve.
    """
    steps = learner_steps() if mine else None
    listener = bind(settings.host, settings.port)
    app = create_app(settings, steps)
    engine = app.state.engine
    config = uvicorn.Config(app, timeout_graceful_shutdown=settings.shutdown_seconds + 1)
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
