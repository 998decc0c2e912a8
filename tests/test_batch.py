"""Continuous batching, step by step: who is let in, who reads, who writes, who is harmed."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import torch
from opened import endless, row, slot_runner, some_ids, theirs
from tiny import tiny_llama

from tutorial_server.answer import Answer
from tutorial_server.batch import ALONE, Batch, admit
from tutorial_server.errors import GenerationFailed
from tutorial_server.runner import TransformersRunner
from tutorial_server.sequence import Sequence

CHUNK = 16


class Recorder:
    """A runner that notes each pass, and can be told to fail."""

    def __init__(self, inner: Any):
        self.llm = inner.llm
        self.rows = inner.rows
        self.inner = inner
        self.passes: list[tuple[str, list[Sequence]]] = []
        self.released: list[Sequence] = []
        self.fails: Callable[[str, list[Sequence]], bool] = lambda kind, sequences: False

    def prefill(self, sequences: Any, limit: int | None = None) -> list[torch.Tensor | None]:
        self._note("prefill", sequences)
        return self.inner.prefill(sequences, limit)

    def decode(self, sequences: Any) -> torch.Tensor:
        self._note("decode", sequences)
        return self.inner.decode(sequences)

    def release(self, sequence: Sequence) -> None:
        self.released.append(sequence)
        self.inner.release(sequence)

    def _note(self, kind: str, sequences: list[Sequence]) -> None:
        self.passes.append((kind, list(sequences)))
        if self.fails(kind, sequences):
            raise RuntimeError("the device fell off the bus")


def slots(count: int = 4) -> Recorder:
    return Recorder(slot_runner(endless(tiny_llama()), count, 512))


def answer(runner: Recorder, prompt: int, tokens: int = 20, **params: Any) -> Answer:
    ids = some_ids(runner.llm, prompt, seed=prompt)
    return Answer(row(runner.llm, ids, tokens, **params), lambda: None)


def in_loop(work: Callable[[], Any]) -> None:
    """Run `work`, then let what was handed over arrive."""

    async def run() -> None:
        check = work()
        await asyncio.sleep(0)
        if check is not None:
            await asyncio.wait_for(check(), 10)

    asyncio.run(run())


def alone(sequence: Sequence) -> list[int]:
    """What a greedy answer is by transformers' own forward, everything read anew."""
    ids: list[int] = []
    for _ in sequence.token_ids:
        ids.append(int(theirs(tiny_llama(), sequence.prompt_ids + ids)[-1].argmax()))
    return ids


# Admission.


@pytest.mark.parametrize(
    ("waiting", "free", "budget", "admitted"),
    [
        ([], 4, 100, 0),
        ([10, 10, 10], 0, 100, 0),
        ([10, 10, 10], -1, 100, 0),
        ([10, 10, 10], 2, 100, 2),
        ([10, 10, 10], 4, 100, 3),
        ([10, 10, 10], 4, 20, 2),
        ([10, 10, 10], 4, 21, 3),
        ([10, 10, 10], 4, 1, 1),
        ([10, 10, 10], 4, 0, 0),
        ([10, 10, 10], 4, -5, 0),
        ([500, 1, 1], 4, 100, 1),  # nobody overtakes
        ([1, 500, 1], 4, 100, 2),
        ((99, 1, 1), 4, 100, 2),
    ],
)
def test_admit(waiting: list[int], free: int, budget: int, admitted: int) -> None:
    assert admit(waiting, free, budget) == admitted


def test_places_count_the_slots_that_are_taken() -> None:
    def work() -> None:
        runner = slots(3)
        batch = Batch(runner, CHUNK)
        assert batch.places([5, 5, 5, 5]) == 3
        batch.add(answer(runner, 5))
        assert batch.places([5, 5, 5, 5]) == 2
        batch.step()
        assert batch.places([5, 5, 5, 5]) == 2
        assert batch.places([15, 5, 5]) == 2
        assert batch.places([16, 5, 5]) == 1
        assert batch.places([]) == 0

    in_loop(work)


# One step.


def test_a_prompt_is_read_and_written_on_in_one_step() -> None:
    def work() -> None:
        runner = slots()
        batch = Batch(runner, CHUNK)
        one = answer(runner, 5)
        batch.add(one)
        assert (len(batch), batch.reading, batch.writing) == (1, [one], [])
        batch.step()
        assert [kind for kind, _ in runner.passes] == ["prefill", "decode"]
        assert (batch.reading, batch.writing, batch.answers) == ([], [one], [one])
        assert len(one.sequence.token_ids) == 2
        batch.step()
        assert [kind for kind, _ in runner.passes] == ["prefill", "decode", "decode"]
        assert one.sequence.token_ids == alone(one.sequence)

    in_loop(work)


def test_an_empty_batch_runs_nothing() -> None:
    runner = slots()
    Batch(runner, CHUNK).step()
    assert runner.passes == []


def test_all_write_in_one_pass_and_retire_one_by_one() -> None:
    def work() -> Any:
        runner = slots()
        batch = Batch(runner, 100)
        answers = [answer(runner, 4 + n, tokens=2 + n) for n in range(4)]
        for one in answers:
            batch.add(one)
        sizes = []
        while len(batch):
            batch.step()
            sizes.append(len(batch))
            assert runner.inner.cache.free == 4 - len(batch)
        assert sizes == [3, 2, 1, 0]
        assert [len(sequences) for _, sequences in runner.passes] == [4, 4, 3, 2, 1]
        assert runner.released == [one.sequence for one in answers]

        async def check() -> None:
            for one in answers:
                done = await one.finished()
                assert done.token_ids == alone(one.sequence)
                assert done.finish_reason == "length"
            assert [len(one.result.token_ids) for one in answers] == [2, 3, 4, 5]

        return check

    in_loop(work)


def test_the_first_token_can_be_the_last() -> None:
    def work() -> Any:
        runner = slots(1)
        batch = Batch(runner, CHUNK)
        one = answer(runner, 5, tokens=1)
        batch.add(one)
        batch.step()
        assert len(batch) == 0
        assert [kind for kind, _ in runner.passes] == ["prefill"]

        async def check() -> None:
            assert (await one.finished()).token_ids == alone(one.sequence)

        return check

    in_loop(work)


# Long prompts.


def test_running_answers_get_a_token_between_chunks() -> None:
    def work() -> None:
        runner = slots()
        batch = Batch(runner, CHUNK)
        writer, long = answer(runner, 5, tokens=100), answer(runner, 16 * 9 + 3)
        batch.add(writer)
        batch.step()
        batch.add(long)
        for step in range(1, 10):
            runner.passes.clear()
            written = len(writer.sequence.token_ids)
            batch.step()
            assert long.sequence.prompt_read == CHUNK * step
            assert len(writer.sequence.token_ids) == written + 1
            assert runner.passes == [
                ("prefill", [long.sequence]),
                ("decode", [writer.sequence]),
            ]
        assert batch.reading == [long]
        batch.step()
        assert batch.reading == []
        assert len(long.sequence.token_ids) == 2
        for one in (writer, long):
            assert one.sequence.token_ids == alone(one.sequence)

    in_loop(work)


class MixedRecorder(Recorder):
    """A runner whose pass may hold both, as the slots' own does."""

    def step(self, reading: Any, writing: Any, limit: int | None = None) -> Any:
        self._note("step", [*reading, *writing])
        return self.inner.step(reading, writing, limit)


def mixed_slots(count: int = 4) -> MixedRecorder:
    return MixedRecorder(slot_runner(endless(tiny_llama()), count, 512))


def test_prompts_are_read_in_the_pass_that_writes_where_the_runner_can() -> None:
    """A token for everyone who writes, and the rest of the chunk for prompts."""

    def work() -> None:
        runner = mixed_slots()
        batch = Batch(runner, CHUNK)
        writers = [answer(runner, 5, tokens=100), answer(runner, 6, tokens=100)]
        for writer in writers:
            batch.add(writer)
        batch.step()
        assert runner.passes == [
            (kind, [writer.sequence for writer in writers]) for kind in ("prefill", "decode")
        ], "nobody writes yet in the beginning"
        long = answer(runner, 3 * (CHUNK - 2) + 1)
        batch.add(long)
        for step in range(1, 4):
            runner.passes.clear()
            written = [len(writer.sequence.token_ids) for writer in writers]
            batch.step()
            assert runner.passes == [("step", [s.sequence for s in (long, *writers)])]
            assert long.sequence.prompt_read == (CHUNK - 2) * step
            assert [len(w.sequence.token_ids) for w in writers] == [n + 1 for n in written]
        batch.step()
        assert (batch.reading, batch.writing) == ([], [*writers, long])
        assert len(long.sequence.token_ids) == 1
        batch.step()
        assert runner.passes[-1] == ("decode", [s.sequence for s in (*writers, long)])
        for one in (*writers, long):
            assert one.sequence.token_ids == alone(one.sequence)

    in_loop(work)


@pytest.mark.parametrize(("chunk", "reads"), [(1, 1), (2, 1), (4, 2), (5, 2), (16, 13)])
def test_a_chunk_that_is_full_of_writers_still_reads_on(chunk: int, reads: int) -> None:
    def work() -> None:
        runner = mixed_slots()
        batch = Batch(runner, chunk)
        writers = [answer(runner, 2, tokens=50) for _ in range(3)]
        for writer in writers:
            batch.add(writer)
        while batch.reading:
            batch.step()
        late = answer(runner, 26, tokens=2)
        batch.add(late)
        for step in range(1, 26 // reads + 1):
            batch.step()
            assert late.sequence.prompt_read == reads * step
        assert late.sequence.token_ids == alone(late.sequence)
        assert late.sequence.token_ids

    in_loop(work)


@pytest.mark.parametrize("other", ["nothing else", "prefill", "decode"])
def test_a_mixed_pass_that_fails_is_done_apart(
    other: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Who is hurt is who breaks a pass that holds but one kind."""

    def work() -> Any:
        runner = mixed_slots()
        batch = Batch(runner, CHUNK)
        writer, reader = answer(runner, 5), answer(runner, 40)
        batch.add(writer)
        batch.step()
        batch.add(reader)
        runner.fails = lambda kind, rows: kind in ("step", other)
        batch.step()
        runner.fails = lambda kind, rows: False
        run_all(batch)
        assert runner.inner.cache.free == 4

        async def check() -> None:
            hurt = [await failed(one) for one in (writer, reader)]
            assert hurt == [other == "decode", other == "prefill"]
            for one, is_hurt in zip((writer, reader), hurt, strict=True):
                if not is_hurt:
                    assert len(one.result.token_ids) == 20
                    assert one.result.token_ids == alone(one.sequence)

        return check

    in_loop(work)
    warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert warnings == [
        "a pass failed (RuntimeError('the device fell off the bus')); "
        "prompts and answers are run apart"
    ]


def test_who_is_alone_reads_more_at_once() -> None:
    def work() -> None:
        runner = slots()
        batch = Batch(runner, CHUNK)
        long = answer(runner, 200)
        batch.add(long)
        batch.step()
        assert long.sequence.prompt_read == CHUNK * ALONE
        batch.add(answer(runner, 200))
        batch.step()
        assert sum(one.sequence.prompt_read for one in batch.reading) == CHUNK * (ALONE + 1)

    in_loop(work)


def test_a_short_prompt_passes_a_long_one() -> None:
    def work() -> None:
        for steps_before in range(4):
            runner = slots()
            batch = Batch(runner, CHUNK)
            long, short = answer(runner, 400), answer(runner, 5)
            batch.add(long)
            for _ in range(steps_before):
                batch.step()
            batch.add(short)
            batch.step()
            batch.step()
            assert short.sequence.token_ids, "it writes after two steps"
            assert long.sequence.prompt_read < 400

    in_loop(work)


def test_a_long_prompt_is_not_starved_by_short_ones() -> None:
    """Every step brings as many short prompts as the chunk holds; the long one goes on."""

    def work() -> None:
        runner = slots(4)
        batch = Batch(runner, CHUNK)
        long = answer(runner, CHUNK * 10, tokens=3)
        batch.add(long)
        shorts, steps = [], 0
        while long in batch.reading:
            while batch.places([CHUNK - 1]):
                shorts.append(answer(runner, CHUNK - 1, tokens=1))
                batch.add(shorts[-1])
            batch.step()
            steps += 1
            assert steps <= 2 * 10 + 1
        assert sum(1 for one in shorts if one.sequence.finish_reason) >= steps // 2 - 1
        assert long.sequence.token_ids == alone(long.sequence)

    in_loop(work)


def test_chunks_of_one_token() -> None:
    def work() -> None:
        runner = slots()
        batch = Batch(runner, 1)
        first, second = answer(runner, 9, tokens=3), answer(runner, 6, tokens=3)
        batch.add(first)
        batch.add(second)
        for _ in range(40):
            batch.step()
        assert len(batch) == 0
        for one in (first, second):
            assert len(one.sequence.token_ids) == 3
            assert one.sequence.token_ids == alone(one.sequence)

    in_loop(work)


def test_one_row_through_transformers_takes_the_same_steps() -> None:
    def work() -> None:
        runner = Recorder(TransformersRunner(endless(tiny_llama())))
        batch = Batch(runner, CHUNK)
        assert batch.places([5, 5]) == 1
        one = answer(runner, 50, tokens=4)
        batch.add(one)
        assert batch.places([5, 5]) == 0
        for _ in range(3):
            batch.step()
        assert [kind for kind, _ in runner.passes] == ["prefill", "decode", "decode", "decode"]
        assert len(batch) == 0
        assert one.sequence.token_ids == alone(one.sequence)

    in_loop(work)


# Who is harmed.


async def failed(one: Answer) -> bool:
    try:
        await one.finished()
    except GenerationFailed as error:
        assert str(error) == "The model failed while answering; the server's log says why."
        return True
    return False


def run_all(batch: Batch, steps: int = 60) -> None:
    for _ in range(steps):
        batch.step()
    assert len(batch) == 0


def test_a_prompt_that_breaks_the_pass_harms_no_other() -> None:
    def work() -> Any:
        runner = slots()
        batch = Batch(runner, 100)
        writer = answer(runner, 3)
        batch.add(writer)
        batch.step()
        good, bad, fine = answer(runner, 5), answer(runner, 6), answer(runner, 7)
        runner.fails = lambda kind, rows: kind == "prefill" and bad.sequence in rows
        for one in (good, bad, fine):
            batch.add(one)
        batch.step()
        assert runner.inner.cache.free == 1
        assert bad not in batch.answers
        run_all(batch)
        assert runner.inner.cache.free == 4

        async def check() -> None:
            assert [await failed(one) for one in (writer, good, bad, fine)] == [0, 0, 1, 0]
            for one in (writer, good, fine):
                assert one.result.token_ids == alone(one.sequence)
            assert len(good.result.token_ids) == 20

        return check

    in_loop(work)


def test_an_empty_prompt_harms_no_other_and_does_not_stay() -> None:
    def work() -> Any:
        runner = slots()
        batch = Batch(runner, CHUNK)
        good, empty = answer(runner, 5), answer(runner, 0)
        batch.add(empty)
        batch.add(good)
        batch.step()
        assert batch.answers == [good]
        run_all(batch)

        async def check() -> None:
            assert [await failed(one) for one in (good, empty)] == [False, True]

        return check

    in_loop(work)


def test_a_prompt_that_breaks_in_its_second_chunk() -> None:
    def work() -> Any:
        runner = slots()
        batch = Batch(runner, CHUNK)
        good, bad = answer(runner, 90), answer(runner, 95)
        batch.add(good)
        batch.add(bad)
        runner.fails = lambda kind, rows: (
            kind == "prefill" and bad.sequence in rows and bad.sequence.prompt_read > 0
        )
        run_all(batch)
        assert runner.inner.cache.free == 4

        async def check() -> None:
            assert [await failed(one) for one in (good, bad)] == [False, True]
            assert good.result.token_ids == alone(good.sequence)

        return check

    in_loop(work)


def test_a_decode_that_fails_ends_those_who_write_and_nobody_else() -> None:
    def work() -> Any:
        runner = slots()
        batch = Batch(runner, CHUNK)
        writers = [answer(runner, 4), answer(runner, 5)]
        for one in writers:
            batch.add(one)
        batch.step()
        reader = answer(runner, 60)
        batch.add(reader)
        batch.step()
        runner.fails = lambda kind, rows: kind == "decode"
        batch.step()
        assert batch.answers == [reader]
        assert runner.inner.cache.free == 3
        assert reader.sequence.prompt_read > 0
        runner.fails = lambda kind, rows: False
        late = answer(runner, 6)
        batch.add(late)
        run_all(batch)

        async def check() -> None:
            assert [await failed(one) for one in (*writers, reader, late)] == [1, 1, 0, 0]
            for one in (reader, late):
                assert one.result.token_ids == alone(one.sequence)

        return check

    in_loop(work)


def test_logits_that_are_no_numbers_end_their_own_row() -> None:
    """NaN cannot be drawn from; the next one in the slot does not notice."""

    def work() -> Any:
        runner = slots()
        batch = Batch(runner, 100)
        old, bad = answer(runner, 40, tokens=30), answer(runner, 30, temperature=1.0, seed=1)
        batch.add(old)
        batch.add(bad)
        batch.step()
        cache, slot = runner.inner.cache, bad.sequence.cache
        cache.keys[:, slot, :, :30] = torch.nan
        cache.values[:, slot, :, :30] = torch.nan
        batch.step()
        assert batch.answers == [old]
        young = answer(runner, 4, temperature=1.0, seed=2)
        batch.add(young)
        batch.step()
        assert young.sequence.cache == slot
        run_all(batch)

        async def check() -> None:
            assert [await failed(one) for one in (old, bad, young)] == [0, 1, 0]
            assert old.result.token_ids == alone(old.sequence)
            assert len(young.result.token_ids) == 20

        return check

    in_loop(work)


def test_dropping_frees_the_slot_wherever_the_answer_is() -> None:
    def work() -> Any:
        runner = slots()
        batch = Batch(runner, CHUNK)
        writer, reader, new = answer(runner, 4), answer(runner, 100), answer(runner, 5)
        batch.add(writer)
        batch.step()
        batch.add(reader)
        batch.step()
        batch.add(new)
        assert runner.inner.cache.free == 2
        for one in (writer, reader, new):
            batch.drop(one, GenerationFailed("gone"))
        assert len(batch) == 0
        assert runner.inner.cache.free == 4
        runner.passes.clear()
        batch.step()
        assert runner.passes == []

        async def check() -> None:
            for one in (writer, reader, new):
                with pytest.raises(GenerationFailed, match="gone"):
                    await one.finished()

        return check

    in_loop(work)


def test_whom_a_failing_release_leaves_can_still_be_told() -> None:
    def work() -> None:
        runner = slots()
        batch = Batch(runner, CHUNK)
        one = answer(runner, 4, tokens=2)
        batch.add(one)
        runner.inner.release = lambda sequence: 1 / 0
        with pytest.raises(ZeroDivisionError):
            batch.step()
        assert batch.answers == [one]

    in_loop(work)


def test_started_is_when_an_answer_is_let_in() -> None:
    def work() -> None:
        runner = slots()
        one = answer(runner, 4)
        Batch(runner, CHUNK).add(one)
        assert one.sequence.started > one.sequence.arrived

    in_loop(work)
