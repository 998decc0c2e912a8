"""Who asks what of a server: drawn from a seed, so that two servers can be asked the same."""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

WORDS = "the river and a small boat went to some old town where people had time for good bread"
LEAVES_WITHIN = 0.05  # seconds after the last piece that a leaver reads


@dataclass(frozen=True)
class LoadPlan:
    """Who asks what, drawn from `seed` alone, and how long it may take in all.

    `clients` ask one question after the other until `requests` have been sent or `seconds`
    have passed; `patience` is how long each waits for a whole answer. `leave` is the share
    of requests whose client goes away in mid-answer. Prompts have about `prompt_tokens`
    tokens, a word each; it and `token_limit` are (least, most). Raises ValueError.
    """

    url: str
    clients: int = 8
    requests: int = 100
    seconds: float = 300.0
    leave: float = 0.0
    prompt_tokens: tuple[int, int] = (8, 256)
    token_limit: tuple[int, int] = (8, 64)
    seed: int = 0
    patience: float = 300.0
    api_key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _check_url(self.url)
        for name in ("clients", "requests"):
            _expect(getattr(self, name) >= 1, f"{name} should be at least 1")
        for name in ("seconds", "patience"):
            value = getattr(self, name)
            _expect(0 < value < math.inf, f"{name} should be more than 0, and finite")
        _expect(0 <= self.leave <= 1, "leave should be in 0 to 1")
        for name in ("prompt_tokens", "token_limit"):
            least, most = getattr(self, name)
            _expect(1 <= least <= most, f"{name} should be two counts from 1 on, the lesser first")
        key = self.api_key or ""
        _expect(key.isascii() and key.isprintable(), "api_key should be printable ASCII")

    def questions(self) -> Iterator["Question"]:
        """Draw the questions, one after the other: the same for the same plan."""
        draw = random.Random(self.seed)
        words = WORDS.split()
        for number in range(self.requests):
            count = draw.randint(*self.prompt_tokens)
            limit = draw.randint(*self.token_limit)
            prompt = " ".join(draw.choices(words, k=count))
            moment = draw.randrange(limit), draw.uniform(0, LEAVES_WITHIN)
            leaves = math.floor((number + 1) * self.leave) > math.floor(number * self.leave)
            yield Question(prompt, limit, *moment) if leaves else Question(prompt, limit)


@dataclass(frozen=True)
class Question:
    """One request: `leave_after` so many pieces of text its client waits a while and goes."""

    prompt: str
    token_limit: int
    leave_after: int | None = None
    leave_pause: float = 0.0  # seconds


def _check_url(url: str) -> None:
    try:
        parsed = urlsplit(url)
        good = parsed.scheme in ("http", "https") and parsed.hostname and parsed.port != 0
    except ValueError:  # a port or an IPv6 address that cannot be
        good = False
    _expect(bool(good), f"url should be an address such as http://127.0.0.1:8000, not {url!r}")


def _expect(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)
