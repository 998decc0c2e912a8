"""The chat page at `/`: a few files of the package, served as they are."""

from collections.abc import Awaitable, Callable
from importlib.resources import files

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
# Nothing but our own files may run, load or be asked, and no script may write markup
# (trusted types): what a model says stays text even where the page had a fault.
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
)
HEADERS = {
    "Cache-Control": "no-cache",  # after an update, all files are of one version
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def mount_page(app: FastAPI) -> None:
    """Add the page to an app: `/` is chat.html, `/page/NAME` each file that it needs.

    The page speaks OpenAI's route for its answers and reads `/ready` and `/metrics`.
    """
    for path, name in page_routes().items():
        app.add_route(path, _sender(name), methods=["GET"], include_in_schema=False)


def page_routes() -> dict[str, str]:
    """Give the file behind each address; other addresses have none, whatever they spell."""
    names = sorted(file.name for file in files(__package__).iterdir())
    kept = [name for name in names if name.rpartition(".")[2] in TYPES]
    return {"/": "chat.html"} | {f"/page/{name}": name for name in kept if name != "chat.html"}


def _sender(name: str) -> Callable[[Request], Awaitable[Response]]:
    body = files(__package__).joinpath(name).read_bytes()
    headers = HEADERS | {"Content-Type": TYPES[name.rpartition(".")[2]]}

    async def send(request: Request) -> Response:
        return Response(body, headers=headers)

    return send
