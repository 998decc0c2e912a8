"""The engine: one thread that owns the model, and the line of requests before it."""

import asyncio
import logging
import math
import threading
from collections import deque
from collections.abc import Callable
from time import perf_counter

from .answer import Answer
from .batch import Batch
from .chat import build_messages
from .encoders import Encoders
from .engine_state import EngineState, Status
from .errors import (
    Busy,
    CutShort,
    GenerationFailed,
    NotReady,
    TookTooLong,
    TutorialServerError,
)
from .observer import Observer
from .request import Request
from .runner import Runner
from .sequence import SamplingParams, Sequence
from .steps import Steps

log = logging.getLogger("tutorial_server")


class Engine:
    """Answers requests in the order in which they came, with as many at once as fit.

    `load` makes the runner; it is called on the engine's own thread, so that the server
    can say "loading" meanwhile. Encoding has threads to itself: it must not hold up the
    event loop.
    """

    def __init__(
        self,
        load: Callable[[], Runner],
        steps: Steps | None = None,
        *,
        max_waiting: int = 64,
        prefill_chunk: int = 128,
        request_seconds: float = math.inf,
        observer: Observer | None = None,
    ):
        self.steps = steps or Steps()
        self.on_stopped: Callable[[], None] = lambda: None
        self._load = load
        self._max_waiting = max_waiting
        self._prefill_chunk = prefill_chunk
        self._request_seconds = request_seconds
        self._observer = observer or Observer()
        self._runner: Runner | None = None
        self._waiting: deque[Answer] = deque()
        self._encoding = 0  # requests that have a place in the line, and will be there soon
        self._batch: Batch | None = None  # changed by the engine's thread only
        self._wake = threading.Condition()
        self._draining = False
        self._stopping = False
        self._error: str | None = None
        self._encoders = Encoders()
        self._thread = threading.Thread(target=self._main, name="engine", daemon=True)

    def start(self) -> None:
        """Begin to load the model, and answer once it is there."""
        self._thread.start()

    def drain(self) -> None:
        """Take nobody in from now on; who is here already, in the line too, is answered."""
        with self._wake:
            self._draining = True

    def stop(self, timeout: float = 3.0) -> None:
        """End all answers at once, and the thread after its current step.

        A load cannot be interrupted, and nobody waits for it.
        """
        self._abandon_all()
        if self._runner is not None:
            self._thread.join(timeout)

    async def submit(self, request: Request) -> Answer:
        """Take a request into the line. Raises TooLong, Busy or NotReady, and then does nothing."""
        try:
            return await self._take_in(request)
        except Exception as error:
            self._observer.refused(error)
            raise

    async def _take_in(self, request: Request) -> Answer:
        arrived = perf_counter()
        with self._wake:
            runner = self._ready_runner()
            self._check_line(runner)
            self._encoding += 1
        try:
            sequence = await self._encode(runner, request, arrived)
            answer = Answer(sequence, self._notify)
            with self._wake:
                self._ready_runner()  # it may have stopped while the request was encoded
                self._waiting.append(answer)
                self._wake.notify()
            return answer
        finally:
            with self._wake:
                self._encoding -= 1

    async def _encode(self, runner: Runner, request: Request, arrived: float) -> Sequence:
        characters = sum(len(message["content"]) for message in request.messages)
        try:
            return await self._encoders.run(
                runner.llm, characters, lambda llm: request.to_sequence(llm, self.steps, arrived)
            )
        except (asyncio.CancelledError, RuntimeError):
            self._ready_runner()  # where it has stopped, this says so
            raise

    def state(self) -> EngineState:
        """Say how things stand, without waiting for anything."""
        runner = self._runner
        if self._error or self._stopping:
            status: Status = "stopped"
        elif self._draining:
            status = "stopping"
        else:
            status = "ready" if runner else "loading"
        model = runner.llm.name if runner else None
        # A runner whose thread has gone holds what nobody uses any more.
        usage = 0.0 if self._batch is None else getattr(runner, "cache_usage", 0.0)
        return EngineState(status, model, len(self._waiting), self._running(), self._error, usage)

    def _ready_runner(self) -> Runner:
        status = self.state().status
        if status == "ready" and self._runner is not None:
            return self._runner
        if status == "loading":
            raise NotReady("The model is still loading; ask again in a moment.")
        if status == "stopping":
            raise NotReady("The server is shutting down; ask again once it has started anew.")
        raise NotReady("The engine has stopped; start the server again.")

    def _check_line(self, runner: Runner) -> None:
        waiting = len(self._waiting) + self._encoding
        if waiting + self._running() >= self._max_waiting + runner.rows:
            raise Busy(f"{waiting} requests are waiting already; ask again later.")

    def _notify(self) -> None:
        with self._wake:
            self._wake.notify()

    def _abandon_all(self) -> None:
        with self._wake:
            self._stopping = True
            batch = self._batch
            running = batch.answers if batch is not None else []
            waiting = list(self._waiting)
            self._waiting.clear()
            self._wake.notify()
        self._encoders.stop()
        error = CutShort("The server stopped before the answer was complete.")
        # What runs has ended once its thread says so: its last step may still complete it.
        over = running if threading.current_thread() is self._thread else []
        for answer in [*waiting, *over]:
            self._observer.ended(answer.sequence, error)
        for answer in [*running, *waiting]:
            answer.fail(error)

    # From here on: the engine's thread.

    def _main(self) -> None:
        try:
            runner = self._load()
            self._warm_up(runner)
            self._batch = batch = Batch(runner, self._prefill_chunk, self._observer)
            self._runner = runner
            log.info("ready: %s on %s", runner.llm.name, runner.llm.device)
            while self._wait_for_work():
                self._step(batch)
        except TutorialServerError as error:
            self._error = str(error)
        except BaseException as error:
            log.exception("the engine has stopped")
            self._error = f"The engine has stopped: {type(error).__name__}: {error}"
        finally:
            self._abandon_all()
            self._batch = None
            self.on_stopped()

    def _warm_up(self, runner: Runner) -> None:
        """Answer once before anybody is let in: a first pass is slow, and shows what is broken."""
        request = Request(tuple(build_messages("Hi")), SamplingParams(max_new_tokens=2))
        sequence = request.to_sequence(runner.llm, self.steps, perf_counter())
        try:
            (logits,) = runner.prefill([sequence])
            assert logits is not None  # there was no limit
            sequence.accept(logits)
            if sequence.finish_reason is None:
                sequence.accept(runner.decode([sequence]))
        finally:
            runner.release(sequence)

    def _wait_for_work(self) -> bool:
        with self._wake:
            self._wake.wait_for(lambda: self._stopping or self._waiting or self._running())
            return not self._stopping

    def _running(self) -> int:
        batch = self._batch  # the engine's thread may take it away between two looks
        return len(batch) if batch is not None else 0

    def _step(self, batch: Batch) -> None:
        """Let go who left, let in what fits, and move everyone on by a token."""
        self._let_go(batch)
        self._let_in(batch)
        batch.step()

    def _let_go(self, batch: Batch) -> None:
        with self._wake:
            going = [(answer, why) for answer in self._waiting if (why := self._why_go(answer))]
            for answer, _ in going:
                self._waiting.remove(answer)
        going += [(answer, why) for answer in batch.answers if (why := self._why_go(answer))]
        for answer, why in going:
            batch.drop(answer, why)

    def _why_go(self, answer: Answer) -> GenerationFailed | None:
        if answer.sequence.cancelled:
            return GenerationFailed("The answer was cancelled.")
        if perf_counter() - answer.sequence.arrived > self._request_seconds:
            return TookTooLong(
                f"The answer was not complete after {self._request_seconds:g} s; "
                "ask for fewer tokens, or when fewer are asking."
            )
        return None

    def _let_in(self, batch: Batch) -> None:
        with self._wake:
            lengths = [len(answer.sequence.prompt_ids) for answer in self._waiting]
            for _ in range(batch.places(lengths)):
                batch.add(self._waiting.popleft())
