"""Many at once: what each gets is what it gets alone, and what goes wrong stays where it is."""

import asyncio
import functools
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from opened import endless, slot_runner
from server import (
    GatedRunner,
    Reply,
    Server,
    events,
    joined,
    leave,
    read_reply,
    serving,
    wait_until,
)
from tiny import save_tiny, tiny_llama, tiny_qwen3

from tutorial_server.api import create_app
from tutorial_server.chat import build_messages
from tutorial_server.config import Settings
from tutorial_server.decoding import new_sequence, run
from tutorial_server.engine import Engine, Request
from tutorial_server.errors import Busy, GenerationFailed, NotReady, TookTooLong
from tutorial_server.models import LLM
from tutorial_server.runner import TransformersRunner
from tutorial_server.sequence import SamplingParams, Sequence
from tutorial_server.slot_runner import SlotRunner
from tutorial_server.steps import Steps

SLOTS = 4
CHUNK = 16
LONG = "the hello " * 30  # some hundred tokens
TWO_STEPS = 4  # passes: each step has one prefill and one decode at most
SETTINGS = Settings(prefill_chunk=CHUNK, max_waiting=8)


class GatedSlots(GatedRunner):
    """Many rows behind a gate; `log` holds what each pass was for."""

    def __init__(self, llm: LLM, slots: int = SLOTS, length: int = 512):
        super().__init__(llm)
        self.slots = slot_runner(llm, slots, length)
        self._inner: Any = self.slots
        self.llm = self.slots.llm
        self.rows = slots
        self.log: list[tuple[str, list[Sequence]]] = []
        self.fails: Callable[[str, Any], Exception | None] = lambda kind, sequences: None

    @property
    def free(self) -> int:
        return self.slots.cache.free

    def prefill(self, sequences: Any, limit: int | None = None) -> list[torch.Tensor | None]:
        found = super().prefill(sequences, limit)
        self._note("prefill", sequences)
        return found

    def decode(self, sequences: Any) -> torch.Tensor:
        found = super().decode(sequences)
        self._note("decode", sequences)
        return found

    def seen(self) -> list[Sequence]:
        """Every sequence that was in a pass, in the order of its first."""
        return list({id(s): s for _, sequences in self.log for s in sequences}.values())

    def _note(self, kind: str, sequences: Any) -> None:
        self.log.append((kind, list(sequences)))
        if error := self.fails(kind, sequences):
            raise error


@pytest.fixture
def runner() -> Iterator[GatedSlots]:
    gate = GatedSlots(endless(tiny_llama()))
    yield gate
    gate.remove()


@pytest.fixture
def server(runner: GatedSlots) -> Iterator[Server]:
    """A server whose gate is open, until a test closes it."""
    with serving(lambda: runner, SETTINGS) as here:
        runner.log.clear()
        yield here
        runner.open()


def alone(llm: LLM, prompt: str, tokens: int, **params: Any) -> tuple[str, list[int]]:
    """The answer through transformers' own forward, with nobody beside it."""
    sequence = new_sequence(llm, prompt, SamplingParams(tokens, **params))
    text = "".join(run(TransformersRunner(llm), sequence))
    return text, sequence.token_ids


@functools.cache
def text_of(prompt: str = "hello", tokens: int = 5) -> str:
    return alone(endless(tiny_llama()), prompt, tokens)[0]


def wait_here(server: Server, count: int) -> None:
    """Wait until so many wait or run: a closed gate holds up who would be let in next."""

    def is_so() -> bool:
        state = server.engine.state()
        return state.waiting + state.running == count

    wait_until(is_so, f"{count} in the engine")


def let_through(runner: GatedSlots, condition: Callable[[], bool]) -> None:
    """Let pass after pass through a closed gate until something is so."""
    runner.wait_begun(1)
    for _ in range(200):
        if condition():
            return
        begun = runner.begun
        runner.allow(1)
        runner.wait_begun(begun + 1)
    raise AssertionError("200 passes changed nothing")


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result(30) for future in [pool.submit(call) for call in calls]]


def assert_goes_on(server: Server, runner: GatedSlots) -> None:
    assert server.generate(token_limit=5)["text"] == text_of()
    server.wait_line(waiting=0, running=0)
    assert runner.free == runner.rows


# What a request gets is what it gets alone.

ASKED: list[dict[str, Any]] = [
    {"prompt": "hello", "token_limit": 30},
    {"prompt": "a", "token_limit": 7, "temperature": 1.0, "seed": 3},
    {"prompt": LONG, "token_limit": 12},
    {"prompt": "using the user", "token_limit": 40, "temperature": 0.7, "top_k": 9, "seed": 4},
    {"prompt": LONG + "z", "token_limit": 25, "temperature": 1.2, "top_p": 0.9, "seed": 5},
    {"prompt": "the the the", "token_limit": 1},
]


@functools.cache
def expected(make: Callable[[], LLM]) -> list[tuple[str, list[int]]]:
    """The text and the ids of all that is asked, each alone."""
    renamed = {"token_limit": "tokens"}
    fields = [{renamed.get(k, k): v for k, v in asked.items()} for asked in ASKED]
    return [alone(endless(make()), **asked) for asked in fields]


@pytest.mark.parametrize("make", [tiny_llama, tiny_qwen3])
def test_eight_at_once_over_http_are_as_alone(make: Any) -> None:
    llm = endless(make())
    # /generate turns thinking off, and so does `new_sequence`.
    wanted = [text for text, _ in expected(make)]
    with serving(lambda: slot_runner(llm, SLOTS, 512), SETTINGS) as server:
        calls = [functools.partial(server.generate, **asked) for asked in ASKED]
        streams = [functools.partial(server.stream, **asked) for asked in ASKED]
        found = at_once(*calls, *streams[:4])
    texts = [body["text"] for body in found[: len(calls)]]
    assert texts == wanted
    assert [joined(stream) for stream in found[len(calls) :]] == wanted[:4]


def submitted(llm: LLM, asked: dict[str, Any]) -> Request:
    fields = {k: v for k, v in asked.items() if k not in ("prompt", "token_limit")}
    params = SamplingParams(asked["token_limit"], **fields)
    return Request(tuple(build_messages(asked["prompt"])), params)


def in_engine(engine: Engine, work: Callable[[], Any], seconds: float = 30) -> Any:
    engine.start()
    wait_until(lambda: engine.state().status != "loading", "the model")
    try:
        return asyncio.run(asyncio.wait_for(work(), seconds))
    finally:
        engine.stop()


@pytest.mark.parametrize("chunk", [1, 7, 1000])
@pytest.mark.parametrize("slots", [1, 3])
def test_whoever_joins_or_leaves_beside_it(slots: int, chunk: int) -> None:
    """Others come and go at random moments; those who stay get their own ids."""
    llm = endless(tiny_llama())
    rng = random.Random(100 * slots + chunk)
    runner = slot_runner(llm, slots, 512)
    engine = Engine(lambda: runner, max_waiting=100, prefill_chunk=chunk)

    async def stays(asked: dict[str, Any]) -> list[int]:
        await asyncio.sleep(rng.random() * 0.05)
        answer = await engine.submit(submitted(llm, asked))
        return (await answer.finished()).token_ids

    async def leaves() -> None:
        await asyncio.sleep(rng.random() * 0.1)
        asked = {"prompt": "a" * rng.randint(0, 80), "token_limit": 200, "seed": 1}
        answer = await engine.submit(submitted(llm, asked))
        await asyncio.sleep(rng.random() * 0.1)
        answer.cancel()
        with pytest.raises(GenerationFailed):
            await answer.finished()

    async def work() -> list[Any]:
        return await asyncio.gather(*map(stays, ASKED), *(leaves() for _ in range(10)))

    found = in_engine(engine, work)
    assert found[: len(ASKED)] == [ids for _, ids in expected(tiny_llama)]
    assert runner.cache.free == slots


def test_the_small_model_answers_many_as_one(small: LLM) -> None:
    prompts = ["What is the sea?", "Count to five.", "Say hello.", "Why is the sky blue? " * 4]
    wanted = [alone(small, prompt, 6)[1] for prompt in prompts]
    engine = Engine(lambda: slot_runner(small, 3, 512), prefill_chunk=24)

    async def work() -> list[list[int]]:
        answers = []
        for prompt in prompts:
            answers.append(
                await engine.submit(Request(tuple(build_messages(prompt)), SamplingParams(6)))
            )
            await asyncio.sleep(0.1)
        return [(await answer.finished()).token_ids for answer in answers]

    assert in_engine(engine, work, 60) == wanted


# The edges of what fits.


def test_a_request_that_fills_its_slot_and_one_that_is_too_long() -> None:
    llm = endless(tiny_llama())
    prompt_tokens = len(new_sequence(llm, "hello", SamplingParams(1)).prompt_ids)
    room = 128 - prompt_tokens
    with serving(lambda: slot_runner(llm, 2, 128), SETTINGS) as server:
        reply = server.post("/generate", prompt="hello", token_limit=room + 1)
        assert reply.status == 422
        assert "128" in reply.json()["detail"]
        for body in at_once(*[functools.partial(server.generate, token_limit=room)] * 3):
            assert body["text"] == text_of(tokens=room)
            assert body["token_count"] == room
        assert server.post("/stream", prompt="hello" * 200, token_limit=1).status == 422
        server.wait_line(waiting=0, running=0)


def test_a_budget_that_holds_nothing_stops_the_engine_with_a_sentence() -> None:
    engine = Engine(lambda: SlotRunner.within(tiny_llama(), 1000.0))
    engine.start()
    wait_until(lambda: engine.state().status == "stopped", "the end")
    assert "--kv-cache-gb" in (engine.state().error or "")
    assert not (engine.state().error or "").startswith("The engine has stopped")


# The line.


def test_a_burst_is_refused_at_once_and_told_when_to_come_again(
    server: Server, runner: GatedSlots
) -> None:
    runner.close()
    places = SLOTS + SETTINGS.max_waiting
    clients = [server.open_stream("/generate", token_limit=5) for _ in range(40)]
    for client in clients:
        client.settimeout(20)
    begun = time.monotonic()
    wait_until(
        lambda: server.engine.state().waiting + server.engine.state().running == places,
        "a full line",
    )
    late = server.post("/generate", prompt="hello")
    assert time.monotonic() - begun < 10
    assert late.status == 429
    assert int(late.headers["retry-after"]) >= 1
    assert "waiting" in late.json()["detail"]
    runner.open()
    replies = [read_reply(client) for client in clients]
    for client in clients:
        client.close()
    assert sorted(reply.status for reply in replies) == [200] * places + [429] * (40 - places)
    for reply in replies:
        if reply.status == 200:
            assert reply.json()["text"] == text_of()
        else:
            assert int(reply.headers["retry-after"]) >= 1
    assert_goes_on(server, runner)


def test_refusing_does_not_wait_for_others_prompts_to_be_encoded(runner: GatedSlots) -> None:
    gate = threading.Event()

    def render(messages: Any, add_generation_prompt: bool = True) -> str:
        if messages[-1]["content"] == "slow":
            gate.wait(20)
        return str(messages[-1]["content"])

    engine = Engine(lambda: runner, Steps(render_chat=render), max_waiting=2)

    async def work() -> None:
        slow = Request(tuple(build_messages("slow")), SamplingParams(2))
        tasks = [asyncio.create_task(engine.submit(slow)) for _ in range(50)]
        done, encoding = await asyncio.wait(tasks, timeout=0.7)
        assert len(encoding) == SLOTS + 2
        assert all(isinstance(task.exception(), Busy) for task in done)
        gate.set()
        for task in encoding:
            assert len((await (await task).finished()).token_ids) == 2

    in_engine(engine, work)


def test_a_place_is_given_back_when_encoding_fails(runner: GatedSlots) -> None:
    engine = Engine(lambda: runner, max_waiting=0)

    async def work() -> None:
        huge = Request(tuple(build_messages("a" * 5000)), SamplingParams(2))
        for _ in range(10):
            results = await asyncio.gather(
                *(engine.submit(huge) for _ in range(SLOTS)), return_exceptions=True
            )
            assert {type(result).__name__ for result in results} == {"TooLong"}
        answer = await engine.submit(Request(tuple(build_messages("hello")), SamplingParams(5)))
        assert (await answer.finished()).text == text_of()

    in_engine(engine, work)


# Leaving.


@pytest.mark.parametrize("how", ["FIN", "RST"])
@pytest.mark.parametrize("path", ["/generate", "/stream"])
def test_leaving_frees_the_slot_within_two_steps(
    server: Server, runner: GatedSlots, path: str, how: str
) -> None:
    """While waiting, between the chunks of a prompt, and in mid-answer."""
    runner.close()
    running = [server.open_stream("/generate", token_limit=60) for _ in range(SLOTS - 1)]
    wait_here(server, SLOTS - 1)
    let_through(runner, lambda: [bool(s.token_ids) for s in runner.seen()] == [True] * 3)
    reader = server.open_stream(path, prompt=LONG, token_limit=50)
    wait_here(server, SLOTS)
    let_through(runner, lambda: len(runner.seen()) == SLOTS and runner.seen()[-1].prompt_read > 0)
    server.wait_line(waiting=0, running=SLOTS)
    waiter = server.open_stream(path, prompt="waits for good", token_limit=50)
    server.wait_line(waiting=1, running=SLOTS)
    reads = runner.slots
    assert reads.cache.free == 0
    half_read = runner.seen()[-1]
    assert 0 < half_read.prompt_read < len(half_read.prompt_ids)

    leave(waiter, how)
    leave(reader, how)
    server.wait_connections(SLOTS - 1)
    begun = runner.begun
    runner.allow(TWO_STEPS)
    server.wait_line(waiting=0, running=SLOTS - 1)
    assert runner.begun <= begun + TWO_STEPS
    assert reads.cache.free == 1

    leave(running.pop(), how)
    server.wait_connections(SLOTS - 2)
    begun = runner.begun
    runner.allow(TWO_STEPS)
    server.wait_line(waiting=0, running=SLOTS - 2)
    assert runner.begun <= begun + TWO_STEPS
    assert reads.cache.free == 2
    runner.open()
    for client in running:
        assert read_reply(client).status == 200
        client.close()
    waited = len(new_sequence(runner.llm, "waits for good", SamplingParams(1)).prompt_ids)
    assert waited not in {len(sequence.prompt_ids) for sequence in runner.seen()}
    assert_goes_on(server, runner)


def test_a_hundred_requests_of_which_every_third_leaves(server: Server, runner: GatedSlots) -> None:
    rng = random.Random(5)
    plan = [(n, rng.choice([1, 3, 10, 40]), rng.random() * 0.03) for n in range(100)]

    def client(number: int, tokens: int, pause: float) -> str:
        prompt = ("hello", "a", LONG)[number % 7 % 3]
        if number % 3 == 0:
            connection = server.open_stream("/stream", prompt=prompt, token_limit=200)
            time.sleep(pause)
            leave(connection, "RST" if number % 2 else "FIN")
            return "left"
        reply: Reply = server.post("/generate", prompt=prompt, token_limit=tokens)
        if reply.status == 200:
            assert reply.json()["text"] == text_of(prompt, tokens)
        return str(reply.status)

    with ThreadPoolExecutor(8) as pool:
        found = [future.result(60) for future in [pool.submit(client, *p) for p in plan]]
    assert found.count("left") == 34
    assert set(found) <= {"left", "200", "429"}
    assert found.count("200") > 40
    assert_goes_on(server, runner)
    assert not runner.slots.cache.keys[:, :, :, 400:].any()


def test_cancelling_in_storms_leaves_nothing(runner: GatedSlots) -> None:
    rng = random.Random(8)
    engine = Engine(lambda: runner, max_waiting=1000, prefill_chunk=5)

    async def one(number: int) -> bool:
        prompt, tokens = "a" * rng.randint(0, 60), rng.randint(1, 30)
        answer = await engine.submit(Request(tuple(build_messages(prompt)), SamplingParams(tokens)))
        for _ in range(rng.randint(0, 3)):
            await asyncio.sleep(0)
            answer.cancel()
        if number % 4 == 0:
            answer.cancel()
        try:
            done = await answer.finished()
        except GenerationFailed:
            return False
        assert done.token_ids == answer.sequence.token_ids
        assert len(done.token_ids) == tokens
        return True

    async def work() -> list[bool]:
        return await asyncio.gather(*(one(number) for number in range(150)))

    finished = in_engine(engine, work, 60)
    assert 0 < sum(finished) < 150
    assert runner.free == SLOTS
    assert (engine.state().waiting, engine.state().running) == (0, 0)


def test_a_client_that_does_not_read_holds_nobody_up(server: Server, runner: GatedSlots) -> None:
    sleeper = server.open_stream("/stream", token_limit=100)
    halves = [server.connect() for _ in range(3)]
    for half in halves:
        half.sendall(b"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{")
    assert server.generate(token_limit=5)["text"] == text_of()
    server.wait_line(waiting=0, running=0)
    for half in halves:
        half.close()
    found = events(read_reply(sleeper).body)
    assert joined(found) == text_of(tokens=100)
    sleeper.close()
    assert_goes_on(server, runner)


# The time limit.


@pytest.fixture
def slow(runner: GatedSlots) -> Iterator[Server]:
    limited = SETTINGS.model_copy(update={"request_seconds": 0.8})
    with serving(lambda: runner, limited) as here:
        runner.log.clear()
        runner.pace = 0.02
        yield here
        runner.pace = 0.0
        runner.open()


def test_a_request_that_takes_too_long(slow: Server, runner: GatedSlots) -> None:
    ask = functools.partial(slow.post, prompt="hello", token_limit=400)
    begun = time.monotonic()
    whole, stream = at_once(functools.partial(ask, "/generate"), functools.partial(ask, "/stream"))
    assert 0.8 <= time.monotonic() - begun < 10
    assert whole.status == 504
    assert "0.8 s" in whole.json()["detail"]
    assert stream.status == 200
    (*pieces, (name, data)) = events(stream.body)
    assert name == "error"
    assert "0.8 s" in data["error"]
    assert pieces
    assert text_of(tokens=400).startswith(joined(pieces))
    assert b"[DONE]" not in stream.body
    runner.pace = 0.0
    assert_goes_on(slow, runner)


def test_waiting_and_reading_count_towards_the_limit(slow: Server, runner: GatedSlots) -> None:
    ask = functools.partial(slow.post, "/generate", token_limit=400)
    asked = [functools.partial(ask, prompt="hello")] * (SLOTS + 2)
    asked[1] = functools.partial(ask, prompt=LONG * 2, token_limit=5)
    runner.pace = 0.05
    begun = time.monotonic()
    replies = at_once(*asked)
    assert time.monotonic() - begun < 10
    assert [reply.status for reply in replies] == [504] * (SLOTS + 2)
    runner.pace = 0.0
    assert_goes_on(slow, runner)


def test_too_long_is_an_error_of_its_own(runner: GatedSlots) -> None:
    engine = Engine(lambda: runner, request_seconds=0.2)

    async def work() -> None:
        runner.pace = 0.05
        answer = await engine.submit(Request(tuple(build_messages("hello")), SamplingParams(400)))
        with pytest.raises(TookTooLong, match=r"0\.2 s"):
            await answer.finished()
        assert answer.sequence.cache is None

    in_engine(engine, work)


# Faults.


def test_a_prompt_that_breaks_harms_no_other(server: Server, runner: GatedSlots) -> None:
    marked = len(new_sequence(runner.llm, LONG, SamplingParams(1)).prompt_ids)

    def fails(kind: str, rows: Any) -> Exception | None:
        broken = [s for s in rows if len(s.prompt_ids) == marked and s.prompt_read > CHUNK]
        return RuntimeError("broken") if kind == "prefill" and broken else None

    runner.fails = fails
    calls = [functools.partial(server.post, "/generate", prompt="hello", token_limit=9)] * 5
    calls.insert(2, functools.partial(server.post, "/generate", prompt=LONG, token_limit=9))
    replies = at_once(*calls)
    assert [reply.status for reply in replies] == [200, 200, 500, 200, 200, 200]
    assert {r.json()["text"] for r in replies if r.status == 200} == {text_of(tokens=9)}
    assert server.ask("GET", "/health").status == 200
    assert_goes_on(server, runner)


def test_a_decode_that_breaks_ends_those_who_write(server: Server, runner: GatedSlots) -> None:
    runner.close()
    clients = [server.open_stream("/generate", token_limit=50) for _ in range(SLOTS + 3)]
    wait_here(server, SLOTS + 3)
    fuse = [RuntimeError("the device fell off the bus")]
    runner.fails = lambda kind, rows: (
        fuse.pop() if kind == "decode" and len(rows) == SLOTS and fuse else None
    )
    runner.open()
    replies = [read_reply(client) for client in clients]
    for client in clients:
        client.close()
    assert sorted(reply.status for reply in replies) == [200] * 3 + [500] * SLOTS
    for reply in replies:
        body = reply.json()
        if reply.status == 200:
            assert body["text"] == text_of(tokens=50)
        else:
            assert body["detail"].endswith("the server's log says why.")
            assert "bus" not in body["detail"]
    assert_goes_on(server, runner)


def dies(kind: str, rows: Any) -> Exception | None:
    raise SystemExit("no more")


@pytest.mark.parametrize("way", ["in a pass", "in a release"])
def test_when_the_engine_s_thread_dies_everybody_is_told(
    server: Server, runner: GatedSlots, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner.close()
    wholes = [server.open_stream("/generate", token_limit=3) for _ in range(SLOTS + 2)]
    wait_here(server, SLOTS + 2)
    stream = server.open_stream("/stream", token_limit=3)
    wait_here(server, SLOTS + 3)
    if way == "in a pass":
        runner.fails = dies
    else:
        monkeypatch.setattr(runner, "release", lambda sequence: 1 / 0)
    begun = time.monotonic()
    runner.open()
    replies = [read_reply(client) for client in (*wholes, stream)]
    assert time.monotonic() - begun < 10
    for reply in replies[:-1]:
        assert reply.status >= 500
        assert "stopped" in reply.json()["detail"]
    if replies[-1].status == 200:
        assert events(replies[-1].body)[-1][0] == "error"
    for client in (*wholes, stream):
        client.close()
    health = server.ask("GET", "/health")
    assert health.status == 503
    assert health.json()["status"] == "stopped"
    assert server.ask("GET", "/ready").status == 503
    for path in ("/generate", "/stream"):
        late = server.post(path, prompt="hello")
        assert late.status == 503
        assert "stopped" in late.json()["detail"]
    state = server.engine.state()
    assert (state.waiting, state.running) == (0, 0)


def test_an_engine_that_died_has_its_gauges_at_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = slot_runner(endless(tiny_llama()), 2, 128)
    with serving(lambda: runner) as server:
        monkeypatch.setattr(runner, "decode", lambda sequences: dies("decode", sequences))
        assert server.post("/generate", prompt="hello", token_limit=5).status == 503
        wait_until(lambda: server.engine.state().cache_usage == 0.0, "an empty cache", 5)
        assert (
            b'kv_cache_usage_perc{model_name="tiny-llama"} 0.0'
            in server.ask("GET", "/metrics").body
        )


def test_a_cancel_whose_release_fails_still_tells_those_who_wait(runner: GatedSlots) -> None:
    engine = Engine(lambda: runner, max_waiting=20)

    async def work() -> None:
        runner.close()
        hello = Request(tuple(build_messages("hello")), SamplingParams(100))
        answers = [await engine.submit(hello) for _ in range(SLOTS + 4)]
        runner.allow(2)
        while engine.state().running < SLOTS:
            await asyncio.sleep(0.001)
        runner.release = lambda sequence: 1 / 0  # type: ignore[method-assign]
        for answer in answers[1 : SLOTS + 3]:
            answer.cancel()
        runner.open()
        for answer in answers:
            with pytest.raises(GenerationFailed):
                await answer.finished()
        with pytest.raises(NotReady):
            await engine.submit(hello)

    in_engine(engine, work)
    assert "ZeroDivisionError" in (engine.state().error or "")


def test_a_poisoned_answer_does_not_reach_the_next_in_its_slot(
    server: Server, runner: GatedSlots
) -> None:
    with server.open_stream("/stream", prompt=LONG, token_limit=100) as old:
        wait_until(lambda: any(kind == "decode" for kind, _ in runner.log), "the old one")
        runner.close()
        runner.wait_begun(1)
        bad = server.open_stream("/generate", prompt=LONG + "z", token_limit=50, temperature=1)
        wait_here(server, 2)
        runner.allow(2)
        runner.wait_begun(3)
        assert runner.free == SLOTS - 2
        cache = runner.slots.cache
        cache.keys[:, 1, :, :CHUNK] = torch.nan
        cache.values[:, 1, :, :CHUNK] = torch.nan
        runner.open()
        assert read_reply(bad).status == 500
        bad.close()
        body = server.generate(token_limit=30)
        assert body["text"] == text_of(tokens=30)
        assert joined(events(read_reply(old).body)) == text_of(LONG, 100)
    assert_goes_on(server, runner)


# One row, and tokens one by one.


def test_one_row_and_chunks_of_one_token() -> None:
    settings = Settings(prefill_chunk=1, max_running=1, max_waiting=8)
    llm = endless(tiny_llama())
    with serving(lambda: slot_runner(llm, 1, 512), settings) as server:
        calls = [functools.partial(server.generate, prompt, token_limit=4) for prompt in "abcd"]
        found = [body["text"] for body in at_once(*calls)]
        assert found == [text_of(prompt, 4) for prompt in "abcd"]
        server.wait_line(waiting=0, running=0)


def test_the_app_itself_opens_the_model(tmp_path: Any) -> None:
    """From settings to slots, with nothing put in between."""
    save_tiny(tmp_path)
    settings = Settings(model=str(tmp_path), max_running=3, kv_cache_gb=0.01)
    assert isinstance(create_app(settings).state.engine, Engine)
    with serving(None, settings) as server:
        bodies = at_once(*[functools.partial(server.generate, token_limit=9)] * 3)
        wanted = alone(tiny_llama(), "hello", 9)[0]
        assert [body["text"] for body in bodies] == [wanted] * 3
        assert isinstance(server.engine._runner, SlotRunner)
        assert server.engine._runner.rows == 3
        assert json.loads(server.ask("GET", "/ready").body)["status"] == "ready"
