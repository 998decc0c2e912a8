"""Passed solutions on disk: written whole, checked from the file, the older one kept."""

import itertools
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from . import folder
from .raised import say
from .show import kind
from .standalone import standalone
from .task import Stage, Task, Words, Wrong
from .trial import Trial, try_out

FILE = Stage("file", "the saved file runs by itself", lambda _: None)
_count = itertools.count(1)


@dataclass(frozen=True)
class Saved:
    """Where a solution was saved, or None and why not; `note` is for the learner."""

    file: Path | None
    note: str


def save(task: Task, fn: Any) -> Saved:
    """Write a passed solution with all that it needs, if it also passes from the file.

    What was saved before is kept in `backups/`, and stays in place where the new one
    does not pass by itself.
    """
    try:
        return _save(task, fn)
    except OSError as error:
        return Saved(None, f"Not saved: {folder.short(folder.mine())} can't be written ({error}).")
    except Exception as error:  # a learner's code can be anything; their pass still stands
        return Saved(None, f"Not saved, which is our fault: {say(error)}")


def _save(task: Task, fn: Any) -> Saved:
    alone = standalone(fn, task.name)
    if alone.missing:
        return Saved(None, _leans_on(task, alone.missing))
    draft = folder.solutions() / f".{task.name}.{os.getpid()}.draft.py"
    folder.write(draft, alone.text)
    try:
        trial, _ = try_file(task, draft)
        if not trial:
            return Saved(None, _not_alone(trial))
        return Saved(_put(task, alone.text), _done(task))
    finally:
        draft.unlink(missing_ok=True)


def try_file(task: Task, file: Path) -> tuple[Trial, Any]:
    """Import a saved solution by itself and run its stages: `(trial, function or None)`."""
    found: list[Any] = []
    reading = replace(FILE, check=lambda _: found.append(_load(task, file)))
    trial = try_out(replace(task, stages=(reading,)), _load)
    if not trial:
        return trial, None
    trial = try_out(task, found[0])
    return trial, found[0] if trial else None


def _load(task: Task, file: Path) -> Any:
    """Run a file as a module of its own, and give what it defines under the task's name."""
    module = ModuleType(f"mine_{task.name}_{next(_count)}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module  # classes look their module up there
    try:
        exec(compile(file.read_bytes(), str(file), "exec"), vars(module))
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        raise Wrong(
            f"The file does not run by itself: {say(error)}", got=Words(say(error))
        ) from None
    found = getattr(module, task.name, None)
    if not callable(found):
        what = f"gives {task.name} as {kind(found)}, which is no function"
        defines = what if hasattr(module, task.name) else f"does not define {task.name}"
        raise Wrong(f"The file {defines}.")
    return found


def _put(task: Task, text: str) -> Path:
    """Move a proven text into place; the older one goes to the backups."""
    file = folder.solution_file(task.name)
    with folder.lock():
        if file.is_file():
            if folder.read(file) == text:
                return file
            folder.back_up(folder.read(file), file.name)
        folder.write(file, text)
    return file


def _done(task: Task) -> str:
    place = folder.short(folder.solution_file(task.name))
    return f"Saved as {place}, and checked again from there."


def _leans_on(task: Task, missing: dict[str, str]) -> str:
    if task.name in missing:
        return (
            f"Not saved, because the text of {task.name} was not found: define it with `def` at "
            "the top of a cell, not inside another function. (A decorator of yours needs "
            "functools.wraps.)"
        )
    things = "; ".join(f"`{name}` ({why})" for name, why in missing.items())
    return (
        f"Not saved, because {task.name} leans on what can't be saved with it: {things}. "
        "Pass it as an argument, or make it inside the function."
    )


def _not_alone(trial: Trial) -> str:
    return f"Not saved: it passes here, but not from a file of its own. {trial.why()}"
