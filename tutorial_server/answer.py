"""One answer on its way from the engine's thread to the event loop that asked for it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from uuid import uuid4

from .errors import GenerationFailed
from .sequence import Completion, Sequence


@dataclass(frozen=True)
class _End:
    """The last thing in the queue: `error` says why an answer broke off."""

    error: GenerationFailed | None = None


class Answer:
    """What `Engine.submit` gives: iterate for the pieces, then read `result`.

    The engine's thread only ever calls `put`, `finish` and `fail`; the event loop the rest.
    """

    def __init__(self, sequence: Sequence, on_cancel: Callable[[], None]):
        self.request_id = uuid4().hex
        self.sequence = sequence
        self._on_cancel = on_cancel
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[str | _End] = asyncio.Queue()

    async def __aiter__(self) -> AsyncIterator[str]:
        """Give text as it becomes certain. Raises GenerationFailed if the answer breaks off."""
        while not isinstance(item := await self._queue.get(), _End):
            yield item
        if item.error is not None:
            raise item.error

    async def finished(self) -> Completion:
        """Wait for the whole answer. Raises GenerationFailed."""
        async for _ in self:
            pass
        return self.result

    @property
    def result(self) -> Completion:
        """The finished answer; only there once iteration has ended."""
        return self.sequence.completion()

    def cancel(self) -> None:
        """Stop the work, wherever it is; an answer that is finished stays as it is."""
        if self.sequence.finish_reason is None:
            self.sequence.cancelled = True
            self._on_cancel()

    def put(self, piece: str) -> None:
        """Pass a piece on (from the engine's thread)."""
        self._hand_over(piece)

    def finish(self) -> None:
        """Say that the answer is complete (from the engine's thread)."""
        self._hand_over(_End())

    def fail(self, error: GenerationFailed) -> None:
        """Say that the answer broke off, and why (from the engine's thread)."""
        self._hand_over(_End(error))

    def _hand_over(self, item: str | _End) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has closed: nobody is waiting
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)
