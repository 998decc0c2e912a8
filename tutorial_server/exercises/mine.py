"""The learner's own steps for `serve --mine`, each proven again before it serves."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from . import folder, registry
from .raised import say
from .saved import try_file

STEPS = ("render_chat", "prefill", "decode", "select_next_token", "new_text", "sse_event")
YOURS, REFERENCE = "yours", "reference"


@dataclass(frozen=True)
class MineStep:
    """One step of the server: the learner's function, or None and why the package's serves."""

    name: str
    function: Callable[..., Any] | None
    origin: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.origin}" + (f" ({self.reason})" if self.reason else "")


def load_mine() -> dict[str, MineStep]:
    """Load each step from its saved solution, if that is there and still passes its check."""
    return {name: _load(name) for name in STEPS}


def saved_besides(steps: Collection[str]) -> list[str]:
    """Name the tasks that are solved too, though the server has no such step to swap."""
    names = [task.name for task in registry.all_tasks()]
    return [name for name in names if name not in steps and folder.solution_file(name).is_file()]


def _load(name: str) -> MineStep:
    file = folder.solution_file(name)
    task = registry.find(name)
    if task is None or not file.is_file():
        return MineStep(name, None, REFERENCE, "none of yours is saved")
    try:
        trial, function = try_file(task, file)
    except Exception as error:
        return MineStep(name, None, REFERENCE, f"yours could not be checked: {say(error)}")
    if function is None:
        return MineStep(name, None, REFERENCE, f"yours no longer passes: {trial.why()}")
    return MineStep(name, function, YOURS)
