"""What each forward pass did for whom, written down while it happens."""

from collections.abc import Sequence as Rows
from dataclasses import dataclass
from time import perf_counter
from typing import Literal

from torch import Tensor

from .runner import Runner
from .sequence import Sequence


@dataclass(frozen=True)
class RowStep:
    """One row's part in one forward pass: `tokens` of a prompt read, or one token decoded.

    `number` counts the passes from 0; rows that shared a pass have the same, and the same
    `start` and `end`, in seconds since the recording began.
    """

    number: int
    slot: int
    kind: Literal["prefill", "decode"]
    tokens: int
    start: float
    end: float


class RecordingRunner:
    """Runs what another runner runs, and notes for each pass which slots were at work.

    A row has the lowest number that is free when its prompt is first read, and keeps it
    until it is released, as in a `SlotRunner`.
    """

    def __init__(self, runner: Runner):
        self.llm = runner.llm
        self.rows = runner.rows
        self.row_steps: list[RowStep] = []
        self.passes = 0
        self._runner = runner
        self._slots: dict[Sequence, int] = {}
        self._began = perf_counter()

    def prefill(self, sequences: Rows[Sequence], limit: int | None = None) -> list[Tensor | None]:
        """Read prompts as the runner does, and note how much of each was read."""
        read = [sequence.prompt_read for sequence in sequences]
        start = perf_counter()
        logits = self._runner.prefill(sequences, limit)
        tokens = [s.prompt_read - before for s, before in zip(sequences, read, strict=True)]
        self._note("prefill", sequences, tokens, start)
        return logits

    def decode(self, sequences: Rows[Sequence]) -> Tensor:
        """Run each sequence's latest token: logits `[B, V]` for the next."""
        start = perf_counter()
        logits = self._runner.decode(sequences)  # [B, V]
        self._note("decode", sequences, [1] * len(sequences), start)
        return logits

    def release(self, sequence: Sequence) -> None:
        """Free a sequence's slot for the next."""
        self._slots.pop(sequence, None)
        self._runner.release(sequence)

    def _note(
        self,
        kind: Literal["prefill", "decode"],
        sequences: Rows[Sequence],
        tokens: list[int],
        start: float,
    ) -> None:
        times = (start - self._began, perf_counter() - self._began)
        for sequence, count in zip(sequences, tokens, strict=True):
            if count:
                slot = self._slot(sequence)
                self.row_steps.append(RowStep(self.passes, slot, kind, count, *times))
        self.passes += 1

    def _slot(self, sequence: Sequence) -> int:
        if sequence not in self._slots:
            taken = set(self._slots.values())
            self._slots[sequence] = next(n for n in range(len(taken) + 1) if n not in taken)
        return self._slots[sequence]
