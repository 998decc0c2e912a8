"""A client that leaves: whoever comes next must not wait for its answer."""

from time import monotonic, sleep
from typing import Any

import httpx

from .check import check
from .client import Client, Unmet
from .metrics import running

GROUP = "leaving"
LIMITS = (2000, 450, 100)  # tokens; the first that fits the model's context
SOON_SECONDS = 2.0  # or four times what the request takes alone
SHORT: dict[str, Any] = {"prompt": "Say hello.", "token_limit": 4}
ADVICE = (
    "Wait for the client's leaving beside the answer (http.disconnect on receive()), "
    "and take the request out of the engine then."
)


@check(
    GROUP,
    "A client that leaves in mid-stream stops the work: the next request is answered soon.",
    ADVICE,
)
def left_stream(client: Client) -> None:
    """Leave after the first piece."""
    _check_leaving(client, "/stream")


@check(
    GROUP,
    "A client that leaves /generate stops the work: the next request is answered soon.",
    ADVICE,
)
def left_generate(client: Client) -> None:
    """Leave while the answer is being made."""
    _check_leaving(client, "/generate")


def _check_leaving(client: Client, path: str) -> None:
    began = monotonic()
    client.generate(**SHORT)
    alone = monotonic() - began
    soon = max(SOON_SECONDS, 4 * alone)
    others = running(client)  # whoever else is asking
    leaver = client.another()
    for limit in LIMITS:
        body = {"prompt": "Count from one to a thousand, in words.", "token_limit": limit}
        if (status := leaver.leave(path, body)) != 422:
            break
    leaver.close()
    if status not in (200, None):
        raise Unmet(f"{path} answered {status}.")
    try:
        client.ask("POST", "/generate", SHORT, soon).need(200)
    except httpx.TimeoutException:
        raise Unmet(
            f"a request that takes {alone:.1f} s alone was not answered within {soon:.1f} s."
        ) from None
    _check_running(client, others, soon)


def _check_running(client: Client, others: float, seconds: float) -> None:
    """Where the server says how many are running, wait until it is as many as before."""
    end = monotonic() + seconds
    while (count := running(client)) > others:
        if monotonic() > end:
            raise Unmet(f"/metrics says {count:g} running, {seconds:.1f} s after it had left.")
        sleep(0.05)


CHECKS = (left_stream, left_generate)
