"""What learners write: wrong solutions with the fault that the hint must name, and right ones.

`wrongNN.py` holds those of lesson NN, each a function under `@wrong(task, fault)` or
`@right(task)`. `fault` is a regular expression that its hint must match, and that the hint
of no other fault of the same task may match.
"""

import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

WRONG: list["Solution"] = []
RIGHT: list["Solution"] = []


@dataclass(frozen=True)
class Solution:
    task: str
    function: Any
    fault: str = ""

    def __str__(self) -> str:
        return f"{self.task}-{self.function.__name__}"


def wrong(task: str, fault: str) -> Callable[[Any], Any]:
    """Declare a wrong solution; `fault` must appear in its hint."""
    re.compile(fault)
    return _declare(WRONG, task, fault)


def right(task: str) -> Callable[[Any], Any]:
    """Declare a right solution that is written differently from the package's."""
    return _declare(RIGHT, task, "")


def _declare(where: list[Solution], task: str, fault: str) -> Callable[[Any], Any]:
    def declare(function: Any) -> Any:
        where.append(Solution(task, function, fault))
        return function

    return declare


def load() -> None:
    """Import the files of all lessons."""
    for number in range(1, 10):
        if importlib.util.find_spec(f"wrong{number:02}"):
            importlib.import_module(f"wrong{number:02}")


load()
