"""Running what may never end, print without end, or leave torch's state changed."""

import ctypes
import io
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout

ENDED, STOPPED, RUNNING = "ended", "stopped", "still running"
_KEPT = 600  # characters kept of what is printed


class TimeUp(BaseException):
    """Thrown into an endless loop; nobody else raises it."""


class Printed(io.TextIOBase):
    """Takes what a function prints, and keeps the beginning."""

    def __init__(self) -> None:
        self._kept = ""

    def write(self, text: str) -> int:
        """Keep what there is room for."""
        if len(self._kept) <= _KEPT:
            self._kept += text[: _KEPT + 1]
        return len(text)

    def clear(self) -> None:
        """Begin again, so that only the last call's printing is kept."""
        self._kept = ""

    def text(self) -> str:
        """What was printed, with a mark where it is cut."""
        cut = self._kept[:_KEPT].rstrip()
        return cut + "\n…" if len(self._kept) > _KEPT else cut


def run_limited(work: Callable[[], None], seconds: float, printed: Printed) -> str:
    """Run `work` in a thread, for that is where an endless loop can be left behind.

    Gives ENDED, STOPPED (time was up, and the loop was broken off) or RUNNING (it could not
    be: it waits in C code). An interrupt from the keyboard breaks off, and gets through.
    """
    thread = threading.Thread(target=_calmly, args=(work,), daemon=True)
    with redirect_stdout(printed), redirect_stderr(printed):
        thread.start()
        try:
            if _wait(thread, seconds):
                return ENDED
        except KeyboardInterrupt:
            _stop(thread)
            raise
        return STOPPED if _stop(thread) else RUNNING


def _calmly(work: Callable[[], None]) -> None:
    try:
        with _no_traces():
            work()
    except TimeUp:
        pass


@contextmanager
def _no_traces() -> Iterator[None]:
    """Leave torch's global state as it was: no gradients, the same random numbers after."""
    torch = sys.modules.get("torch")
    with (
        torch.no_grad() if torch else nullcontext(),
        torch.random.fork_rng(devices=[]) if torch else nullcontext(),
    ):
        yield


def _wait(thread: threading.Thread, seconds: float) -> bool:
    """Join in short naps, so that an interrupt gets through on every system."""
    for _ in range(max(1, round(seconds / 0.05))):
        thread.join(0.05)
        if not thread.is_alive():
            return True
    return False


def _stop(thread: threading.Thread) -> bool:
    """Throw an exception into the thread's Python code; tell whether that ended it."""
    for _ in range(5):  # a bare `except:` in the loop swallows the first ones
        if thread.ident is not None and thread.is_alive():
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread.ident), ctypes.py_object(TimeUp)
            )
        thread.join(0.2)
    return not thread.is_alive()
