"""The numbers add up: read as a dashboard reads them, through Prometheus' own parser."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from server import PATIENCE, GatedRunner, Server, gated, leave, read_reply, serving, wait_until
from tiny import tiny_llama

from tutorial_server.config import Settings
from tutorial_server.engine import Engine, Request
from tutorial_server.metrics import ENDINGS, PREFIX, Metrics
from tutorial_server.models import LLM
from tutorial_server.runner import Runner, TransformersRunner
from tutorial_server.sequence import SamplingParams
from tutorial_server.slot_runner import SlotRunner
from tutorial_server.steps import Steps

HISTOGRAMS = (
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
)
COUNTERS = ("prompt_tokens_total", "generation_tokens_total", "request_success_total")
GAUGES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
RUNNERS: dict[str, Callable[[LLM], Runner]] = {
    "slots": lambda llm: SlotRunner.within(llm, 3e6, most=4),
    "transformers": TransformersRunner,
}


class Numbers:
    """One look at /metrics: values by name, endings by their reason."""

    def __init__(self, text: str, model: str = "tiny-llama"):
        self.kinds: dict[str, str] = {}
        self.values: dict[str, float] = {}
        self.endings: dict[str, float] = {}
        self.buckets: dict[str, list[float]] = {}
        for family in text_string_to_metric_families(text):
            self.kinds[family.name.removeprefix(PREFIX)] = family.type
            for sample in family.samples:
                assert sample.name.startswith(PREFIX)
                assert sample.labels["model_name"] == model
                self._take(sample.name.removeprefix(PREFIX), sample.labels, sample.value)

    def _take(self, name: str, labels: dict[str, str], value: float) -> None:
        if "finished_reason" in labels:
            if name == "request_success_total":
                self.endings[labels["finished_reason"]] = value
        elif "le" in labels:
            self.buckets.setdefault(name.removesuffix("_bucket"), []).append(value)
        else:
            assert name not in self.values, "one series each"
            self.values[name] = value

    def __getitem__(self, name: str) -> float:
        return self.values[name]

    def ended(self) -> dict[str, float]:
        """The endings that have happened."""
        return {ending: count for ending, count in self.endings.items() if count}


def look(server: Server, model: str = "tiny-llama") -> Numbers:
    reply = server.ask("GET", "/metrics")
    assert reply.status == 200
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return Numbers(reply.body.decode(), model)


def assert_idle(server: Server) -> None:
    numbers = look(server)
    assert {name: numbers[name] for name in GAUGES} == dict.fromkeys(GAUGES, 0.0)


def endless() -> LLM:
    return replace(tiny_llama(), stop_ids=frozenset())


@pytest.fixture(params=RUNNERS)
def server(request: Any) -> Iterator[Server]:
    with serving(lambda: RUNNERS[request.param](endless())) as here:
        yield here


@pytest.fixture
def closed() -> Iterator[tuple[Server, GatedRunner]]:
    with gated(endless(), Settings(max_waiting=2)) as pair:
        yield pair


def test_all_is_there_from_the_beginning(server: Server) -> None:
    numbers = look(server)
    for name in HISTOGRAMS:
        assert numbers.kinds[name] == "histogram"
        assert numbers[f"{name}_count"] == numbers[f"{name}_sum"] == 0
    for name in GAUGES:
        assert numbers.kinds[name] == "gauge"
        assert numbers[name] == 0
    assert numbers["prompt_tokens_total"] == numbers["generation_tokens_total"] == 0, "no warm-up"
    assert numbers.endings == dict.fromkeys(ENDINGS, 0)


def test_requests_and_tokens_add_up_exactly(server: Server) -> None:
    R, N = 9, 7

    def one(number: int) -> tuple[int, int]:
        if number % 3 == 0:
            body = {"messages": [{"role": "user", "content": "a" * number}], "max_tokens": N}
            usage = server.post("/v1/chat/completions", body).json()["usage"]
            return usage["prompt_tokens"], usage["completion_tokens"]
        prompt = "hello " * number
        if number % 3 == 1:
            end = server.stream(prompt, token_limit=N)[-2][1]
        else:
            end = server.generate(prompt, token_limit=N)
        return end["prompt_tokens"], end["token_count"]

    with ThreadPoolExecutor(R) as clients:
        told = list(clients.map(one, range(1, R + 1)))
    numbers = look(server)
    assert [tokens for _, tokens in told] == [N] * R
    assert numbers["time_to_first_token_seconds_count"] == R
    assert numbers["inter_token_latency_seconds_count"] == R * (N - 1)
    assert numbers["generation_tokens_total"] == R * N
    assert numbers["prompt_tokens_total"] == sum(prompt for prompt, _ in told)
    assert numbers["e2e_request_latency_seconds_count"] == R
    assert numbers["request_queue_time_seconds_count"] == R
    assert numbers.ended() == {"length": R}
    assert_idle(server)
    for name in HISTOGRAMS:
        assert numbers.buckets[name] == sorted(numbers.buckets[name]), "buckets hold one another"
        assert numbers.buckets[name][-1] == numbers[f"{name}_count"]


def test_seconds_are_those_of_the_answers(server: Server) -> None:
    timings = [server.generate(token_limit=5)["timing"] for _ in range(3)]
    numbers = look(server)
    for name, key in (
        ("time_to_first_token_seconds", "ttft_ms"),
        ("e2e_request_latency_seconds", "latency_ms"),
        ("request_queue_time_seconds", "queue_ms"),
    ):
        seconds = sum(timing[key] for timing in timings) / 1e3
        assert numbers[f"{name}_sum"] == pytest.approx(seconds, abs=1e-5)
    gaps = numbers["e2e_request_latency_seconds_sum"] - numbers["time_to_first_token_seconds_sum"]
    assert numbers["inter_token_latency_seconds_sum"] == pytest.approx(gaps, abs=1e-9)


def test_an_end_of_turn_is_no_token() -> None:
    """A step chooses two tokens, then the end; the answer tells of two, and so do the numbers."""
    end = min(tiny_llama().stop_ids)
    script: list[int] = []

    def select(logits: Any, *rest: Any) -> Any:
        script.append(end if len(script) % 3 == 2 else 5)
        return logits.new_full((1, 1), script[-1]).long()

    steps = Steps(select_next_token=select)
    with serving(lambda: TransformersRunner(tiny_llama()), steps=steps) as here:
        script.clear()  # of the warm-up
        for _ in range(4):
            answer = here.generate(token_limit=9)
            assert (answer["token_count"], answer["finish_reason"]) == (2, "stop")
        numbers = look(here)
        assert numbers["generation_tokens_total"] == 4 * 2
        assert numbers["time_to_first_token_seconds_count"] == 4
        assert numbers["inter_token_latency_seconds_count"] == 4 * 1
        assert numbers.ended() == {"stop": 4}
        script[:] = [5, 5]
        assert here.generate(token_limit=9)["token_count"] == 0
        assert look(here)["generation_tokens_total"] == 4 * 2
        assert look(here)["time_to_first_token_seconds_count"] == 4
        assert look(here)["prompt_tokens_total"] == 5 * answer["prompt_tokens"]
        assert look(here).ended() == {"stop": 5}


def test_gauges_tell_how_things_stand(closed: tuple[Server, GatedRunner]) -> None:
    here, runner = closed
    clients = []
    for waiting in (0, 1, 2):
        clients.append(here.open_stream(token_limit=3))
        here.wait_line(waiting=waiting, running=1)
    numbers = look(here)
    assert (numbers["num_requests_running"], numbers["num_requests_waiting"]) == (1, 2)
    assert numbers["request_queue_time_seconds_count"] == 1
    assert here.post("/generate", prompt="hello").status == 429
    assert look(here).ended() == {"refused": 1}
    runner.open()
    for client in clients:
        assert read_reply(client).body.endswith(b"data: [DONE]\n\n")
        client.close()
    assert look(here).ended() == {"refused": 1, "length": 3}
    assert_idle(here)


def test_cache_usage_is_the_part_of_the_slots_that_is_taken() -> None:
    runner = SlotRunner.within(endless(), 3e6, most=4)

    def select(logits: Any, *rest: Any) -> Any:
        time.sleep(0.005)  # long enough to be looked at
        return logits.argmax(-1, keepdim=True)

    with serving(lambda: runner, steps=Steps(select_next_token=select)) as here:
        slots = runner.rows
        assert slots > 1
        clients = [here.open_stream(token_limit=400) for _ in range(2)]
        here.wait_line(waiting=0, running=2)
        wait_until(lambda: look(here)["kv_cache_usage_perc"] == 2 / slots, "two slots taken")
        leave(clients[0], "FIN")
        wait_until(lambda: look(here)["kv_cache_usage_perc"] == 1 / slots, "one slot taken")
        leave(clients[1], "RST")
        here.wait_line(waiting=0, running=0)
        assert_idle(here)
        assert look(here).ended() == {"cancelled": 2}


@pytest.mark.parametrize("how", ["FIN", "RST"])
def test_who_leaves_is_counted_once(closed: tuple[Server, GatedRunner], how: str) -> None:
    """One leaves while its answer runs, one while it waits."""
    here, runner = closed
    clients = [here.open_stream(token_limit=50)]
    runner.allow(4)
    runner.wait_begun(5)
    clients.append(here.open_stream("/generate", token_limit=50))
    here.wait_line(waiting=1, running=1)
    for client in clients:
        leave(client, how)
    here.wait_connections(0)
    runner.open()
    here.wait_line(waiting=0, running=0)
    numbers = look(here)
    assert numbers.ended() == {"cancelled": 2}
    assert numbers["request_queue_time_seconds_count"] == 1
    assert numbers["time_to_first_token_seconds_count"] == 1
    assert numbers["e2e_request_latency_seconds_count"] == 0
    made = numbers["generation_tokens_total"]
    assert 4 <= made <= 7
    assert numbers["inter_token_latency_seconds_count"] == made - 1
    assert_idle(here)


def test_failures_and_refusals(closed: tuple[Server, GatedRunner]) -> None:
    here, runner = closed
    runner.fail_at = 3
    runner.open()
    assert here.post("/generate", prompt="hello", token_limit=9).status == 500
    assert look(here).ended() == {"failed": 1}
    assert look(here)["generation_tokens_total"] == 2
    assert here.post("/generate", prompt="hello", token_limit=10**6).status == 422
    long = [{"role": "user", "content": "a" * 600}]
    assert here.post("/v1/chat/completions", messages=long).status == 400
    assert look(here).ended() == {"failed": 1, "refused": 2}
    assert here.post("/generate", prompt=1).status == 422
    assert look(here).ended() == {"failed": 1, "refused": 2}, "it never reached the engine"
    assert_idle(here)


def test_a_request_that_takes_too_long() -> None:
    with gated(endless(), Settings(request_seconds=0.2)) as (here, runner):
        runner.pace = 0.02
        runner.open()
        assert here.post("/generate", prompt="hello", token_limit=300).status == 504
        assert look(here).ended() == {"timed_out": 1}
        assert_idle(here)


def test_a_step_that_fails_while_choosing() -> None:
    calls = Counter[str]()

    def select(logits: Any, *rest: Any) -> Any:
        calls["select"] += 1
        if calls["select"] == 5:  # two of the warm-up, then two
            raise ValueError("no")
        return logits.argmax(-1, keepdim=True)

    steps = Steps(select_next_token=select)
    with serving(lambda: TransformersRunner(endless()), steps=steps) as here:
        assert here.post("/generate", prompt="hello", token_limit=9).status == 500
        numbers = look(here)
        assert numbers.ended() == {"failed": 1}
        assert numbers["generation_tokens_total"] == 2


def test_a_step_that_fails_while_encoding() -> None:
    def render(messages: Any) -> str:
        if messages[-1]["content"] == "hello":
            raise KeyError("no")
        return "a"

    steps = Steps(render_chat=render)
    with serving(lambda: TransformersRunner(endless()), steps=steps) as here:
        assert here.post("/generate", prompt="hello").status == 500
        assert look(here).ended() == {"failed": 1}
        assert_idle(here)


def test_while_the_model_loads() -> None:
    gate = threading.Event()

    def load() -> Runner:
        gate.wait(PATIENCE)
        return TransformersRunner(endless())

    with serving(load, ready=False) as here:
        try:
            assert here.post("/generate", prompt="hello").status == 503
            numbers = look(here, model="")
            assert numbers.ended() == {"refused": 1}
            assert numbers["num_requests_running"] == 0
        finally:
            gate.set()
        wait_until(lambda: here.engine.state().status == "ready", "the model")
        assert here.generate(token_limit=2)["token_count"] == 2


def test_two_servers_do_not_mix() -> None:
    with (
        serving(lambda: TransformersRunner(endless())) as one,
        serving(lambda: TransformersRunner(endless())) as other,
    ):
        one.generate(token_limit=3)
        assert look(one)["generation_tokens_total"] == 3
        assert look(other)["generation_tokens_total"] == 0


def test_scrapes_in_between_disturb_nothing(server: Server) -> None:
    done = threading.Event()

    def scrape() -> int:
        count = 0
        while not done.is_set():
            look(server)
            count += 1
        return count

    with ThreadPoolExecutor(3) as clients:
        scraper = clients.submit(scrape)
        list(clients.map(lambda _: server.generate(token_limit=20), range(8)))
        done.set()
        assert scraper.result(PATIENCE) > 0
    numbers = look(server)
    assert numbers["generation_tokens_total"] == 8 * 20
    assert numbers["inter_token_latency_seconds_count"] == 8 * 19


def test_an_engine_that_stops_counts_each_answer_once() -> None:
    """One runs, one waits; both are told, and both are counted as failed."""
    runner = GatedRunner(endless())
    metrics = Metrics()
    engine = Engine(lambda: runner, observer=metrics)
    metrics.watch(engine.state)
    engine.start()
    wait_until(lambda: engine.state().status == "ready", "the model")
    runner.close()

    async def work() -> None:
        request = Request(({"role": "user", "content": "a"},), SamplingParams(50))
        for _ in range(2):
            await engine.submit(request)
        await asyncio.to_thread(runner.wait_begun, 1)
        engine.stop(0.0)
        runner.open()
        await asyncio.to_thread(engine._thread.join, PATIENCE)

    try:
        asyncio.run(work())
        numbers = Numbers(metrics.render().decode())
        assert numbers.ended() == {"failed": 2}
        assert {numbers[name] for name in GAUGES} == {0.0}
    finally:
        runner.remove()
