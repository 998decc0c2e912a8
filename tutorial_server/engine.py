"""The engine: one thread that owns the model, and the line of requests before it."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter
from typing import Literal

from torch import Tensor

from .answer import Answer
from .chat import Message, build_messages, encode_chat
from .detokenize import StreamDecoder
from .errors import Busy, NotReady, TutorialServerError
from .runner import Runner
from .sequence import SamplingParams, Sequence
from .steps import Steps

log = logging.getLogger("tutorial_server")


@dataclass(frozen=True)
class Request:
    """What is asked of the engine: a conversation, and how to answer it."""

    messages: tuple[Message, ...]
    params: SamplingParams
    thinking: bool = False


@dataclass(frozen=True)
class EngineState:
    """A look at the engine from outside; `error` says why a stopped one cannot be used."""

    status: Literal["loading", "ready", "stopped"]
    model: str | None
    waiting: int
    running: int
    error: str | None = None


class Engine:
    """Answers requests in the order in which they came, with as many at once as fit.

    `load` makes the runner; it is called on the engine's own thread, so that the server
    can say "loading" meanwhile. Encoding has a thread to itself: it must not hold up the
    event loop, and fast tokenizers are not safe to share between threads.
    """

    def __init__(
        self, load: Callable[[], Runner], steps: Steps | None = None, max_waiting: int = 64
    ):
        self.steps = steps or Steps()
        self.on_stopped: Callable[[], None] = lambda: None
        self._load = load
        self._max_waiting = max_waiting
        self._runner: Runner | None = None
        self._waiting: deque[Answer] = deque()
        self._running: list[Answer] = []  # touched by the engine's thread only
        self._wake = threading.Condition()
        self._stopping = False
        self._error: str | None = None
        self._encoder = ThreadPoolExecutor(1, thread_name_prefix="encoder")
        self._thread = threading.Thread(target=self._main, name="engine", daemon=True)

    def start(self) -> None:
        """Begin to load the model, and answer once it is there."""
        self._thread.start()

    def stop(self, timeout: float = 3.0) -> None:
        """End all answers at once, and the thread after its current step.

        A load cannot be interrupted, and nobody waits for it.
        """
        self._abandon_all()
        self._encoder.shutdown(wait=False)
        if self._runner is not None:
            self._thread.join(timeout)

    async def submit(self, request: Request) -> Answer:
        """Take a request into the line. Raises TooLong, Busy or NotReady, and then does nothing."""
        arrived = perf_counter()
        runner = self._ready_runner()
        self._check_line(runner)
        loop = asyncio.get_running_loop()
        sequence = await loop.run_in_executor(
            self._encoder, self._new_sequence, runner, request, arrived
        )
        answer = Answer(sequence, self._notify)
        with self._wake:
            self._ready_runner()  # it may have stopped while the request was encoded
            self._check_line(runner)
            self._waiting.append(answer)
            self._wake.notify()
        return answer

    def state(self) -> EngineState:
        """Say how things stand, without waiting for anything."""
        runner = self._runner
        if self._error or self._stopping:
            status: Literal["loading", "ready", "stopped"] = "stopped"
        else:
            status = "ready" if runner else "loading"
        model = runner.llm.name if runner else None
        return EngineState(status, model, len(self._waiting), len(self._running), self._error)

    def _ready_runner(self) -> Runner:
        status = self.state().status
        if status == "ready" and self._runner is not None:
            return self._runner
        if status == "loading":
            raise NotReady("The model is still loading; ask again in a moment.")
        raise NotReady("The engine has stopped; start the server again.")

    def _check_line(self, runner: Runner) -> None:
        if len(self._waiting) + len(self._running) >= self._max_waiting + runner.rows:
            raise Busy(f"{len(self._waiting)} requests are waiting already; ask again later.")

    def _notify(self) -> None:
        with self._wake:
            self._wake.notify()

    def _new_sequence(self, runner: Runner, request: Request, arrived: float) -> Sequence:
        steps = self.steps
        ids = encode_chat(runner.llm, request.messages, request.thinking, steps.render_chat)
        decoder = StreamDecoder(runner.llm.tokenizer, request.params.stop, steps.new_text)
        return Sequence(
            runner.llm,
            ids,
            request.params,
            select=steps.select_next_token,
            decoder=decoder,
            arrived=arrived,
        )

    def _abandon_all(self) -> None:
        with self._wake:
            self._stopping = True
            left = [*self._running, *self._waiting]
            self._waiting.clear()
            self._wake.notify()
        for answer in left:
            answer.fail("The server stopped before the answer was complete.")

    # From here on: the engine's thread.

    def _main(self) -> None:
        try:
            runner = self._load()
            self._warm_up(runner)
            self._runner = runner
            log.info("ready: %s on %s", runner.llm.name, runner.llm.device)
            while self._wait_for_work():
                self._step(runner)
        except TutorialServerError as error:
            self._error = str(error)
        except BaseException as error:
            log.exception("the engine has stopped")
            self._error = f"The engine has stopped: {type(error).__name__}: {error}"
        finally:
            self._abandon_all()
            self._running.clear()
            self.on_stopped()

    def _warm_up(self, runner: Runner) -> None:
        """Answer once before anybody is let in: a first pass is slow, and shows what is broken."""
        request = Request(tuple(build_messages("Hi")), SamplingParams(max_new_tokens=2))
        sequence = self._new_sequence(runner, request, perf_counter())
        try:
            sequence.accept(runner.prefill(sequence))
            if sequence.finish_reason is None:
                sequence.accept(runner.decode([sequence]))
        finally:
            runner.release(sequence)

    def _wait_for_work(self) -> bool:
        with self._wake:
            self._wake.wait_for(lambda: self._stopping or self._waiting or self._running)
            return not self._stopping

    def _step(self, runner: Runner) -> None:
        """Let in what fits, then add one token to every running answer."""
        self._drop_cancelled(runner)
        self._admit(runner)
        if not self._running:
            return
        running = list(self._running)
        try:
            logits = runner.decode([answer.sequence for answer in running])  # [B, V]
            rows = list(zip(running, logits.split(1), strict=True))
        except Exception as error:
            for answer in running:
                self._break_off(runner, answer, error)
            return
        for answer, row in rows:
            self._accept(runner, answer, row)

    def _drop_cancelled(self, runner: Runner) -> None:
        with self._wake:
            left = [answer for answer in self._waiting if answer.sequence.cancelled]
            for answer in left:
                self._waiting.remove(answer)
        left += [answer for answer in self._running if answer.sequence.cancelled]
        for answer in left:
            self._retire(runner, answer)
            answer.fail("The answer was cancelled.")

    def _admit(self, runner: Runner) -> None:
        while len(self._running) < runner.rows and (answer := self._next()):
            answer.sequence.started = perf_counter()
            self._running.append(answer)
            try:
                logits = runner.prefill(answer.sequence)  # [1, V]
            except Exception as error:
                self._break_off(runner, answer, error)
            else:
                self._accept(runner, answer, logits)

    def _next(self) -> Answer | None:
        with self._wake:
            return self._waiting.popleft() if self._waiting else None

    def _accept(self, runner: Runner, answer: Answer, logits: Tensor) -> None:
        try:
            piece = answer.sequence.accept(logits)
        except Exception as error:
            self._break_off(runner, answer, error)
            return
        if piece:
            answer.put(piece)
        if answer.sequence.finish_reason:
            self._retire(runner, answer)
            answer.finish()

    def _break_off(self, runner: Runner, answer: Answer, error: Exception) -> None:
        log.error("answer %s broke off", answer.request_id, exc_info=error)
        self._retire(runner, answer)
        answer.fail("The model failed while answering; the server's log says why.")

    def _retire(self, runner: Runner, answer: Answer) -> None:
        runner.release(answer.sequence)
        if answer in self._running:
            self._running.remove(answer)
