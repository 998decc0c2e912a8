"""An optional key: who has it may ask."""

import hmac
import logging
from collections.abc import Callable, Collection
from ipaddress import ip_address

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from .config import Settings

CHALLENGE = {"WWW-Authenticate": "Bearer"}
NO_KEY = "This server wants its key in the header Authorization, as: Bearer KEY."
WRONG_KEY = "The key in the header Authorization is not this server's."
log = logging.getLogger("tutorial_server")


class BearerKey:
    """Lets a request pass that carries the key, and answers every other before its body is read.

    What is not named in `open_paths` is closed, addresses that do not exist included.
    `refuse(path, sentence)` makes the 401. Source: RFC 6750, section 2.1.
    """

    def __init__(
        self,
        app: ASGIApp,
        key: str,
        open_paths: Collection[str],
        refuse: Callable[[str, str], Response],
    ):
        self._app = app
        self._key = key.encode()
        self._open_paths = frozenset(open_paths)
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        fault = None
        if scope["type"] == "http" and scope["path"] not in self._open_paths:
            fault = self._fault(scope)
        if fault is None:
            await self._app(scope, receive, send)
        else:
            await self._refuse(scope["path"], fault)(scope, receive, send)

    def _fault(self, scope: Scope) -> str | None:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) != 1:
            return NO_KEY
        scheme, _, key = given[0].partition(b" ")
        if scheme.lower() != b"bearer":
            return NO_KEY
        # As bytes, and in a time that does not tell how much of it was right.
        return None if hmac.compare_digest(key.strip(b" "), self._key) else WRONG_KEY


def warn_if_open(settings: Settings) -> None:
    """Say so where others than this machine can reach a server that asks for no key."""
    if settings.api_key is None and not _is_loopback(settings.host):
        log.warning(
            "%s is reachable from other machines, and no key is asked for: whoever reaches it "
            "may use the model; set TUTORIAL_SERVER_API_KEY",
            settings.host,
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:  # another name, or none: that is all addresses
        return False
