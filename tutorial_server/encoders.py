"""Prompts become ids beside the event loop, and long ones beside the short."""

import asyncio
import contextlib
import copy
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from .models import LLM

Made = TypeVar("Made")
LONG_TEXT = 30_000  # characters; what has more can take seconds to encode


class Encoders:
    """Two threads that encode: nobody with a short question waits for others' long texts.

    Each has a tokenizer of its own, since fast ones are not safe to share between threads.
    """

    def __init__(self) -> None:
        self._short = ThreadPoolExecutor(1, thread_name_prefix="encoder")
        self._long = ThreadPoolExecutor(1, thread_name_prefix="long-encoder")
        self._long_llm: LLM | None = None
        self._under_way: set[asyncio.Future[Any]] = set()
        self._lock = threading.Lock()

    async def run(self, llm: LLM, characters: int, make: Callable[[LLM], Made]) -> Made:
        """Call `make` with the model's tokenizer, on the thread for texts of this length.

        Raises CancelledError or RuntimeError once `stop` was called, else what `make` does.
        """
        with self._lock:
            if characters > LONG_TEXT:
                source = self._long.submit(lambda: make(self._copy(llm)))
            else:
                source = self._short.submit(make, llm)
            future = asyncio.wrap_future(source)
            self._under_way.add(future)
        try:
            return await future
        finally:
            with self._lock:
                self._under_way.discard(future)

    def stop(self) -> None:
        """Let nobody wait any longer; a thread that works is not waited for either."""
        with self._lock:
            for executor in (self._short, self._long):
                executor.shutdown(wait=False, cancel_futures=True)
            for future in self._under_way:
                with contextlib.suppress(RuntimeError):  # the loop has closed
                    future.get_loop().call_soon_threadsafe(future.cancel)

    def _copy(self, llm: LLM) -> LLM:
        """Give the long texts' own tokenizer, made when the first of them comes."""
        if self._long_llm is None:
            self._long_llm = replace(llm, tokenizer=copy.deepcopy(llm.tokenizer))
        return self._long_llm
