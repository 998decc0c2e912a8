"""The HTTP face on a real socket: answers, streams, readiness, the line, failures."""

import json
import logging
import re
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
import torch
from server import (
    GatedRunner,
    Reply,
    Server,
    events,
    gated,
    joined,
    read_reply,
    request_bytes,
    serving,
    wait_until,
)
from tiny import tiny_llama, tiny_qwen3

from tutorial_server.chat import build_messages, encode_chat
from tutorial_server.config import Settings
from tutorial_server.decoding import generate_cached
from tutorial_server.detokenize import decode_text, new_text
from tutorial_server.errors import ModelError
from tutorial_server.runner import Runner, TransformersRunner
from tutorial_server.sampling import select_next_token
from tutorial_server.sse import sse_event
from tutorial_server.steps import Steps

SECRET = "xyzzy-plugh"


def load() -> Runner:
    return TransformersRunner(tiny_llama())


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(load) as running:
        yield running


def in_background(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()), daemon=True)
    thread.start()
    return thread, results


# /generate


def test_generate_answers_with_everything_promised(server: Server) -> None:
    answer = server.generate("hello", token_limit=20)
    expected = generate_cached(tiny_llama(), "hello", 20)
    assert answer["text"] == expected.text
    assert answer["token_count"] == len(expected.token_ids)
    assert answer["prompt_tokens"] == expected.input_tokens
    assert answer["finish_reason"] == expected.finish_reason
    assert answer["cache_usage"] is True
    assert answer["status_code"] == 200
    assert answer["model"] == "tiny-llama"
    assert set(answer) == {
        "text", "timing", "token_count", "prompt_tokens", "throughput", "cache_usage",
        "finish_reason", "status_code", "model", "request_id",
    }  # fmt: skip
    assert set(answer["timing"]) == {"latency_ms", "ttft_ms", "queue_ms"}


def test_defaults_are_128_tokens_and_greedy(server: Server) -> None:
    expected = generate_cached(tiny_llama(), "hello", 128)
    answer = server.generate()
    assert (answer["text"], answer["token_count"]) == (expected.text, len(expected.token_ids))
    nulls = {"top_k": None, "top_p": None, "seed": None, "system": None, "stop": []}
    assert server.generate(token_limit=128, temperature=0, **nulls)["text"] == expected.text


def test_request_ids_differ(server: Server) -> None:
    ids = {server.generate(token_limit=1)["request_id"] for _ in range(5)}
    assert len(ids) == 5
    assert all(len(id_) == 32 for id_ in ids)


def test_times_hang_together(server: Server) -> None:
    before = time.perf_counter()
    answer = server.generate(token_limit=30, seed=1, temperature=1.0)
    around = (time.perf_counter() - before) * 1e3
    timing = answer["timing"]
    assert 0 <= timing["queue_ms"] < timing["ttft_ms"] <= timing["latency_ms"] < around
    seconds = timing["latency_ms"] / 1e3
    assert answer["throughput"] == pytest.approx(answer["token_count"] / seconds, rel=1e-2)


def test_one_token_has_one_time(server: Server) -> None:
    answer = server.generate(token_limit=1)
    assert answer["token_count"] == 1
    assert answer["timing"]["ttft_ms"] == answer["timing"]["latency_ms"]


def test_when_the_first_token_ends_the_turn_the_answer_is_empty() -> None:
    llm = tiny_llama()
    first = generate_cached(llm, "hello", 1).token_ids[0]
    ending = replace(llm, stop_ids=frozenset([first]))
    with serving(lambda: TransformersRunner(ending)) as server:
        answer = server.generate("hello")
        assert (answer["text"], answer["token_count"]) == ("", 0)
        assert (answer["finish_reason"], answer["throughput"]) == ("stop", 0.0)
        assert 0 < answer["timing"]["ttft_ms"] == answer["timing"]["latency_ms"]
        (_, end), done = server.stream("hello")
        assert (end["token_count"], end["finish_reason"]) == (0, "stop")
        assert done == ("message", "[DONE]")


def test_an_ended_turn_says_stop_and_a_reached_limit_length() -> None:
    llm = tiny_llama()
    ids = generate_cached(llm, "hello", 8).token_ids
    ending = replace(llm, stop_ids=frozenset(ids[-1:]))
    count = ids.index(ids[-1])
    with serving(lambda: TransformersRunner(ending)) as server:
        for limit in (count - 1, count, count + 1, 50):
            answer = server.generate(token_limit=limit)
            assert answer["token_count"] == min(limit, count)
            assert answer["finish_reason"] == ("length" if limit <= count else "stop")
            assert answer["text"] == decode_text(llm.tokenizer, ids[: min(limit, count)])


def test_stop_strings_end_an_answer_across_tokens(server: Server) -> None:
    whole = server.generate(token_limit=60)["text"]
    stop = whole[20:23]
    at = whole.index(stop)
    answer = server.generate(token_limit=60, stop=["never in it", stop])
    assert answer["text"] == whole[:at]
    assert answer["finish_reason"] == "stop"
    found = server.stream(token_limit=60, stop=[stop])
    assert joined(found) == whole[:at]
    assert found[-2][1]["finish_reason"] == "stop"


def test_the_system_prompt_reaches_the_model(server: Server) -> None:
    def tokens(system: str | None) -> int:
        return len(encode_chat(tiny_llama(), build_messages("hello", system)))

    for system in (None, "", "Be brief.", "Be brief.<|im_end|>"):
        answer = server.generate(system=system, token_limit=1)
        assert answer["prompt_tokens"] == tokens(system)
    assert len({tokens(None), tokens(""), tokens("Be brief.")}) == 3


def test_what_a_prompt_spells_stays_text(server: Server) -> None:
    spelled = server.generate("<|im_end|>", token_limit=1)["prompt_tokens"]
    marker = server.generate("a", token_limit=1)["prompt_tokens"]
    assert spelled - marker == len("<|im_end|>") - 1  # a token a byte, where one is a control id


def test_unicode_goes_in_and_out(server: Server) -> None:
    prompt = "Grüße 你好 \U0001f600 \u202e \u0000"
    body = json.dumps({"prompt": prompt, "token_limit": 30}, ensure_ascii=False).encode()
    answer = server.post("/generate", body).json()
    assert answer["text"] == generate_cached(tiny_llama(), prompt, 30).text
    escaped = server.generate(prompt, token_limit=30)
    assert escaped["text"] == answer["text"]


def test_same_seed_same_text_beside_others(server: Server) -> None:
    fields = {"token_limit": 30, "temperature": 1.5, "seed": 7}
    alone = generate_cached(tiny_llama(), "hello", 30, temperature=1.5, seed=7).text
    results: list[str] = []

    def ask(seeded: bool) -> None:
        answer = server.generate(**(fields if seeded else fields | {"seed": None}))
        if seeded:
            results.append(answer["text"])

    threads = [threading.Thread(target=ask, args=(i % 2 == 0,)) for i in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [alone] * 5
    assert joined(server.stream(**fields)) == alone


def test_without_a_seed_texts_differ(server: Server) -> None:
    state = torch.random.get_rng_state()
    texts = {server.generate(token_limit=30, temperature=1.5)["text"] for _ in range(4)}
    assert len(texts) == 4
    assert torch.equal(torch.random.get_rng_state(), state)


# /stream


@pytest.mark.parametrize("make", [tiny_llama, tiny_qwen3])
def test_a_stream_joined_is_generates_text(make: Any) -> None:
    with serving(lambda: TransformersRunner(make())) as server:
        for seed in range(5):
            fields = {"token_limit": 40, "temperature": 1.8, "seed": seed}
            answer, found = server.generate(**fields), server.stream(**fields)
            assert joined(found) == answer["text"]
            end = found[-2][1]
            for same in ("finish_reason", "token_count", "prompt_tokens"):
                assert end[same] == answer[same]


def test_the_bytes_of_a_stream(server: Server) -> None:
    reply = server.post("/stream", prompt="hello", token_limit=40, temperature=1.8, seed=3)
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.headers["cache-control"] == "no-cache"
    assert reply.body.isascii()
    assert b"\r" not in reply.body
    assert reply.body.endswith(b"\n\ndata: [DONE]\n\n")
    *parts, last, rest = reply.body.decode().split("\n\n")
    assert (last, rest) == ("data: [DONE]", "")
    payloads = []
    for part in parts:
        assert part.count("\n") == 0
        assert part.startswith("data: {")
        payloads.append(json.loads(part.removeprefix("data: ")))
    assert all(set(p) == {"text"} and p["text"] for p in payloads[:-1])
    assert set(payloads[-1]) == {"finish_reason", "timing", "token_count", "prompt_tokens"}
    timing = payloads[-1]["timing"]
    assert 0 <= timing["queue_ms"] < timing["ttft_ms"] <= timing["latency_ms"]


def independent_events(text: str) -> list[tuple[str, str]]:
    """Read a stream as the standard tells it, in other words than `read_events`."""
    blocks = text.replace("\r\n", "\n").replace("\r", "\n").split("\n\n")[:-1]
    found = []
    for block in blocks:
        fields = [line.split(": ", 1) for line in block.split("\n")]
        names = [value for field, value in fields if field == "event"]
        data = [value for field, value in fields if field == "data"]
        found.append((names[-1] if names else "message", "\n".join(data)))
    return found


def test_another_reader_reads_the_same(server: Server) -> None:
    fields = {"prompt": "hello", "token_limit": 40, "temperature": 1.8, "seed": 5}
    with httpx.stream("POST", f"{server.url}/stream", json=fields) as response:
        text = "".join(response.iter_text(chunk_size=7))
    found = independent_events(text)
    assert found[-1] == ("message", "[DONE]")
    pieces = [json.loads(data)["text"] for _, data in found[:-2]]
    assert "".join(pieces) == server.generate(**fields)["text"]


def test_pieces_come_as_they_are_made() -> None:
    with gated(tiny_llama()) as (server, runner), server.open_stream(token_limit=30) as client:
        runner.allow(4)
        received = b""
        while joined(events(received)) == "":
            received += client.recv(4096)
        runner.wait_begun(5)
        assert runner.passes == 4, "text was there before the fifth token"
        assert b"[DONE]" not in received


def test_n_tokens_cost_n_passes() -> None:
    with gated(tiny_llama()) as (server, runner):
        runner.open()
        for limit in (1, 2, 20):
            runner.close(passes=100)
            assert server.generate(token_limit=limit)["token_count"] == limit
            assert runner.passes == limit


# /health and /ready


def test_health_and_ready(server: Server) -> None:
    health, ready = server.ask("GET", "/health"), server.ask("GET", "/ready")
    assert (health.status, health.json()) == (200, {"status": "ok"})
    assert (ready.status, ready.json()) == (200, {"status": "ready", "model": "tiny-llama"})


def test_while_the_model_loads() -> None:
    gate = threading.Event()

    def slowly() -> Runner:
        gate.wait()
        return load()

    with serving(slowly, ready=False) as server:
        assert server.ask("GET", "/health").status == 200
        assert server.ask("GET", "/ready").status == 503
        assert server.ask("GET", "/ready").json() == {"status": "loading", "model": None}
        for path in ("/generate", "/stream"):
            reply = server.post(path, prompt=SECRET)
            assert reply.status == 503
            assert "loading" in reply.json()["detail"]
            assert int(reply.headers["retry-after"]) >= 1
            assert server.post(path, b"{").status == 422
        gate.set()
        wait_until(lambda: server.ask("GET", "/ready").status == 200, "ready")
        assert server.generate(token_limit=2)["token_count"] == 2


def test_ready_only_after_the_model_has_answered_once() -> None:
    runner = GatedRunner(tiny_llama())
    runner.close()
    try:
        with serving(lambda: runner, ready=False) as server:
            runner.wait_begun(1)
            assert server.ask("GET", "/ready").status == 503
            runner.allow(1)
            runner.wait_begun(2)
            assert server.ask("GET", "/ready").status == 503
            runner.open()
            wait_until(lambda: server.ask("GET", "/ready").status == 200, "ready")
            assert runner.sequences[0].cache is None
    finally:
        runner.remove()


def failing_load() -> Runner:
    raise ModelError("The disk is full; make room.")


def broken_load() -> Runner:
    raise ZeroDivisionError("a fault of ours")


@pytest.mark.parametrize("broken", [failing_load, broken_load])
def test_a_load_that_fails_is_503_for_ever(broken: Callable[[], Runner]) -> None:
    with serving(broken) as server:
        health = server.ask("GET", "/health")
        assert (health.status, health.json()["status"]) == (503, "stopped")
        ready = server.ask("GET", "/ready")
        assert (ready.status, ready.json()["status"]) == (503, "stopped")
        for path in ("/generate", "/stream"):
            reply = server.post(path, prompt=SECRET)
            assert reply.status == 503
            assert "stopped" in reply.json()["detail"]
            assert SECRET not in reply.body.decode()


def test_health_answers_while_the_model_works_and_prompts_are_encoded() -> None:
    long = "hello <|im_end|> " * 3000
    endless = replace(tiny_llama(), stop_ids=frozenset())
    with gated(endless) as (server, runner), server.open_stream(token_limit=400):
        runner.open()
        encoding, _ = in_background(lambda: server.post("/generate", prompt=long))
        times = []
        for _ in range(30):
            start = time.perf_counter()
            assert server.ask("GET", "/health").status == 200
            times.append(time.perf_counter() - start)
        encoding.join()
    assert statistics.median(times) < 0.1
    assert max(times) < 1.0


def test_health_answers_at_once_while_a_pass_hangs() -> None:
    with gated(tiny_llama()) as (server, runner), server.open_stream():
        runner.wait_begun(1)
        for path in ("/health", "/ready"):
            start = time.perf_counter()
            assert server.ask("GET", path).status == 200
            assert time.perf_counter() - start < 0.5


# The line.


def test_requests_are_answered_in_order() -> None:
    with gated(tiny_llama()) as (server, runner):
        clients = []
        for number in range(5):
            path = "/generate" if number % 2 else "/stream"
            fields = {"prompt": "a" * (number + 1), "token_limit": 3}
            clients.append(server.open_stream(path, **fields))
            server.wait_line(waiting=number, running=1)
        runner.open()
        for client in clients:
            assert read_reply(client).status == 200
            client.close()
        lengths = [len(sequence.prompt_ids) for sequence in runner.sequences]
        assert lengths == [lengths[0] + number for number in range(5)]


def test_a_full_line_is_429() -> None:
    with gated(tiny_llama(), Settings(max_waiting=2)) as (server, runner):
        clients = []
        for number in range(3):
            clients.append(server.open_stream("/generate", token_limit=1))
            server.wait_line(waiting=number, running=1)
        for path in ("/generate", "/stream"):
            reply = server.post(path, prompt=SECRET)
            assert reply.status == 429
            assert int(reply.headers["retry-after"]) >= 1
            assert "2 requests" in reply.json()["detail"]
        runner.open()
        assert [read_reply(client).status for client in clients] == [200, 200, 200]
        for client in clients:
            client.close()
        assert server.generate(token_limit=1)["token_count"] == 1


def test_with_no_room_to_wait_one_request_runs() -> None:
    with gated(tiny_llama(), Settings(max_waiting=0)) as (server, runner):
        client = server.open_stream("/generate", token_limit=1)
        server.wait_line(waiting=0, running=1)
        assert server.post("/generate", prompt="b").status == 429
        runner.open()
        assert read_reply(client).status == 200
        client.close()


def test_queue_time_is_the_time_in_line() -> None:
    with gated(tiny_llama()) as (server, runner):
        first = server.open_stream("/generate", token_limit=1)
        server.wait_line(waiting=0, running=1)
        second = server.open_stream("/generate", token_limit=1)
        server.wait_line(waiting=1, running=1)
        time.sleep(0.05)
        runner.open()
        ran, waited = (read_reply(client).json()["timing"] for client in (first, second))
        first.close()
        second.close()
    assert waited["queue_ms"] >= 50
    assert waited["queue_ms"] < waited["ttft_ms"] <= waited["latency_ms"]
    assert ran["ttft_ms"] >= 50 > ran["queue_ms"]


def test_many_at_once_all_get_their_own(server: Server) -> None:
    prompts = ["a" * (1 + n) for n in range(16)]
    results: dict[str, str] = {}

    def ask(prompt: str, path: str) -> None:
        if path == "/stream":
            results[prompt] = joined(server.stream(prompt, token_limit=12))
        else:
            results[prompt] = server.generate(prompt, token_limit=12)["text"]

    threads = [
        threading.Thread(target=ask, args=(prompt, ("/stream", "/generate")[n % 2]))
        for n, prompt in enumerate(prompts)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    llm = tiny_llama()
    assert results == {prompt: generate_cached(llm, prompt, 12).text for prompt in prompts}


# Connections.


def test_a_connection_is_used_again(server: Server) -> None:
    with server.connect() as connection:
        for path, limit in (("/generate", 2), ("/stream", 3), ("/generate", 1), ("/stream", 2)):
            fields = {"prompt": "hello", "token_limit": limit}
            connection.sendall(request_bytes("POST", path, fields))
            reply = read_reply(connection)
            assert reply.status == 200
            end = events(reply.body)[-2][1] if path == "/stream" else reply.json()
            assert end["token_count"] == limit


def test_pipelined_requests_are_answered_in_turn(server: Server) -> None:
    limits = [1, 2, 3]
    sent = [request_bytes("POST", "/generate", {"prompt": "a", "token_limit": n}) for n in limits]
    with server.connect() as connection:
        connection.sendall(b"".join(sent))
        received = b""
        while received.count(b'"request_id"') < 3 or not received.endswith(b"}"):
            received += connection.recv(65536)
    counts = [int(count) for count in re.findall(rb'"token_count":(\d+)', received)]
    assert counts == limits
    assert received.count(b"HTTP/1.1 200 OK\r\n") == 3


def test_http_1_0(server: Server) -> None:
    sent = request_bytes("POST", "/stream", {"prompt": "hello", "token_limit": 2})
    with server.connect() as connection:
        connection.sendall(sent.replace(b"HTTP/1.1", b"HTTP/1.0"))
        received = b"".join(iter(lambda: connection.recv(4096), b""))
    assert received.endswith(b"data: [DONE]\n\n")


# Failures in mid-answer.


def raising_at(token: int, work: Callable[..., Any]) -> Callable[..., Any]:
    """`work`, but the call after the warm-up's with this number raises."""
    calls = 0

    def fails(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == token:
            raise RuntimeError(f"broken at call {token}")
        return work(*args, **kwargs)

    return fails


def failing_steps(step: str) -> Steps:
    """Steps of which one raises at an answer's fourth token, once (the warm-up takes two calls)."""
    if step == "select_next_token":
        return Steps(select_next_token=raising_at(2 + 4, select_next_token))
    return Steps(new_text=raising_at(2 + 1 + 4, new_text))  # the warm-up flushes too


def assert_broke_off(reply: Reply) -> str:
    assert reply.status == 200
    assert b"[DONE]" not in reply.body
    assert b"finish_reason" not in reply.body
    found = events(reply.body)
    assert [name for name, _ in found[:-1]] == ["message"] * (len(found) - 1)
    name, data = found[-1]
    assert name == "error"
    assert set(data) == {"error"}
    assert "Traceback" not in reply.body.decode()
    return joined(found)


@pytest.mark.parametrize("step", ["select_next_token", "new_text"])
@pytest.mark.parametrize("path", ["/stream", "/generate"])
def test_a_step_that_fails(step: str, path: str, caplog: Any) -> None:
    with serving(load, steps=failing_steps(step)) as server:
        reply = server.post(path, prompt=SECRET, token_limit=8)
        if path == "/stream":
            text = assert_broke_off(reply)
            assert generate_cached(tiny_llama(), SECRET, 8).text.startswith(text)
        else:
            assert reply.status == 500
            assert set(reply.json()) == {"detail"}
            assert "log says why" in reply.json()["detail"]
        assert "broken at call" not in reply.body.decode()
        assert "broken at call" in caplog.text
        assert SECRET not in caplog.text
        expected = generate_cached(tiny_llama(), SECRET, 8).text
        assert server.generate(SECRET, token_limit=8)["text"] == expected
        server.wait_line(waiting=0, running=0)


@pytest.mark.parametrize("token", [1, 2, 5])
@pytest.mark.parametrize("path", ["/stream", "/generate"])
def test_a_pass_that_fails(token: int, path: str) -> None:
    with gated(tiny_llama()) as (server, runner):
        runner.open()
        runner.fail_at = token
        reply = server.post(path, prompt="hello", token_limit=8)
        failed = runner.sequences[-1]
        runner.fail_at = None
        if path == "/stream":
            text = assert_broke_off(reply)
            assert generate_cached(tiny_llama(), "hello", 8).text.startswith(text)
        else:
            assert reply.status == 500
            assert "fell off" not in reply.body.decode()
        assert failed.cache is None
        assert server.generate(token_limit=8)["token_count"] == 8


def test_a_failure_in_the_line_does_not_touch_the_next() -> None:
    with gated(tiny_llama()) as (server, runner):
        runner.fail_at = 3
        clients = []
        for number in range(3):
            clients.append(server.open_stream(token_limit=5))
            server.wait_line(waiting=number, running=1)
        runner.open()
        replies = [read_reply(client) for client in clients]
        for client in clients:
            client.close()
    assert_broke_off(replies[0])
    text = generate_cached(tiny_llama(), "hello", 5).text
    assert [joined(events(reply.body)) for reply in replies[1:]] == [text, text]


def returning(value: Any) -> Callable[[Any], Any]:
    return lambda payload: value


BROKEN_EVENTS = {
    "raises": raising_at(1, sse_event),
    "raises at the third": raising_at(3, sse_event),
    "gives None": returning(None),
    "gives a dict": returning({}),
    "gives a lone surrogate": returning("data: \ud800\n\n"),
}


@pytest.mark.parametrize("name", BROKEN_EVENTS)
def test_a_broken_sse_event(name: str, caplog: Any) -> None:
    steps = Steps(sse_event=BROKEN_EVENTS[name])
    with gated(tiny_llama(), steps=steps) as (server, runner):
        runner.allow(6)
        reply = server.post("/stream", prompt=SECRET, token_limit=50)
        assert_broke_off(reply)
        assert SECRET not in caplog.text
        runner.open()
        server.wait_line(waiting=0, running=0)
        assert runner.passes <= 7 + 2, "nobody is there to read more"
        assert server.generate(token_limit=5)["token_count"] == 5


def broken_later() -> Callable[..., str]:
    calls = 0

    def render(messages: Any, add_generation_prompt: bool = True) -> str:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise RuntimeError("broken template")
        return "".join(m["content"] for m in messages)

    return render


@pytest.mark.parametrize("path", ["/stream", "/generate"])
def test_a_prompt_that_cannot_be_rendered_is_a_500_in_json(path: str) -> None:
    with serving(load, steps=Steps(render_chat=broken_later())) as server:
        reply = server.post(path, prompt=SECRET)
        assert reply.status == 500
        assert reply.headers["content-type"] == "application/json"
        assert set(reply.json()) == {"detail"}
        assert SECRET not in reply.body.decode()
        assert "broken template" not in reply.body.decode()
        assert server.generate(token_limit=3)["token_count"] == 3


# What is written where.


def test_prompts_and_answers_are_not_logged(
    server: Server, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("uvicorn", "uvicorn.access"):  # another uvicorn of this process may have set them
        monkeypatch.setattr(logging.getLogger(name), "propagate", True)
        monkeypatch.setattr(logging.getLogger(name), "disabled", False)
        caplog.set_level(logging.INFO, logger=name)
    caplog.set_level(logging.INFO)
    text = server.generate(SECRET, token_limit=20, system=SECRET, stop=[SECRET])["text"]
    server.stream(SECRET, token_limit=20)
    server.post("/generate", prompt=SECRET * 100)
    assert "POST /generate" in caplog.text
    assert SECRET not in caplog.text
    assert text not in caplog.text


def test_the_api_describes_itself(server: Server) -> None:
    described = server.ask("GET", "/openapi.json").json()
    assert set(described["paths"]) == {"/generate", "/stream", "/health", "/ready", "/metrics"}
    for path in ("/generate", "/stream"):
        content = described["paths"][path]["post"]["requestBody"]["content"]
        fields = content["application/json"]["schema"]["properties"]
        assert fields["token_limit"]["default"] == 128
        assert set(fields) == {
            "prompt", "token_limit", "temperature", "top_k", "top_p", "seed", "system", "stop",
        }  # fmt: skip
