"""What a learner calls: check, hint, reveal, status and reset."""

import difflib
import inspect
from collections.abc import Callable
from typing import Any

from . import copies, folder, progress, registry
from .report import PASSED, UNKNOWN, UNWRITTEN, WRONG, Report, put, show_report
from .saved import FILE, save, try_file
from .show import kind
from .task import Task
from .trial import Trial, try_out

_NOTHING = object()
_LEVELS = ("the idea", "the shapes", "nearly the code")


def check(fn: Any = _NOTHING) -> Report:
    """Run a task's check on your function, show what it found, and save what has passed.

    The task is found by the function's name. Never raises, whatever the function does;
    each stage may take 20 s. The report is true if all stages passed.
    """
    report = _checked(fn)
    show_report(report)
    return report


def hint(thing: Any = _NOTHING) -> None:
    """Show the next hint for a task: the idea, then the shapes, then nearly the code."""
    task = _task_for(thing)
    if isinstance(task, str):
        put(task)
        return
    level = _remember(progress.next_hint, task.name) or 1
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


def check_saved() -> list[Report]:
    """Check every saved solution again from its file, for a terminal."""
    tasks = [t for t in registry.all_tasks() if folder.solution_file(t.name).is_file()]
    return [_report(t, try_file(t, folder.solution_file(t.name))[0], None) for t in tasks]


def status_text() -> str:
    """All tasks, lesson by lesson, with their state, minutes and difficulty."""
    blocks = [_lesson_text(lesson) for lesson in registry.LESSONS if lesson.tasks()]
    tasks = registry.all_tasks()
    left = [task for task in tasks if progress.state(task.name) != PASSED]
    minutes = sum(task.minutes for task in left)
    total = f"{len(tasks) - len(left)} of {len(tasks)} passed"
    return "\n\n".join([*blocks, total + (f", about {minutes} minutes left" if left else "")])


def _lesson_text(lesson: registry.Lesson) -> str:
    lines = [f"{lesson.number:02}  {lesson.title}"]
    for task in lesson.tasks():
        sort = "bug hunt" if task.hunt else task.difficulty
        state = progress.state(task.name)
        lines.append(f"    {task.name:<24}{state:<14}{task.minutes:>3} min   {sort}")
    return "\n".join(lines)


def _checked(fn: Any) -> Report:
    task = _task_for(fn, by_name=False)
    if isinstance(task, str):
        return Report("", UNKNOWN, task)
    try:
        return _report(task, try_out(task, fn), fn)
    except Exception as error:
        sorry = f"The check itself failed, which is our fault: {type(error).__name__}: {error}"
        return Report(task.name, UNKNOWN, sorry)


def _report(task: Task, trial: Trial, fn: Any) -> Report:
    """Turn a trial into a report; `fn` is what to save if it passed, or None."""
    if trial.unwritten:
        return _unwritten(task, trial)
    stages = _marked(task, trial)
    count = f"{trial.passed} of {len(task.stages)} stages passed"
    if not trial:
        _remember(progress.tried, task.name)
        verdict = "not mended yet" if task.hunt else "not right yet"
        return Report(task.name, WRONG, f"{task.name}: {verdict}, {count}", stages, trial.failure)
    headline = f"{task.name}: passed, all {len(stages)} stages"
    if fn is None:
        return Report(task.name, PASSED, headline, stages)
    return _kept(task, fn, Report(task.name, PASSED, headline, stages))


def _marked(task: Task, trial: Trial) -> tuple[tuple[str, str, str], ...]:
    """Put a mark before each stage; reading a saved file is one where it failed."""
    rows = [(stage.name, stage.about) for stage in task.stages]
    if trial.failure and trial.failure.stage == "file":
        rows.insert(0, ("file", FILE))
    marks = ["ok"] * trial.passed + ([] if trial else ["WRONG"])
    marks += ["not reached"] * (len(rows) - len(marks))
    return tuple((mark, *row) for mark, row in zip(marks, rows, strict=True))


def _kept(task: Task, fn: Any, report: Report) -> Report:
    """Save what passed, and add what became of it to the report."""
    if str(getattr(fn, "__module__", "")).startswith("tutorial_server."):
        note, file = "This is the package's own function, so nothing was saved as yours.", None
    else:
        saved = save(task, fn)
        note, file = saved.note, saved.file
        _remember(progress.passed, task.name)
    return Report(report.name, PASSED, report.headline, report.stages, None, (note,), file)


def _unwritten(task: Task, trial: Trial) -> Report:
    names = ", ".join(stage.name for stage in task.stages)
    if trial.unwritten == task.name:
        todo = f"Write its body above, run that cell, then this one. It is checked for: {names}."
    else:
        todo = f"It calls {trial.unwritten}, which is not written yet."
    return Report(task.name, UNWRITTEN, f"{task.name}: not written yet", notes=(todo,))


def _remember(note: Callable[[str], Any], name: str) -> Any:
    """Write progress down if that can be done; a full disk must not stop a check."""
    try:
        return note(name)
    except OSError:
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
    said = f"There is no task called {name}." if name.isidentifier() else "That has no name."
    if close:
        return f"{said} Did you mean {close[0]}? A task is found by its function's name."
    return f"{said} A task is found by its function's name; status() lists them all."
