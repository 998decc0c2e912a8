"""The bearer key, where one was given."""

from .check import check
from .client import Client, NotHere, Unmet

GROUP = "the key"
BODY = {"prompt": "hello", "token_limit": 1}


def _with_key(client: Client, api_key: str | None) -> Client:
    return Client(client.url, api_key, client.left())


@check(
    GROUP,
    "Without the key, or with a wrong one, /generate and /stream answer 401, as JSON.",
    "Compare the Authorization header before the body is read; hmac.compare_digest does it.",
)
def key_needed(client: Client) -> None:
    """Ask without it."""
    if client.api_key is None:
        raise NotHere("no key was given (--api-key)")
    for wrong in (None, client.api_key + "x"):
        other = _with_key(client, wrong)
        try:
            for route in ("/generate", "/stream"):
                reply = other.post(route, BODY)
                if reply.status != 401 or not reply.object().get("detail"):
                    raise Unmet(f"{route} {'with a wrong' if wrong else 'without a'} key: {reply}")
        finally:
            other.close()


@check(
    GROUP,
    "/health answers without the key: whoever watches the server has none.",
    "Let /health pass before the key is looked at.",
)
def health_needs_no_key(client: Client) -> None:
    """Look at /health without it."""
    if client.api_key is None:
        raise NotHere("no key was given (--api-key)")
    other = _with_key(client, None)
    try:
        other.get("/health").need(200)
    finally:
        other.close()


CHECKS = (key_needed, health_needs_no_key)
