"""One check of the contract, and what came of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard

from .client import Client


@dataclass(frozen=True)
class Check:
    """Something that a client may rely on; `run` raises Unmet or NotHere where it cannot."""

    name: str
    group: str
    expects: str
    todo: str
    run: Callable[[Client], None]


@dataclass(frozen=True)
class Result:
    """How a check ended, in words; `came` and `todo` are empty where it passed."""

    name: str
    group: str
    outcome: Literal["passed", "failed", "skipped"]
    expects: str
    came: str = ""
    todo: str = ""
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether nothing is to be done."""
        return self.outcome != "failed"

    def __str__(self) -> str:
        first = f"{self.outcome:8} {self.name}"
        if self.outcome == "passed":
            return f"{first}: {self.expects}"
        if self.outcome == "skipped":
            return f"{first}: {_shown(self.came)}"
        lines = (("expected", self.expects), ("came", _shown(self.came)), ("to do", self.todo))
        return "\n".join([first.upper(), *(f"    {label:9} {text}" for label, text in lines)])


def _shown(words: str) -> str:
    """Write what a terminal would obey, as other than text: a server may have said it."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in words)


def check(group: str, expects: str, todo: str) -> Callable[[Callable[[Client], None]], Check]:
    """Make a check of a function, named after it."""

    def make(run: Callable[[Client], None]) -> Check:
        return Check(run.__name__.replace("_", "-"), group, expects, todo, run)

    return make


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether a JSON value is a number that can be counted with; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def is_count(value: Any) -> TypeGuard[int]:
    """Whether a JSON value is a whole number from 0 on."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
