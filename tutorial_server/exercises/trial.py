"""Running a function through a task's stages, whatever it does."""

import inspect
from dataclasses import dataclass
from typing import Any

from .guard import Guard
from .limited import ENDED, RUNNING, Printed, run_limited
from .raised import about, learners_line, say, stub_met
from .report import Failure
from .show import show, show_named
from .task import Stage, Task, Wrong

LIMIT_S = 20.0  # for one stage
_UNREADABLE = (
    "The check could not make sense of what your function gave back. Is it what was asked?"
)


@dataclass(frozen=True)
class Trial:
    """How far a function came: stages passed, then the failure or the stub's name."""

    passed: int
    failure: Failure | None = None
    unwritten: str = ""

    def __bool__(self) -> bool:
        return self.failure is None and not self.unwritten

    def why(self) -> str:
        """Say in one sentence what is missing."""
        return str(self.failure) if self.failure else f"{self.unwritten} is not written yet."


def try_out(task: Task, fn: Any, limit_s: float | None = None) -> Trial:
    """Run the stages in turn and stop at the first that fails.

    Raises nothing that the function raises; only a real interrupt from the keyboard gets
    through. Each stage may take `limit_s` seconds, `LIMIT_S` unless given.
    """
    for passed, stage in enumerate(task.stages):
        outcome = _Attempt(task, stage, fn).run(LIMIT_S if limit_s is None else limit_s)
        if isinstance(outcome, Failure):
            return Trial(passed, outcome)
        if outcome:
            return Trial(passed, unwritten=outcome)
    return Trial(len(task.stages))


class _Attempt:
    """One stage's run: what was given, what was printed, what came of it."""

    def __init__(self, task: Task, stage: Stage, fn: Any):
        self.task, self.stage, self.fn = task, stage, fn
        self.printed = Printed()
        # Classes and endpoints go to their stages as they are.
        plain = not inspect.isclass(fn) and not inspect.iscoroutinefunction(fn)
        self.guard = Guard(fn, task.signature, self.printed.clear) if plain else None
        self.outcome: Failure | str = self._failure("The check broke off before it came to an end.")

    def run(self, limit_s: float) -> Failure | str:
        """Give the failure, the name of a stub that was met, or an empty string."""
        ending = run_limited(self._work, limit_s, self.printed)
        return self.outcome if ending == ENDED else self._too_long(limit_s, ending)

    def _work(self) -> None:
        try:
            self.stage.check(self.guard or self.fn)
            self.outcome = ""
        except Wrong as wrong:
            self.outcome = self._wrong(wrong)
        except BaseException as error:
            self.outcome = stub_met(error, self.task.name) or self._raised(error)

    def _wrong(self, wrong: Wrong) -> Failure:
        return self._failure(
            wrong.hint,
            given=self._given() if wrong.given is None else show_named(wrong.given),
            expected=show(wrong.expected),
            got=show(wrong.got),
            differs=wrong.differs,
        )

    def _raised(self, error: BaseException) -> Failure:
        line = learners_line(error, self.fn)
        hint = about(error, self.stage.raises) if line else _UNREADABLE
        return self._failure(hint, given=self._given(), got=f"{say(error)}\n{line}".strip())

    def _too_long(self, limit_s: float, ending: str) -> Failure:
        hint = f"Your function had not finished after {limit_s:g} s. Does a loop never end?"
        if ending == RUNNING:
            hint += " It could not be stopped, and still runs: restart the kernel."
        return self._failure(hint, given=self._given(), got="nothing yet")

    def _given(self) -> str:
        return show_named(self.guard.given) if self.guard else ""

    def _failure(self, hint: str, **parts: str) -> Failure:
        return Failure(self.stage.name, hint, printed=self.printed.text(), **parts)
