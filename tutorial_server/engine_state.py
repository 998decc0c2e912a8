"""How things stand in the engine, for whoever looks at it from outside."""

from dataclasses import dataclass
from typing import Literal

Status = Literal["loading", "ready", "stopping", "stopped"]


@dataclass(frozen=True)
class EngineState:
    """One look at the engine; `error` says why a stopped one cannot be used.

    `cache_usage` is the part of the KV cache that is taken, 0 to 1, where the runner tells.
    """

    status: Status
    model: str | None
    waiting: int
    running: int
    error: str | None = None
    cache_usage: float = 0.0
