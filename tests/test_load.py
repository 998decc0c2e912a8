"""The load: who asks what, how each request ends, and what a server is like afterwards."""

import asyncio
import dataclasses
import gc
import json
import os
import subprocess
import sys
from typing import Any

import psutil
import pytest
from canned import DONE, HEAD, canned, end, text
from server import PATIENCE, GatedRunner, Server, gated, serving, wait_until
from tiny import tiny_llama

from tutorial_server.config import Settings
from tutorial_server.errors import TutorialServerError
from tutorial_server.load import run_load
from tutorial_server.load_client import EventReader
from tutorial_server.load_plan import LoadPlan, Question
from tutorial_server.load_report import LoadReport, Outcome, Percentiles, table
from tutorial_server.slot_runner import SlotRunner
from tutorial_server.sse import read_events

URL = "http://127.0.0.1:1"


def run(plan: LoadPlan, questions: Any = None) -> LoadReport:
    return asyncio.run(asyncio.wait_for(run_load(plan, questions), 3 * PATIENCE))


def counts(report: LoadReport) -> dict[str, int]:
    found = report.as_dict()
    names = ("complete", "left", "refused", "errors", "unfinished")
    return {name: found[name] for name in names if found[name]}


# The plan


def test_questions_come_from_the_seed_alone() -> None:
    plan = LoadPlan(URL, requests=50, leave=0.5, seed=3)
    questions = list(plan.questions())
    assert questions == list(LoadPlan("http://other", requests=50, leave=0.5, seed=3).questions())
    assert questions != list(dataclasses.replace(plan, seed=4).questions())
    assert len({q.prompt for q in questions}) == 50


def test_questions_are_within_their_bounds() -> None:
    plan = LoadPlan(URL, requests=300, leave=1.0, prompt_tokens=(2, 9), token_limit=(3, 6))
    questions = list(plan.questions())
    assert {len(q.prompt.split()) for q in questions} == set(range(2, 10))
    assert {q.token_limit for q in questions} == {3, 4, 5, 6}
    assert {q.leave_after for q in questions} == set(range(6))
    assert all(q.leave_after < q.token_limit for q in questions if q.leave_after is not None)
    assert all(0 <= q.leave_pause <= 0.05 for q in questions)


@pytest.mark.parametrize(("leave", "count"), [(0, 0), (1 / 3, 33), (0.5, 50), (0.07, 7), (1, 100)])
def test_the_share_that_leaves_is_kept_exactly(leave: float, count: int) -> None:
    questions = list(LoadPlan(URL, requests=100, leave=leave).questions())
    assert sum(q.leave_after is not None for q in questions) == count


def test_every_third_leaves() -> None:
    questions = list(LoadPlan(URL, requests=9, leave=1 / 3).questions())
    assert [q.leave_after is not None for q in questions] == [False, False, True] * 3


WRONG = [
    ("url", "localhost:8000"),
    ("url", "ftp://a"),
    ("url", "http://"),
    ("url", "http://a:99999"),
    ("url", "http://["),
    ("clients", 0),
    ("requests", 0),
    ("seconds", 0),
    ("seconds", float("inf")),
    ("patience", float("nan")),
    ("leave", -0.1),
    ("leave", 1.1),
    ("leave", float("nan")),
    ("prompt_tokens", (0, 5)),
    ("prompt_tokens", (6, 5)),
    ("token_limit", (0, 0)),
    ("api_key", "a\nb"),
    ("api_key", "ü"),
]


@pytest.mark.parametrize(("name", "value"), WRONG, ids=str)
def test_a_plan_that_cannot_be(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} should be "):
        LoadPlan(**{"url": URL, name: value})


def test_a_plan_keeps_its_key_to_itself() -> None:
    assert "secret" not in repr(LoadPlan(URL, api_key="secret"))


# Events


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_events_however_they_are_cut(newline: str) -> None:
    body = (
        "\ufeffdata: a\n\n: nothing\n\nevent: error\ndata: ü\ndata: b\n\n\n\ndata: c\n\ndata: d\n"
    )
    data = body.replace("\n", newline).encode()
    expected = list(read_events([data]))
    assert [d for _, d in expected] == ["a", "ü\nb", "c"]
    for size in (1, 2, 3, 5, len(data)):
        reader = EventReader()
        chunks = [data[at : at + size] for at in range(0, len(data), size)]
        found = [event for chunk in chunks for event in reader.feed(chunk)]
        last = newline == "\r"  # what a lone CR ends is known only once the next byte is there
        assert found == expected[: len(found)]
        assert len(found) >= len(expected) - last


# What a client sees


def ask(answer: list[bytes | float], **fields: Any) -> Outcome:
    with canned(answer) as (url, _):
        plan = LoadPlan(url, clients=1, requests=1, **fields)
        (outcome,) = run(plan).outcomes
    return outcome


def test_a_complete_answer() -> None:
    outcome = ask([0.1, HEAD, text("a"), 0.2, text("b") + text("c"), 0.1, end()])
    assert (outcome.ending, outcome.status, outcome.words) == ("complete", 200, "")
    assert (outcome.tokens, outcome.prompt_tokens) == (3, 7)
    assert outcome.ttft is not None
    assert outcome.ttft >= 0.1
    first, second = outcome.gaps
    assert outcome.ttft + first >= 0.3
    assert 0 <= second < 0.05, "both came in one packet"
    assert outcome.seconds >= outcome.ttft + first + second + 0.05  # the end comes 0.1 later


def status(line: str, body: bytes = b"", header: str = "") -> bytes:
    head = f"HTTP/1.1 {line}\r\n{header}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


BROKEN = {
    "error event": (
        [HEAD, text("a"), b'event: error\ndata: {"error": "out of \\u001b[1m luck"}\n\n'],
        "the answer broke off: out of  [1m luck",
    ),
    "no end": ([HEAD, text("a")], "the stream ended before [DONE]"),
    "half an event": ([HEAD, text("a"), end()[:-1]], "the stream ended before [DONE]"),
    "only DONE": ([HEAD, DONE.encode()], "an event that is none of ours: '[DONE]'"),
    "no JSON": ([HEAD, b"data: {\n\n"], "an event that is none of ours: '{'"),
    "deep JSON": ([HEAD, b"data: " + b"[" * 100_000 + b"\n\n"], "an event that is none of ours"),
    "other events": ([HEAD, b'data: {"id": 1}\n\n'], "an event that is none of ours"),
    "a web page": ([HEAD, b"<html>\n\n</html>"], "the stream ended before [DONE]"),
    "endless": ([HEAD, *[b"x" * 100_000] * 12], "an event of more than 1000000 bytes"),
    "500": ([status("500 Oh", b'{"detail": "it\\nbroke"}')], "status 500: it broke"),
    "404": ([status("404 No", b"<p>no</p>")], "status 404: '<p>no</p>'"),
    "redirect": ([status("307 Go", header=f"Location: {URL}\r\n")], "status 307: ''"),
    "no reply": ([], "Server disconnected"),
    "no HTTP": ([b"hello?\r\n\r\n"], "illegal"),
    "cut short": (
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"5\r\nda"],
        "peer closed connection",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_goes_wrong_is_said_in_words(name: str) -> None:
    answer, words = BROKEN[name]
    outcome = ask(list(answer))
    assert outcome.ending == "error"
    assert words in outcome.words
    assert outcome.words.isprintable()
    assert outcome.tokens == 0


def test_what_was_seen_before_an_error_is_kept() -> None:
    outcome = ask([HEAD, text("a"), text("b")])
    assert (outcome.ending, outcome.status, len(outcome.gaps)) == ("error", 200, 1)


def test_an_answer_that_does_not_come_is_an_error() -> None:
    outcome = ask([HEAD, text("a"), 1.0, end()], patience=0.2)
    assert (outcome.ending, outcome.words) == ("error", "not complete after 0.2 s")
    assert 0.2 <= outcome.seconds < 0.6


def test_when_time_is_up_nobody_waits_and_nothing_is_sent() -> None:
    with canned([HEAD, text("a"), 1.0, end()]) as (url, asked):
        report = run(LoadPlan(url, clients=2, requests=50, seconds=0.3))
        assert counts(report) == {"unfinished": 2}
        assert 0.3 <= report.seconds < 0.8
        assert len(asked) == 3  # /ready, and one of each client


def test_whoever_leaves_sends_nothing_more_and_counts_as_such() -> None:
    question = Question("hello", 3, leave_after=1, leave_pause=0.02)
    with canned([HEAD, text("a"), 0.5, text("b"), end()]) as (url, asked):
        report = run(LoadPlan(url), [question])
        (outcome,) = report.outcomes
        assert (outcome.ending, outcome.gaps, outcome.tokens) == ("left", (), 0)
        assert outcome.seconds < 0.4
        assert json.loads(asked[1].partition(b"\r\n\r\n")[2]) == {
            "prompt": "hello",
            "token_limit": 3,
        }


def test_who_means_to_leave_later_than_the_answer_ends_has_it_whole() -> None:
    with canned([HEAD, text("a"), end()]) as (url, _):
        assert counts(run(LoadPlan(url), [Question("hello", 3, leave_after=2)])) == {"complete": 1}


def test_the_key_is_sent_where_there_is_one_and_no_proxy_sees_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", URL)
    monkeypatch.setenv("ALL_PROXY", URL)
    with canned([HEAD, end()]) as (url, asked):
        assert counts(run(LoadPlan(url, requests=1))) == {"complete": 1}
        assert counts(run(LoadPlan(url, requests=1, api_key="k"))) == {"complete": 1}
    keys = [b"authorization: bearer k" in request.lower() for request in asked]
    assert keys == [False, False, True, True]
    assert not any(b"authorization" in request.lower() for request in asked[:2])


def test_nothing_at_the_address_is_one_sentence() -> None:
    with pytest.raises(TutorialServerError, match=r"^Nothing answers at http://127.0.0.1:1 \(.*\)"):
        run(LoadPlan(URL))
    with pytest.raises(TutorialServerError, match=r"^Nothing answers at http://no such"):
        run(LoadPlan("http://no such host"))


def test_a_model_that_is_still_loading_is_one_sentence() -> None:
    loading = b"HTTP/1.1 503 Not yet\r\nContent-Length: 0\r\n\r\n"
    with canned([], ready=loading) as (url, asked):
        with pytest.raises(TutorialServerError, match="is not ready"):
            run(LoadPlan(url))
        assert len(asked) == 1


# Our server


def test_tokens_are_those_that_the_server_made() -> None:
    plan = LoadPlan(URL, clients=3, requests=7, prompt_tokens=(1, 8), token_limit=(2, 12))
    with serving(lambda: SlotRunner.within(tiny_llama(), 5e6)) as server:
        plan = dataclasses.replace(plan, url=server.url + "/")
        report = run(plan)
        answers = [server.generate(q.prompt, token_limit=q.token_limit) for q in plan.questions()]
    assert counts(report) == {"complete": 7}
    assert report.tokens == sum(answer["token_count"] for answer in answers)
    assert sorted(o.prompt_tokens for o in report.outcomes) == sorted(
        answer["prompt_tokens"] for answer in answers
    )
    assert report.tokens_per_second == pytest.approx(report.tokens / report.seconds)


def test_each_end_is_told_at_once() -> None:
    told: list[Any] = []
    answer = [HEAD, text("a"), end()]
    with canned(answer) as (url, _):
        plan = LoadPlan(url, clients=2, requests=5)
        report = asyncio.run(asyncio.wait_for(run_load(plan, None, told.append), 3 * PATIENCE))
    assert tuple(told) == report.outcomes
    assert len(told) == 5


def test_refusals_are_no_errors() -> None:
    with gated(tiny_llama(), Settings(max_waiting=0)) as (server, _):
        report = run(LoadPlan(server.url, clients=4, requests=4, seconds=0.5, prompt_tokens=(1, 8)))
        assert counts(report) == {"refused": 3, "unfinished": 1}
        server.wait_line(0, 1)  # who was cut off is noticed at the next step


def test_an_answer_that_breaks_off_is_an_error() -> None:
    with gated(tiny_llama()) as (server, runner):
        runner.fail_at = 2
        runner.open()
        report = run(LoadPlan(server.url, requests=1, prompt_tokens=(1, 8)))
    assert list(report.errors.values()) == [1]
    assert "the answer broke off: The model failed" in next(iter(report.errors))


def test_all_who_leave_are_noticed() -> None:
    runner = GatedRunner(tiny_llama())
    runner.pace = 0.005
    try:
        with serving(lambda: runner) as server:
            questions = [Question("hello", 60, pieces, 0.002) for pieces in range(8)]
            assert counts(run(LoadPlan(server.url), questions)) == {"left": 8}
            assert_idle(server)
    finally:
        runner.remove()


def assert_idle(server: Server) -> None:
    server.wait_line(0, 0)
    server.wait_connections(0)


def resident() -> int:
    gc.collect()
    return psutil.Process(os.getpid()).memory_info().rss


def test_a_hundred_requests_of_which_every_third_leaves() -> None:
    with serving(lambda: SlotRunner.within(tiny_llama(), 5e6)) as server:
        before_all = server.generate("hello", token_limit=20)
        plan = LoadPlan(
            server.url,
            clients=12,
            requests=100,
            leave=1 / 3,
            prompt_tokens=(1, 12),
            token_limit=(1, 24),
        )
        run(dataclasses.replace(plan, requests=30, seed=1))
        before = resident()
        report = run(plan)
        assert_idle(server)
        assert report.errors == {}
        assert report.count("unfinished") == 0
        assert report.count("left") >= 10
        assert report.count("complete") >= 67 - report.count("refused")
        # Below what 100 kept answers, connections or caches would take, and above what torch
        # keeps for shapes that it meets for the first time.
        assert resident() - before < 150e6
        after_all = server.generate("hello", token_limit=20)
        assert after_all["text"] == before_all["text"]
        wait_until(lambda: server.engine.state().running == 0, "an idle engine")


# The report

OUTCOMES = (
    Outcome("complete", 1.0, 200, 0.1, (0.01, 0.03), 3, 7),
    Outcome("complete", 3.0, 200, 0.3, (0.05,), 2, 7),
    Outcome("left", 0.5, 200, 0.2, (0.07,)),
    Outcome("refused", 0.01, 429),
    Outcome("error", 0.2, 500, words="status 500: no"),
    Outcome("error", 0.2, 500, words="status 500: no"),
    Outcome("error", 0.2, words="gone"),
)


def test_a_report_counts_and_takes_percentiles() -> None:
    report = LoadReport(OUTCOMES, 2.0)
    assert json.loads(json.dumps(report.as_dict())) == {
        "requests": 7,
        "complete": 2,
        "left": 1,
        "refused": 1,
        "errors": 3,
        "unfinished": 0,
        "seconds": 2.0,
        "tokens": 5,
        "tokens_per_second": 2.5,
        "ttft_ms": {"p50": 200.0, "p90": 280.0, "p99": 298.0},
        "between_tokens_ms": {"p50": 40.0, "p90": 64.0, "p99": 69.4},
        "latency_ms": {"p50": 2000.0, "p90": 2800.0, "p99": 2980.0},
        "error_words": {"status 500: no": 2, "gone": 1},
    }


def test_the_table() -> None:
    assert table(LoadReport(OUTCOMES, 2.0)).splitlines() == [
        "7 requests in 2.0 s: 2 complete, 1 left, 1 refused, 3 errors",
        "5 tokens in complete answers, 2.5 tokens/s",
        "",
        "milliseconds           p50       p90       p99",
        "first token          200.0     280.0     298.0",
        "between tokens        40.0      64.0      69.4",
        "whole answer        2000.0    2800.0    2980.0",
        "",
        "2 × status 500: no",
        "1 × gone",
    ]


def test_a_report_of_nothing() -> None:
    report = LoadReport((Outcome("unfinished", 1.0),), 0.0)
    assert report.ttft_ms is None
    assert report.as_dict()["tokens_per_second"] == 0
    assert "1 unfinished" in table(report)
    assert table(report).splitlines()[4].split() == ["first", "token", "-", "-", "-"]
    assert Percentiles.of([0.0015]) == Percentiles(1.5, 1.5, 1.5)


def test_load_does_without_torch() -> None:
    code = """
import sys
import tutorial_server.load
print(sorted({"torch", "transformers", "numpy", "fastapi"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr
