"""What a learner calls: check, hint, reveal, status and reset."""

import difflib
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from . import copies, progress, registry
from .kernel import put
from .outcome import report_of, unknown
from .overview import status_text
from .raised import say
from .report import WRONG, Report
from .saved import save
from .show import kind
from .task import Task
from .trial import try_out

_NOTHING = object()
_LEVELS = ("the idea", "the shapes", "nearly the code")


def check(fn: Any = _NOTHING) -> Report:
    """Run a task's check on your function, show what it found, and save what has passed.

    The task is found by the function's name. Never raises, whatever the function does;
    each stage may take 20 s. The report is true if all stages passed.
    """
    report = _checked(fn)
    if astray := _quietly(copies.astray):
        report = replace(report, notes=(*report.notes, astray))
    report.show()
    return report


def hint(thing: Any = _NOTHING) -> None:
    """Show the next hint for a task: the idea, then the shapes, then nearly the code."""
    task = _task_for(thing)
    if isinstance(task, str):
        put(task)
        return
    level = _quietly(progress.next_hint, task.name) or 1
    more = f"run it again for {_LEVELS[level]}" if level < 3 else "reveal() shows the solution"
    head = f"{task.name}, hint {level} of 3: {_LEVELS[level - 1]}"
    body = task.hints[level - 1]
    put(f"{head}\n\n{body}\n\n({more})", markdown=f"**{head}**\n\n{body}\n\n*({more})*")


def reveal(thing: Any = _NOTHING) -> None:
    """Show the package's own solution of a task."""
    task = _task_for(thing)
    if isinstance(task, str):
        put(task)
        return
    parts = [inspect.getsource(inspect.unwrap(part)) for part in (*task.helpers, task.solution)]
    source = "\n\n".join(part.strip() for part in parts)
    head = f"{task.name}, as in {task.solution.__module__}"
    put(f"{head}\n\n{source}", markdown=f"**{head}**\n\n```python\n{source}\n```")


def status() -> None:
    """Show every task of the course, and how far you have come with it."""
    put(status_text(), html=f"<pre>{status_text()}</pre>")


def reset(thing: Any = _NOTHING) -> None:
    """Begin one task anew: its cell gets the stub back, and what you wrote is kept aside."""
    task = _task_for(thing)
    if isinstance(task, str):
        put(task)
        return
    try:
        put(copies.restore(task, None if isinstance(thing, str) else thing))
    except (OSError, ValueError, KeyError) as error:
        put(f"Nothing was reset: {type(error).__name__}: {error}")


def _checked(fn: Any) -> Report:
    try:
        task = _task_for(fn, by_name=False)
        if isinstance(task, str):
            return unknown(task)
        return _remembered(task, fn, report_of(task, try_out(task, fn)))
    except Exception as error:
        return unknown(f"The check itself failed, which is our fault: {say(error)}")


def _remembered(task: Task, fn: Any, report: Report) -> Report:
    """Save what passed, note what was tried, and say what became of it."""
    if report.state == WRONG and not (task.hunt and copies.is_untouched(task, fn)):
        _quietly(progress.tried, task.name)
    if not report:
        return report
    if str(getattr(fn, "__module__", "")).startswith("tutorial_server."):
        note = "This is the package's own function, so nothing was saved as yours."
        return replace(report, notes=(note,))
    _quietly(progress.passed, task.name)
    saved = save(task, fn)
    return replace(report, notes=(saved.note,), saved=saved.file)


def _quietly(note: Callable[..., Any], *names: str) -> Any:
    """Do what is nice to have; a full disk or a folder without access must not stop a check."""
    try:
        return note(*names)
    except (OSError, ValueError, KeyError):
        return None


def _task_for(thing: Any, by_name: bool = True) -> Task | str:
    """Find the task that a function (or its name) belongs to, or say what is the matter."""
    call = "check(pad_left)"
    if thing is _NOTHING:
        return f"Which task? Give the function itself, for example {call}."
    if isinstance(thing, str) and not by_name:
        return f"Give the function itself, without quotes: check({thing})."
    if not isinstance(thing, str) and not callable(thing):
        return (
            f"That is {kind(thing)}, not a function. Give the function itself, without "
            f"calling it: {call}, not check(pad_left(…))."
        )
    name = thing if isinstance(thing, str) else getattr(thing, "__name__", "")
    return registry.find(str(name)) or _no_task(str(name))


def _no_task(name: str) -> str:
    names = [task.name for task in registry.all_tasks()]
    close = difflib.get_close_matches(name, names, n=1)
    if not name.isidentifier():
        return (
            "That has no name of its own, and a task is found by its function's name: write "
            "`def`, the task's name, and in it what you have."
        )
    said = f"There is no task called {name}."
    if close:
        return f"{said} Did you mean {close[0]}? A task is found by its function's name."
    return f"{said} A task is found by its function's name; status() lists them all."
