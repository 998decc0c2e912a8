"""The server as a process: bind, run, leave."""

import socket

import uvicorn

from .api import create_app
from .config import Settings
from .errors import TutorialServerError
from .steps import Steps


def bind(host: str, port: int) -> socket.socket:
    """Take a port before the model loads, so that a taken one is known at once.

    Port 0 takes a free one. Raises TutorialServerError.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        raise TutorialServerError(
            f"Cannot listen on {host} port {port} ({error.strerror}); "
            "choose another with --host and --port."
        ) from None
    return listener


def serve(settings: Settings, steps: Steps | None = None) -> int:
    """Run the server until it is told to stop. Raises TutorialServerError if it cannot serve."""
    listener = bind(settings.host, settings.port)
    app = create_app(settings, steps)
    engine = app.state.engine
    server = uvicorn.Server(
        uvicorn.Config(app, timeout_graceful_shutdown=settings.shutdown_seconds)
    )
    engine.on_stopped = lambda: setattr(server, "should_exit", True)
    host, port = listener.getsockname()[:2]
    print(f"Listening on http://{host}:{port} (try /docs); the model is loading.", flush=True)
    server.run(sockets=[listener])
    if error := engine.state().error:
        raise TutorialServerError(error)
    return 0
