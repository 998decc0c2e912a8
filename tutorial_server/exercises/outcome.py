"""From a trial to the report that a learner reads."""

from .report import PASSED, UNKNOWN, UNWRITTEN, WRONG, Report
from .saved import FILE
from .task import Task
from .trial import Trial


def report_of(task: Task, trial: Trial) -> Report:
    """Say how far a function came, stage by stage."""
    if trial.unwritten:
        return _unwritten(task, trial.unwritten)
    stages = _marked(task, trial)
    if trial:
        return Report(task.name, PASSED, f"{task.name}: passed, all {len(stages)} stages", stages)
    verdict = "not mended yet" if task.hunt else "not right yet"
    headline = f"{task.name}: {verdict}, {trial.passed} of {len(task.stages)} stages passed"
    return Report(task.name, WRONG, headline, stages, trial.failure)


def unknown(said: str, name: str = "") -> Report:
    """A report about something that could not be checked."""
    return Report(name, UNKNOWN, said)


def _unwritten(task: Task, stub: str) -> Report:
    names = ", ".join(stage.name for stage in task.stages)
    if stub == task.name:
        todo = f"Write its body above, run that cell, then this one. It is checked for: {names}."
    else:
        todo = f"It calls {stub}, which is not written yet."
    return Report(task.name, UNWRITTEN, f"{task.name}: not written yet", notes=(todo,))


def _marked(task: Task, trial: Trial) -> tuple[tuple[str, str, str], ...]:
    """Put a mark before each stage; reading a saved file is one where that failed."""
    rows = [(stage.name, stage.about) for stage in task.stages]
    if trial.failure and trial.failure.stage == FILE.name:
        rows.insert(0, (FILE.name, FILE.about))
    marks = ["ok"] * trial.passed + ([] if trial else ["WRONG"])
    marks += ["not reached"] * (len(rows) - len(marks))
    return tuple((mark, *row) for mark, row in zip(marks, rows, strict=True))
