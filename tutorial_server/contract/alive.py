"""Is anybody there: what answers without a model."""

from .check import check
from .client import Client, Unmet

GROUP = "the server"


@check(
    GROUP,
    'GET /health answers 200 with {"status": "ok"}.',
    "Answer /health from an `async def` that only returns; it needs neither model nor queue.",
)
def health(client: Client) -> None:
    """Look at /health."""
    reply = client.get("/health").need(200)
    if reply.object().get("status") != "ok":
        raise Unmet(str(reply))


@check(
    GROUP,
    'GET /ready answers 200 with {"status": "ready", "model": …} once the model has answered.',
    "Answer /ready with 503 while the model loads, and with 200 and the model's name after.",
)
def ready(client: Client) -> None:
    """Look at /ready."""
    reply = client.get("/ready").need(200)
    found = reply.object()
    if found.get("status") != "ready" or not isinstance(found.get("model"), str):
        raise Unmet(str(reply))


@check(
    GROUP,
    "A path that is not there answers 404, as JSON with `detail`.",
    "Leave unknown paths to the framework, or give its 404 handler a JSON body.",
)
def unknown_path(client: Client) -> None:
    """Ask for what is not there."""
    reply = client.get("/no/such/path").need(404)
    if "detail" not in reply.object():
        raise Unmet(f"no `detail`: {reply}")


@check(
    GROUP,
    "GET /generate answers 405, as JSON with `detail`.",
    "Route /generate for POST alone.",
)
def wrong_method(client: Client) -> None:
    """Ask in the wrong way."""
    reply = client.get("/generate").need(405)
    if "detail" not in reply.object():
        raise Unmet(f"no `detail`: {reply}")


CHECKS = (health, ready, unknown_path, wrong_method)
