"""Continuous batching: who runs, and what one step does for each of them."""

import logging
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Lengths
from time import perf_counter

from torch import Tensor

from .answer import Answer
from .errors import GenerationFailed
from .observer import Observer
from .runner import MixedRunner, Runner
from .sequence import Sequence

Forward = Callable[[list[Sequence]], Iterable[Tensor | None]]
log = logging.getLogger("tutorial_server")
ALONE = 4  # chunks that a prompt may take in one step while nobody else is there


def admit(waiting: Lengths[int], free_slots: int, token_budget: int) -> int:
    """Say how many of those who wait may come in now, in their order.

    `waiting` holds the tokens of each one's prompt. Each takes a slot, and is let in while
    some of the step's `token_budget` is left; a prompt that is longer than what is left is
    read on in later steps, and nobody overtakes it.
    """
    count = 0
    for tokens in waiting[: max(0, free_slots)]:
        if token_budget <= 0:
            break
        token_budget -= tokens
        count += 1
    return count


class Batch:
    """The answers that run: some still read their prompts, the others write.

    A step reads `chunk` prompt tokens at most, and adds one token to everyone who writes: so
    a long prompt holds nobody up for longer than a chunk takes. Nothing but the engine's
    thread touches it.
    """

    def __init__(self, runner: Runner, chunk: int, observer: Observer | None = None):
        self._runner = runner
        self._mixed = runner if isinstance(runner, MixedRunner) else None
        self._chunk = chunk
        self._observer = observer or Observer()
        self._steps = 0
        self.reading: list[Answer] = []  # in the order in which they came
        self.writing: list[Answer] = []

    def __len__(self) -> int:
        return len(self.reading) + len(self.writing)

    @property
    def answers(self) -> list[Answer]:
        """Everyone who runs."""
        return [*self.reading, *self.writing]

    def places(self, waiting: Lengths[int]) -> int:
        """Say how many of those who wait fit, given the tokens of their prompts."""
        return admit(waiting, self._runner.rows - len(self), self._chunk)

    def add(self, answer: Answer) -> None:
        """Take an answer up; the next step begins to read its prompt."""
        answer.sequence.started = perf_counter()
        self._observer.started(answer.sequence)
        self.reading.append(answer)

    def step(self) -> None:
        """Read some of the prompts, and add one token to every answer that is being written.

        In one pass where the runner can, or else the one after the other.
        """
        self._steps += 1
        if not (self.reading and self.writing and self._read_and_write()):
            self._read()
            self._write()

    def drop(self, answer: Answer, error: GenerationFailed) -> None:
        """End an answer that is not complete, and say why."""
        self._retire(answer)
        self._observer.ended(answer.sequence, error)
        answer.fail(error)

    def _read_and_write(self) -> bool:
        """Do both in one pass. If that fails nothing has happened yet, and each is done apart."""
        if self._mixed is None:
            return False
        reading, writing = self._reading_order(), list(self.writing)
        # A row that writes takes one of the chunk's tokens; but half is there to read.
        budget = max(self._chunk - len(writing), self._chunk // 2, 1)
        try:
            read, written = self._mixed.step(_sequences(reading), _sequences(writing), budget)
        except Exception as error:
            log.warning("a pass failed (%r); prompts and answers are run apart", error)
            return False
        self._take([*zip(reading, read, strict=True), *zip(writing, written.split(1), strict=True)])
        return True

    def _read(self) -> None:
        budget = self._chunk if len(self) > 1 else self._chunk * ALONE
        # A prompt can be read again from where it was: one that fails must not harm another.
        self._run(self._reading_order(), lambda rows: self._runner.prefill(rows, budget), True)

    def _reading_order(self) -> list[Answer]:
        """Who has least left comes first, so that short prompts pass long ones by; on every
        other step the oldest does, so that no number of short ones can hold it up for good."""
        if self._steps % 2 == 0:
            return list(self.reading)
        return sorted(self.reading, key=_unread)

    def _write(self) -> None:
        self._run(list(self.writing), lambda rows: self._runner.decode(rows).split(1))

    def _run(self, answers: list[Answer], forward: Forward, apart: bool = False) -> None:
        """Move some answers on in one pass; `apart`: if it fails, try each alone."""
        if not answers:
            return
        try:
            rows = forward(_sequences(answers))  # B × [1, V]
            pairs = list(zip(answers, rows, strict=True))
        except Exception as error:
            for answer in answers:
                if apart and len(answers) > 1:
                    self._run([answer], forward)
                else:
                    self._break_off(answer, error)
            return
        self._take(pairs)

    def _take(self, pairs: list[tuple[Answer, Tensor | None]]) -> None:
        """Give answers the logits of their next tokens; None is for a prompt that goes on."""
        # Told afterwards: the first `put` wakes the event loop, which then wants the GIL too.
        pieces = [self._accept(answer, logits) for answer, logits in pairs if logits is not None]
        for answer, piece in filter(None, pieces):
            self._tell(answer, piece)

    def _accept(self, answer: Answer, logits: Tensor) -> tuple[Answer, str] | None:
        """Choose an answer's next token, and give the text that it makes certain."""
        if answer in self.reading:
            self.writing.append(answer)  # first: another thread must find everybody
            self.reading.remove(answer)
        try:
            piece = answer.sequence.accept(logits)
        except Exception as error:
            self._break_off(answer, error)
            return None
        self._observer.stepped(answer.sequence)
        return answer, piece

    def _tell(self, answer: Answer, piece: str) -> None:
        """Pass a piece on, and let an answer go that is finished."""
        if piece:
            answer.put(piece)
        if answer.sequence.finish_reason:
            self._retire(answer)
            self._observer.ended(answer.sequence)
            answer.finish()

    def _break_off(self, answer: Answer, error: Exception) -> None:
        log.error("answer %s broke off", answer.request_id, exc_info=error)
        message = "The model failed while answering; the server's log says why."
        self.drop(answer, GenerationFailed(message))

    def _retire(self, answer: Answer) -> None:
        for answers in (self.reading, self.writing):
            if answer in answers:
                self._runner.release(answer.sequence)  # if it fails, it is still here to be told
                answers.remove(answer)


def _sequences(answers: list[Answer]) -> list[Sequence]:
    return [answer.sequence for answer in answers]


def _unread(answer: Answer) -> int:
    return len(answer.sequence.prompt_ids) - answer.sequence.prompt_read
