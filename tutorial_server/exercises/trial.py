"""Running a function through a task's stages, whatever it does."""

import ctypes
import inspect
import io
import linecache
import re
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

from .guard import Guard
from .report import Failure
from .show import show, show_named
from .task import Stage, Task, Wrong

LIMIT_S = 20.0  # for one stage
_PRINTED = 600  # characters kept of what the function prints
_CELL = re.compile(r"ipykernel_\d+|^<")  # file names that Jupyter and IPython give to cells


class Unwritten(Exception):
    """The function, or one that it calls, is still the stub."""


class _TimeUp(BaseException):
    """Thrown into a learner's endless loop; nobody else raises it."""


@dataclass(frozen=True)
class Trial:
    """How far a function came: stages passed, then the failure or the stub's name."""

    passed: int
    failure: Failure | None = None
    unwritten: str = ""

    def __bool__(self) -> bool:
        return self.failure is None and not self.unwritten


def try_out(task: Task, fn: Any, limit_s: float | None = None) -> Trial:
    """Run the stages in turn and stop at the first that fails; raises nothing of the function's.

    Each stage runs in a thread of its own under a time limit, since an endless loop can be
    left behind there. A real interrupt from the keyboard still gets through.
    """
    limit_s = LIMIT_S if limit_s is None else limit_s
    for passed, stage in enumerate(task.stages):
        outcome = _Attempt(task, stage, fn).run(limit_s)
        if isinstance(outcome, Failure):
            return Trial(passed, outcome)
        if outcome:
            return Trial(passed, unwritten=outcome)
    return Trial(len(task.stages))


class _Attempt:
    """One stage's run: the thread, what was printed, what came of it."""

    def __init__(self, task: Task, stage: Stage, fn: Any):
        self.task, self.stage, self.fn = task, stage, fn
        self.printed = _Sink()
        self.guard = Guard(fn, task.signature, self.printed.clear) if _guarded(fn) else None
        self.outcome: Failure | str | None = None

    def run(self, limit_s: float) -> Failure | str:
        """Give the failure, the name of a stub that was met, or an empty string."""
        thread = threading.Thread(target=self._work, daemon=True)
        with redirect_stdout(self.printed), redirect_stderr(self.printed):
            thread.start()
            try:
                _wait(thread, limit_s)
            except KeyboardInterrupt:
                _stop(thread)
                raise
            if thread.is_alive():
                return self._too_long(limit_s, stopped=_stop(thread))
        if self.outcome is None:
            return self._failure("The check broke off before it came to an end.")
        return self.outcome

    def _work(self) -> None:
        try:
            with _calm():
                self.stage.check(self.guard or self.fn)
            self.outcome = ""
        except _TimeUp:
            pass
        except Wrong as wrong:
            self.outcome = self._wrong(wrong)
        except BaseException as error:
            self.outcome = _stub_met(self.task, error) or self._raised(error)

    def _wrong(self, wrong: Wrong) -> Failure:
        given = wrong.given if wrong.given is not None else self._given()
        return self._failure(
            wrong.hint,
            given=show_named(given),
            expected=show(wrong.expected),
            got=show(wrong.got),
            differs=wrong.differs,
        )

    def _raised(self, error: BaseException) -> Failure:
        line = _learners_line(error, self.fn)
        hint = self.stage.if_raises or _about(error)
        if not line:
            hint = f"What your function gave back could not be read. {hint}"
        given, got = show_named(self._given()), f"{_say(error)}\n{line}".strip()
        return self._failure(hint, given=given, got=got)

    def _too_long(self, limit_s: float, stopped: bool) -> Failure:
        hint = f"Your function had not finished after {limit_s:g} s. Does a loop never end?"
        if not stopped:
            hint += " It could not be stopped and still runs: restart the kernel."
        return self._failure(hint, given=show_named(self._given()), got="nothing yet")

    def _given(self) -> dict[str, Any]:
        return self.guard.given if self.guard else {}

    def _failure(self, hint: str, **parts: str) -> Failure:
        return Failure(self.stage.name, hint, printed=self.printed.text(), **parts)


class _Sink(io.TextIOBase):
    """Takes what the function prints, and keeps the beginning."""

    def __init__(self) -> None:
        self._kept = ""

    def write(self, text: str) -> int:
        if len(self._kept) <= _PRINTED:
            self._kept += text[: _PRINTED + 1]
        return len(text)

    def clear(self) -> None:
        self._kept = ""

    def text(self) -> str:
        cut = self._kept[:_PRINTED].rstrip()
        return cut + "\n…" if len(self._kept) > _PRINTED else cut


@contextmanager
def _calm() -> Iterator[None]:
    """Leave torch's global state as it was: no gradients, the same random numbers after."""
    torch = sys.modules.get("torch")
    with (
        torch.no_grad() if torch else nullcontext(),
        torch.random.fork_rng(devices=[]) if torch else nullcontext(),
    ):
        yield


def _guarded(fn: Any) -> bool:
    """Tell a plain function; classes and endpoints go to their stages as they are."""
    return not inspect.isclass(fn) and not inspect.iscoroutinefunction(fn)


def _wait(thread: threading.Thread, seconds: float) -> None:
    """Join in short naps, so that an interrupt gets through on every system."""
    naps = max(1, round(seconds / 0.05))
    for _ in range(naps):
        thread.join(0.05)
        if not thread.is_alive():
            return


def _stop(thread: threading.Thread) -> bool:
    """Throw an exception into the thread's Python code; tell whether it ended."""
    for _ in range(5):
        if thread.ident is not None and thread.is_alive():
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread.ident), ctypes.py_object(_TimeUp)
            )
        thread.join(0.2)
        if not thread.is_alive():
            break
    return not thread.is_alive()


def _stub_met(task: Task, error: BaseException) -> str:
    """Name the stub that raised, or give an empty string for any other error.

    torch raises NotImplementedError too, with a sentence; a stub gives a name or nothing.
    """
    if not isinstance(error, NotImplementedError):
        return ""
    said = str(error).strip()
    return (said or task.name) if not said or said.isidentifier() else ""


def _learners_line(error: BaseException, fn: Any) -> str:
    """Find the last line of the learner's own code that the exception came through."""
    code = getattr(inspect.unwrap(fn), "__code__", None)
    own = code.co_filename if code else ""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename == own or _CELL.search(frame.filename):
            text = linecache.getline(frame.filename, frame.lineno or 0).strip()
            return f"in line {frame.lineno}: {text}" if text else "in your code"
    return ""


def _about(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "Your function calls itself without end. What should stop it?"
    if isinstance(error, SystemExit):
        return "Your function ends the program. Return a value, and let the caller decide."
    return (
        "Your function raised this instead of returning. Call it yourself with the values "
        "above to see where."
    )


def _say(error: BaseException) -> str:
    """Name an exception and its first line, even one whose message cannot be printed."""
    name = type(error).__name__
    try:
        line = str(error).split("\n", 1)[0][:300]
    except Exception:
        line = ""
    return f"{name}: {line}" if line else name
