"""The engine without HTTP: its line, its thread, its ends."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import torch
from server import GatedRunner, wait_until
from tiny import CONTEXT_LENGTH, tiny_llama

from tutorial_server.chat import build_messages, encode_chat
from tutorial_server.decoding import generate_cached
from tutorial_server.engine import Engine, Request
from tutorial_server.errors import Busy, GenerationFailed, ModelError, NotReady, TooLong
from tutorial_server.runner import Runner, TransformersRunner
from tutorial_server.sampling import select_next_token
from tutorial_server.sequence import SamplingParams
from tutorial_server.steps import Steps


def request(prompt: str = "hello", tokens: int = 5, **params: Any) -> Request:
    return Request(tuple(build_messages(prompt)), SamplingParams(tokens, **params))


def text_of(prompt: str = "hello", tokens: int = 5) -> str:
    return generate_cached(tiny_llama(), prompt, tokens).text


@pytest.fixture
def runner() -> Iterator[GatedRunner]:
    gate = GatedRunner(tiny_llama())
    yield gate
    gate.remove()


@pytest.fixture
def start(runner: GatedRunner) -> Iterator[Callable[..., Engine]]:
    """Start engines, wait for their model, close the gate; stop them at the end."""
    engines: list[Engine] = []

    def start(load: Callable[[], Runner] | None = None, **kwargs: Any) -> Engine:
        engine = Engine(load or (lambda: runner), **kwargs)
        engines.append(engine)
        engine.start()
        wait_until(lambda: engine.state().status != "loading", "the model")
        runner.close()
        return engine

    yield start
    runner.open()
    for engine in engines:
        engine.stop()


def in_loop(work: Callable[[], Awaitable[Any]]) -> Any:
    return asyncio.run(asyncio.wait_for(work(), 20))  # type: ignore[arg-type]


async def until(condition: Callable[[], Any]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


# The face.


def test_an_answer_comes_in_pieces_and_then_whole(start: Any, runner: GatedRunner) -> None:
    engine = start()

    async def work() -> None:
        answer = await engine.submit(request())
        with pytest.raises(ValueError, match="not finished"):
            _ = answer.result
        runner.open()
        pieces = [piece async for piece in answer]
        assert "".join(pieces) == answer.result.text == text_of()
        assert all(pieces)
        assert len(pieces) > 1
        assert answer.result.token_ids == generate_cached(tiny_llama(), "hello", 5).token_ids
        assert answer.sequence.cache is None

    in_loop(work)


def test_finished_is_the_result(start: Any, runner: GatedRunner) -> None:
    engine = start()
    runner.open()

    async def work() -> None:
        answer = await engine.submit(request())
        assert await answer.finished() == answer.result
        assert answer.result.text == text_of()

    in_loop(work)


def test_the_state_follows(start: Any, runner: GatedRunner) -> None:
    engine = start()
    assert (engine.state().status, engine.state().model) == ("ready", "tiny-llama")
    assert (engine.state().waiting, engine.state().running) == (0, 0)

    async def work() -> None:
        answers = [await engine.submit(request()) for _ in range(3)]
        await until(lambda: engine.state().running == 1)
        assert engine.state().waiting == 2
        runner.open()
        for answer in answers:
            await answer.finished()
        await until(lambda: engine.state().running == 0)

    in_loop(work)
    assert (engine.state().waiting, engine.state().error) == (0, None)
    engine.stop()
    assert engine.state().status == "stopped"


def test_two_engines_do_not_meet(start: Any, runner: GatedRunner) -> None:
    held = start()
    free = Engine(lambda: TransformersRunner(tiny_llama(seed=1)))
    free.start()
    wait_until(lambda: free.state().status == "ready", "the other engine")

    async def work() -> None:
        waiting = await held.submit(request())
        answer = await free.submit(request())
        assert (await answer.finished()).text == generate_cached(tiny_llama(1), "hello", 5).text
        runner.open()
        assert (await waiting.finished()).text == text_of()

    in_loop(work)
    free.stop()


# What is refused.


def test_not_ready_while_loading(runner: GatedRunner) -> None:
    gate = threading.Event()

    def slowly() -> Runner:
        gate.wait(20)
        return runner

    engine = Engine(slowly)
    engine.start()
    assert engine.state().status == "loading"
    with pytest.raises(NotReady, match="loading"):
        asyncio.run(engine.submit(request()))  # type: ignore[arg-type]
    gate.set()
    wait_until(lambda: engine.state().status == "ready", "the model")
    engine.stop()
    with pytest.raises(NotReady, match="stopped"):
        asyncio.run(engine.submit(request()))  # type: ignore[arg-type]


def test_too_long_leaves_nothing_behind(start: Any, runner: GatedRunner) -> None:
    engine = start()
    prompt_tokens = len(encode_chat(tiny_llama(), build_messages("hello")))
    room = CONTEXT_LENGTH - prompt_tokens

    async def work() -> None:
        with pytest.raises(TooLong, match=str(CONTEXT_LENGTH)):
            await engine.submit(request(tokens=room + 1))
        assert (engine.state().waiting, engine.state().running) == (0, 0)
        answer = await engine.submit(request(tokens=room))
        answer.cancel()
        runner.open()

    in_loop(work)
    assert all(len(sequence.prompt_ids) == prompt_tokens for sequence in runner.sequences)


def test_busy_counts_those_who_wait_beside_those_who_run(start: Any, runner: GatedRunner) -> None:
    engine = start(max_waiting=2)

    async def work() -> None:
        answers = [await engine.submit(request()) for _ in range(3)]
        await until(lambda: engine.state().running == 1)
        with pytest.raises(Busy):
            await engine.submit(request())
        answers[1].cancel()
        runner.open()
        await answers[0].finished()
        await answers[2].finished()
        assert (await (await engine.submit(request())).finished()).text == text_of()

    in_loop(work)


def test_many_submitted_at_once_do_not_overfill_the_line(start: Any, runner: GatedRunner) -> None:
    engine = start(max_waiting=2)

    async def work() -> None:
        results = await asyncio.gather(
            *(engine.submit(request()) for _ in range(10)), return_exceptions=True
        )
        assert sum(isinstance(result, Busy) for result in results) in (7, 8)
        runner.open()
        for answer in results:
            if not isinstance(answer, BaseException):
                await answer.finished()

    in_loop(work)


# Order and threads.


def test_the_order_of_arrival_is_the_order_of_work(start: Any, runner: GatedRunner) -> None:
    engine = start()

    async def work() -> None:
        answers = await asyncio.gather(*(engine.submit(request("a" * n, 2)) for n in range(1, 9)))
        runner.open()
        for answer in answers:
            await answer.finished()

    in_loop(work)
    lengths = [len(sequence.prompt_ids) for sequence in runner.sequences]
    assert lengths == sorted(lengths)
    assert len(set(lengths)) == 8


def test_one_thread_calls_the_model_and_another_one_encodes(runner: GatedRunner) -> None:
    models: set[str] = set()
    encoders: set[str] = set()

    def select(*args: Any) -> torch.Tensor:
        models.add(threading.current_thread().name)
        return select_next_token(*args)

    def render(messages: Any, add_generation_prompt: bool = True) -> str:
        encoders.add(threading.current_thread().name)
        return "".join(message["content"] for message in messages)

    engine = Engine(lambda: runner, Steps(render_chat=render, select_next_token=select))
    engine.start()
    wait_until(lambda: engine.state().status == "ready", "the model")
    encoders.clear()

    async def work() -> None:
        answers = await asyncio.gather(*(engine.submit(request()) for _ in range(5)))
        for answer in answers:
            await answer.finished()

    in_loop(work)
    engine.stop()
    assert models == {"engine"}
    assert len(encoders) == 1
    assert encoders.isdisjoint({"engine", "MainThread"})


def test_times_count_from_arrival_encoding_included(start: Any, runner: GatedRunner) -> None:
    def render(messages: Any, add_generation_prompt: bool = True) -> str:
        time.sleep(0.05)
        return "".join(message["content"] for message in messages)

    engine = start(steps=Steps(render_chat=render))
    runner.open()

    async def work() -> None:
        before = time.perf_counter()
        done = await (await engine.submit(request())).finished()
        around = (time.perf_counter() - before) * 1e3
        assert 50 <= done.queue_ms < done.ttft_ms < done.latency_ms < around

    in_loop(work)


# Several rows: the engine must not know how many there are.


class TwoRows(TransformersRunner):
    rows = 2

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.batches: list[int] = []
        self.wrong: Callable[[torch.Tensor], Any] | None = None

    def decode(self, sequences: Any) -> torch.Tensor:
        self.batches.append(len(sequences))
        logits = super().decode(sequences)
        wrong, self.wrong = self.wrong, None
        return wrong(logits) if wrong else logits


def two_rows(start: Any) -> tuple[Engine, TwoRows]:
    runner = TwoRows(tiny_llama())
    engine = start(lambda: runner)
    runner.batches.clear()
    return engine, runner


def test_two_rows_answer_as_one_does(start: Any) -> None:
    engine, runner = two_rows(start)
    wanted = {"a": 9, "b": 4, "c": 6, "hello": 3, "z": 1}

    async def work() -> None:
        answers = [await engine.submit(request(prompt, n)) for prompt, n in wanted.items()]
        for answer, (prompt, n) in zip(answers, wanted.items(), strict=True):
            assert (await answer.finished()).text == text_of(prompt, n)
            assert answer.sequence.cache is None

    in_loop(work)
    assert 2 in runner.batches
    assert max(runner.batches) == 2


WRONG_LOGITS = {
    "too few rows": lambda logits: logits[:0],
    "too many rows": lambda logits: torch.cat([logits, logits]),
    "none": lambda logits: None,
    "not numbers": lambda logits: "logits",
    "one dimension": lambda logits: logits[0],
}


@pytest.mark.parametrize("name", WRONG_LOGITS)
def test_wrong_logits_break_those_who_run_and_nobody_else(start: Any, name: str) -> None:
    engine, runner = two_rows(start)

    async def work() -> None:
        runner.wrong = WRONG_LOGITS[name]
        answers = [await engine.submit(request(tokens=20)) for _ in range(4)]
        failed = 0
        for answer in answers:
            try:
                assert (await answer.finished()).text == text_of(tokens=20)
            except GenerationFailed as error:
                assert "log says why" in str(error)
                failed += 1
            assert answer.sequence.cache is None
        assert failed in (1, 2)
        assert (await (await engine.submit(request())).finished()).text == text_of()

    in_loop(work)
    assert engine.state().status == "ready"


def test_a_draw_that_fails_breaks_its_own_row_only(start: Any) -> None:
    def select(logits: Any, temperature: float, *args: Any) -> torch.Tensor:
        if temperature == 0.5:
            raise RuntimeError("no draw today")
        return select_next_token(logits, temperature, *args)

    runner = TwoRows(tiny_llama())
    engine = start(lambda: runner, steps=Steps(select_next_token=select))

    async def work() -> None:
        good = await engine.submit(request(tokens=20))
        bad = await engine.submit(request(temperature=0.5))
        with pytest.raises(GenerationFailed):
            await bad.finished()
        assert (await good.finished()).text == text_of(tokens=20)

    in_loop(work)


# Cancelling.


def test_cancelling_while_running(start: Any, runner: GatedRunner) -> None:
    engine = start()

    async def work() -> None:
        answer = await engine.submit(request(tokens=100))
        runner.allow(3)
        await until(lambda: runner.begun == 4)
        answer.cancel()
        answer.cancel()
        runner.open()
        with pytest.raises(GenerationFailed, match="cancelled"):
            await answer.finished()
        assert runner.passes == 4
        assert answer.sequence.cache is None
        await until(lambda: engine.state().running == 0)

    in_loop(work)


def test_cancelling_while_waiting_costs_nothing(start: Any, runner: GatedRunner) -> None:
    engine = start()

    async def work() -> None:
        first, second, third = [await engine.submit(request(tokens=2)) for _ in range(3)]
        second.cancel()
        runner.open()
        with pytest.raises(GenerationFailed, match="cancelled"):
            await second.finished()
        assert (await third.finished()).text == text_of(tokens=2)
        await first.finished()
        assert len(runner.sequences) == 2

    in_loop(work)


def test_cancelling_what_is_finished_changes_nothing(start: Any, runner: GatedRunner) -> None:
    engine = start()
    runner.open()

    async def work() -> None:
        answer = await engine.submit(request())
        result = await answer.finished()
        answer.cancel()
        assert answer.result == result
        assert not answer.sequence.cancelled

    in_loop(work)


def test_a_caller_that_gives_up_while_encoding_leaves_nothing(
    start: Any, runner: GatedRunner
) -> None:
    gate = threading.Event()
    held = threading.Event()

    def render(messages: Any, add_generation_prompt: bool = True) -> str:
        if "wait" in messages[-1]["content"] or held.is_set():
            gate.wait(20)
        return "".join(message["content"] for message in messages)

    engine = start(steps=Steps(render_chat=render))

    async def work() -> None:
        held.set()
        task = asyncio.create_task(engine.submit(request("hello")))  # type: ignore[arg-type]
        await asyncio.sleep(0.02)
        task.cancel()
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        runner.open()
        await (await engine.submit(request(tokens=1))).finished()
        assert len(runner.sequences) == 1

    in_loop(work)


def test_a_loop_that_has_closed_does_not_stop_the_engine(start: Any, runner: GatedRunner) -> None:
    engine = start()

    async def leave() -> None:
        await engine.submit(request(tokens=3))

    in_loop(leave)
    runner.open()
    wait_until(lambda: engine.state().running == 0, "the answer nobody waits for")

    async def work() -> None:
        assert (await (await engine.submit(request())).finished()).text == text_of()

    in_loop(work)


# Stopping.


def test_stopping_ends_who_runs_and_who_waits(start: Any, runner: GatedRunner) -> None:
    engine = start()

    async def work() -> None:
        answers = [await engine.submit(request(tokens=100)) for _ in range(3)]
        await until(lambda: engine.state().running == 1)
        begun = time.perf_counter()
        engine.stop(timeout=0)
        for answer in answers:
            with pytest.raises(GenerationFailed, match="stopped"):
                await answer.finished()
        assert time.perf_counter() - begun < 1, "a pass that hangs holds nobody up"
        with pytest.raises(NotReady, match="stopped"):
            await engine.submit(request())
        runner.open()

    in_loop(work)
    engine.stop()
    assert runner.passes <= 2, "the step it was in: a prefill and a decode"
    assert (engine.state().waiting, engine.state().running) == (0, 0)
    assert engine.state().error is None
    assert "engine" not in [thread.name for thread in threading.enumerate()]


def test_stopping_an_idle_engine_ends_its_thread(start: Any) -> None:
    engine = start()
    begun = time.perf_counter()
    engine.stop()
    assert time.perf_counter() - begun < 1
    assert "engine" not in [thread.name for thread in threading.enumerate()]


def test_stopping_while_prompts_are_encoded_refuses_them(start: Any) -> None:
    gate = threading.Event()

    def render(messages: Any, add_generation_prompt: bool = True) -> str:
        if ready.is_set():
            gate.wait(20)
        return "".join(message["content"] for message in messages)

    ready = threading.Event()
    engine = start(steps=Steps(render_chat=render))
    ready.set()

    async def work() -> None:
        tasks = [asyncio.create_task(engine.submit(request())) for _ in range(3)]
        await asyncio.sleep(0.02)
        engine.stop(timeout=0)
        gate.set()
        for task in tasks:
            with pytest.raises(NotReady, match="stopped"):
                await task

    in_loop(work)


def test_stopping_does_not_wait_for_a_load() -> None:
    gate = threading.Event()

    def slowly() -> Runner:
        gate.wait(20)
        raise ModelError("too late")

    engine = Engine(slowly)
    engine.start()
    begun = time.perf_counter()
    engine.stop()
    assert time.perf_counter() - begun < 1
    assert engine.state().status == "stopped"
    gate.set()


def test_stopping_twice_or_before_the_start() -> None:
    engine = Engine(lambda: TransformersRunner(tiny_llama()))
    engine.stop()
    engine.stop()
    assert engine.state().status == "stopped"


# Loads and ends that go wrong.


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ModelError("The disk is full; make room."), "The disk is full; make room."),
        (ZeroDivisionError("oh"), "The engine has stopped: ZeroDivisionError: oh"),
        (SystemExit(1), "The engine has stopped: SystemExit: 1"),
    ],
    ids=["ours", "a fault", "an exit"],
)
def test_a_load_that_fails(error: BaseException, sentence: str) -> None:
    stopped: list[str | None] = []

    def fails() -> Runner:
        raise error

    engine = Engine(fails)
    engine.on_stopped = lambda: stopped.append(engine.state().error)
    engine.start()
    wait_until(lambda: stopped, "the end")
    assert stopped == [sentence]
    assert engine.state().status == "stopped"
    engine.stop()


def broken_prefill(model: Any, input_ids: torch.Tensor) -> Any:
    raise NotImplementedError("prefill")


def wide_decode(model: Any, token: torch.Tensor, cache: Any) -> Any:
    return torch.zeros(3, 10), cache


@pytest.mark.parametrize(
    "steps",
    [
        Steps(prefill=broken_prefill),
        Steps(decode=wide_decode),
        Steps(render_chat=lambda messages, add_generation_prompt=True: None),  # type: ignore
        Steps(select_next_token=lambda *args: torch.zeros(1, 2)),
        Steps(new_text=lambda *args, **kwargs: None),  # type: ignore
    ],
    ids=["prefill", "decode", "render_chat", "select_next_token", "new_text"],
)
def test_a_step_that_never_works_is_found_before_anybody_is_let_in(steps: Steps) -> None:
    def load() -> Runner:
        return TransformersRunner(tiny_llama(), steps.prefill, steps.decode)

    engine = Engine(load, steps)
    engine.start()
    wait_until(lambda: engine.state().status == "stopped", "the end")
    assert engine.state().error is not None
    assert engine.state().error.startswith("The engine has stopped: ")
    engine.stop()


def test_a_runner_that_cannot_release_stops_the_engine_and_tells_everybody(
    start: Any, runner: GatedRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start()

    def fails(sequence: Any) -> None:
        raise RuntimeError("stuck")

    monkeypatch.setattr(runner, "release", fails)

    async def work() -> None:
        answers = [await engine.submit(request(tokens=2)) for _ in range(3)]
        runner.open()
        for answer in answers:
            with pytest.raises(GenerationFailed, match="stopped"):
                await answer.finished()

    in_loop(work)
    engine.stop()
    assert engine.state().error == "The engine has stopped: RuntimeError: stuck"
    assert (engine.state().waiting, engine.state().running) == (0, 0)
