"""An answer between two threads: what is put in comes out, in order, once, with its end."""

import asyncio
import threading
from typing import Any

import pytest
from tiny import tiny_llama

from tutorial_server.answer import Answer
from tutorial_server.errors import GenerationFailed
from tutorial_server.sequence import SamplingParams, Sequence


def new_sequence() -> Sequence:
    return Sequence(tiny_llama(), [1, 2, 3], SamplingParams(5))


async def collect(answer: Answer) -> list[str]:
    return [piece async for piece in answer]


def from_a_thread(*calls: tuple[Any, ...]) -> None:
    def work() -> None:
        for call, *args in calls:
            call(*args)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_pieces_come_in_order_and_wake_the_loop() -> None:
    async def work() -> None:
        answer = Answer(new_sequence(), lambda: None)
        task = asyncio.create_task(collect(answer))
        await asyncio.sleep(0)
        wanted = [str(number) for number in range(200)]
        puts = [(answer.put, piece) for piece in wanted]
        await asyncio.to_thread(from_a_thread, *puts, (answer.finish,))
        assert await asyncio.wait_for(task, 5) == wanted

    asyncio.run(work())


def test_what_was_put_before_a_failure_comes_first() -> None:
    async def work() -> None:
        answer = Answer(new_sequence(), lambda: None)
        from_a_thread((answer.put, "a"), (answer.fail, GenerationFailed("It broke.")))
        seen = []
        with pytest.raises(GenerationFailed, match=r"^It broke\.$"):
            async for piece in answer:
                seen.append(piece)
        assert seen == ["a"]

    asyncio.run(work())


def test_the_first_end_counts() -> None:
    async def work() -> None:
        answer = Answer(new_sequence(), lambda: None)
        from_a_thread(
            (answer.fail, GenerationFailed("Stopped.")), (answer.put, "late"), (answer.finish,)
        )
        with pytest.raises(GenerationFailed, match="Stopped"):
            await answer.finished()

    asyncio.run(work())


def test_no_result_before_the_end() -> None:
    async def work() -> None:
        answer = Answer(new_sequence(), lambda: None)
        with pytest.raises(ValueError, match="not finished"):
            _ = answer.result

    asyncio.run(work())


def test_cancelling_marks_the_sequence_and_tells_once_each_time() -> None:
    async def work() -> None:
        told: list[str] = []
        answer = Answer(new_sequence(), lambda: told.append("cancel"))
        assert not answer.sequence.cancelled
        answer.cancel()
        assert answer.sequence.cancelled
        assert told == ["cancel"]

    asyncio.run(work())


def test_cancelling_a_finished_answer_does_nothing() -> None:
    async def work() -> None:
        told: list[str] = []
        answer = Answer(new_sequence(), lambda: told.append("cancel"))
        answer.sequence.finish_reason = "stop"
        answer.cancel()
        assert not answer.sequence.cancelled
        assert told == []

    asyncio.run(work())


def test_a_closed_loop_is_nobody_waiting() -> None:
    async def make() -> Answer:
        return Answer(new_sequence(), lambda: None)

    answer = asyncio.run(make())
    answer.put("a")
    answer.fail(GenerationFailed("late"))
    answer.finish()
    assert answer.sequence.finish_reason is None


def test_each_answer_has_its_own_id() -> None:
    async def work() -> None:
        ids = {Answer(new_sequence(), lambda: None).request_id for _ in range(100)}
        assert len(ids) == 100
        assert all(set(id_) <= set("0123456789abcdef") for id_ in ids)

    asyncio.run(work())
