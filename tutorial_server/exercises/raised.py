"""An exception of the learner's function, in words and with the line it came from."""

import inspect
import linecache
import re
import traceback
from typing import Any

from .task import Raises

_CELL = re.compile(r"ipykernel_\d+|^<")  # file names that Jupyter and IPython give to cells


def stub_met(error: BaseException, task: str) -> str:
    """Name the stub that raised, or give an empty string for any other error.

    torch raises NotImplementedError too, with a sentence; a stub gives a name or nothing.
    """
    if not isinstance(error, NotImplementedError):
        return ""
    said = say(error).removeprefix("NotImplementedError").lstrip(": ")
    return said if said.isidentifier() else "" if said else task


def learners_line(error: BaseException, fn: Any) -> str:
    """Find the last line of the learner's own code that the exception came through."""
    code = getattr(inspect.unwrap(fn), "__code__", None)
    own = code.co_filename if code else ""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename == own or _CELL.search(frame.filename):
            text = linecache.getline(frame.filename, frame.lineno or 0).strip()
            return f"in line {frame.lineno}: {text}" if text else "in your code"
    return ""


def about(error: BaseException, known: tuple[Raises, ...]) -> str:
    """The stage's own hint for an exception, or else a general one."""
    for kind, part, hint in known:
        if isinstance(error, kind) and part in say(error):
            return hint
    if isinstance(error, RecursionError):
        return "Your function calls itself without end. What should stop it?"
    if isinstance(error, SystemExit):
        return "Your function ends the program. Return a value, and let the caller decide."
    if isinstance(error, NameError):
        return "Nothing has that name here. A slip of the pen, or a cell that was not run?"
    return (
        "Your function raised this instead of returning. Call it yourself with the values "
        "above to see where."
    )


def say(error: BaseException) -> str:
    """Name an exception and its first line, even one whose message cannot be printed."""
    name = type(error).__name__
    try:
        line = str(error).split("\n", 1)[0][:300]
    except Exception:
        line = ""
    return f"{name}: {line}" if line else name
