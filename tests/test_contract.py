"""The contract's checks: right servers pass all, each wrong one fails the one that names it."""

import functools
import itertools
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from broken import Breakage, ScriptedRunner, Seen, Switch, breakable, crowded, deaf, rewriting
from server import serving
from tiny import tiny_llama

from tutorial_server.cli import main
from tutorial_server.config import Settings
from tutorial_server.contract import ALL, Result, contract_table, run_contract
from tutorial_server.contract import client as client_module
from tutorial_server.contract import leaving as leaving_checks
from tutorial_server.contract import metrics as metrics_checks
from tutorial_server.contract import run as run_module
from tutorial_server.contract.refusals import BODIES, SECRET
from tutorial_server.errors import TutorialServerError
from tutorial_server.exercises import registry, saved
from tutorial_server.exercises.mine import STEPS
from tutorial_server.runner import TransformersRunner
from tutorial_server.serving import learner_steps
from tutorial_server.slot_runner import SlotRunner

KEY = "open-sesame"
NEEDS_KEY = ["key-needed", "health-needs-no-key"]


def ended(results: list[Result], outcome: str) -> list[str]:
    return [result.name for result in results if result.outcome == outcome]


def assert_all_pass(url: str) -> None:
    results = run_contract(url)
    assert ended(results, "failed") == [], contract_table(results)
    assert ended(results, "skipped") == NEEDS_KEY
    assert [result.name for result in results] == [check.name for check in ALL]


# Right servers.


def test_the_reference_over_slots_passes() -> None:
    with serving(lambda: SlotRunner.within(tiny_llama(), 1e9, 8)) as server:
        assert_all_pass(server.url)


def test_a_choice_of_checks_is_run_alone() -> None:
    with serving(lambda: TransformersRunner(tiny_llama())) as server:
        results = run_contract(server.url, checks=ALL[:2])
    assert [(result.name, result.outcome) for result in results] == [
        ("health", "passed"),
        ("ready", "passed"),
    ]


def test_the_reference_with_one_row_passes() -> None:
    with serving(lambda: TransformersRunner(tiny_llama())) as server:
        assert_all_pass(server.url)


def test_the_model_solutions_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUTORIAL_SERVER_EXERCISES", str(tmp_path))
    for name in STEPS:
        task = registry.find(name)
        assert saved.save(task, task.solution).file is not None
    steps = learner_steps()
    llm = tiny_llama()
    with serving(lambda: TransformersRunner(llm, steps.prefill, steps.decode), steps=steps) as s:
        assert_all_pass(s.url)


@pytest.fixture(scope="module")
def keyed() -> Iterator[Switch]:
    with breakable(ScriptedRunner(), Settings(api_key=KEY)) as switch:
        yield switch


def test_with_a_key_all_checks_run(keyed: Switch) -> None:
    keyed.broken = None
    results = run_contract(keyed.url, KEY)
    assert {result.outcome for result in results} == {"passed"}, contract_table(results)
    for given, which in ((None, "wants a key"), ("wrong", "wants another key")):
        with pytest.raises(TutorialServerError, match=which):
            run_contract(keyed.url, given)


# Servers that are broken on purpose, one for each check.


def with_text(add: Callable[[str], str]) -> Callable[[Seen], None]:
    return lambda seen: seen.edit(lambda answer: answer.update(text=add(answer["text"])))


def counted() -> Callable[[Seen], None]:
    numbers = itertools.count()
    return with_text(lambda text: f"{text} {next(numbers)}")


def setting(name: str, value: Any) -> Callable[[Seen], None]:
    return lambda seen: seen.edit(lambda answer: answer.update({name: value}))


def dropping(name: str) -> Callable[[Seen], None]:
    return lambda seen: seen.edit(lambda answer: answer.pop(name) and None)


def replacing(old: bytes, new: bytes, count: int = 1) -> Callable[[Seen], None]:
    def change(seen: Seen) -> None:
        assert old in seen.body
        seen.body = seen.body.replace(old, new, count)

    return change


def becoming(status: int, body: Any, kind: bytes = b"application/json") -> Callable[[Seen], None]:
    return lambda seen: seen.become(status, body, kind)


def without_first_event(seen: Seen) -> None:
    seen.body = seen.body.partition(b"\n\n")[2]


def typed(kind: bytes) -> Callable[[Seen], None]:
    return lambda seen: setattr(seen, "kind", kind)


def taking(header: bytes) -> Callable[[Seen], None]:
    """Take what was too large, where it came with this header."""

    def change(seen: Seen) -> None:
        if seen.status == 413 and header in seen.headers:
            seen.become(200, {"text": "fine"})

    return change


def echoing(seen: Seen) -> None:
    seen.edit(lambda found: found.update(input=SECRET))


def with_secret_only(change: Callable[[Seen], None]) -> Breakage:
    return rewriting("", SECRET.encode(), change)


def with_generate(mark: bytes, change: Callable[[Seen], None]) -> Breakage:
    return rewriting("/generate", mark, change)


def with_stream(mark: bytes, change: Callable[[Seen], None]) -> Breakage:
    return rewriting("/stream", mark, change)


def with_chat(mark: bytes, change: Callable[[Seen], None]) -> Breakage:
    return rewriting("/v1/chat/completions", mark, change)


def wrong_number(answer: Seen) -> None:
    answer.edit(lambda found: found.update(token_count=found["token_count"] + 1))


def late_clock(answer: Seen) -> None:
    answer.edit(lambda found: found["timing"].update(queue_ms=1e9))


LATE_REFUSAL = becoming(200, b'event: error\ndata: {"error": "no"}\n\n', b"text/event-stream")
MORE_TEXT = replacing(b"data: [DONE]\n\n", b'data: [DONE]\n\ndata: {"text": "more"}\n\n')

# Name of the check: what is broken, and words that the failure has to say.
BROKEN: dict[str, tuple[Breakage, str]] = {
    "health": (rewriting("/health", b"", setting("status", "up")), '"up"'),
    "ready": (rewriting("/ready", b"", dropping("model")), '{"status": "ready"}'),
    "unknown-path": (
        rewriting("/no/such/path", b"", becoming(404, b"<h1>No</h1>", b"text/html")),
        "no valid JSON, but 404, text/html: <h1>No</h1>",
    ),
    "wrong-method": (with_generate(b"", lambda s: wrong_method(s)), '404, application/json: {"d'),
    "answer-fields": (
        with_generate(b"Name a fruit", dropping("request_id")),
        "no `request_id`.",
    ),
    "clocks": (with_generate(b"Name a colour", late_clock), "queue_ms 1000000000.0, ttft_ms"),
    "token-limit": (
        with_generate(b"Tell me a story", wrong_number),
        "with token_limit 1: token_count 2, finish_reason 'length'.",
    ),
    "greedy-repeats": (with_generate(b"Name a river", counted()), " 0', then '"),
    "seed-repeats": (with_generate(b"Name a mountain", counted()), " 0', then '"),
    "stop-strings": (with_generate(b'"stop"', with_text("{}!".format)), "with stop '"),
    "system-prompt": (
        with_generate(b"Who are you", setting("prompt_tokens", 9)),
        "prompt_tokens 9 with a short one, 9 with a long one.",
    ),
    "typed-marker": (
        with_generate(b"<|im_end|>", setting("prompt_tokens", 7)),
        "without it, 7 with it.",
    ),
    "two-at-once": (
        crowded("/generate", b'"token_limit": 10}'),
        "', beside another '",
    ),
    "stream-type": (
        with_stream(b"Name a tree", typed(b"text/plain")),
        "the content type 'text/plain'.",
    ),
    "stream-frames": (
        with_stream(b"Name a bird", replacing(b"data: ", b"id: 1\ndata: ")),
        "id: 1\\ndata: ",
    ),
    "stream-equals-generate": (
        with_stream(b"What is the sea like", without_first_event),
        "the stream's pieces '",
    ),
    "stream-piecewise": (with_stream(b"Describe a garden", lambda seen: None), "24 pieces in 1 "),
    "stream-end": (
        with_stream(b"Name a city", replacing(b"data: [DONE]\n\n", b"")),
        "no [DONE]; the last event was {'finish_reason'",
    ),
    "stream-nothing-after": (
        with_stream(b"Name a lake", MORE_TEXT),
        "after [DONE] came [{'text': 'more'}].",
    ),
    "refuses-over-context": (
        with_generate(b"1000000000", becoming(500, {"detail": "oh"})),
        '/generate: 500, application/json: {"detail": "oh"}',
    ),
    "refuses-large-body": (
        with_generate(b"", taking(b"content-length")),
        "/generate took 40000000 bytes: 200",
    ),
    "refuses-large-chunked-body": (
        with_stream(b'"token_limit": 1     ', taking(b"transfer-encoding")),
        "/stream took 40000000 bytes: 200",
    ),
    "refusals-echo-nothing": (with_secret_only(echoing), "/generate repeats it: 422"),
    "metrics-parse": (
        rewriting("/metrics", b"", becoming(200, b"running} 3\n", b"text/plain")),
        "what a Prometheus parser cannot read",
    ),
    "metrics-idle": (
        rewriting(
            "/metrics", b"", lambda seen: setattr(seen, "body", b"x:num_requests_waiting 3\n")
        ),
        "0 running, 3 waiting.",
    ),
    "openai-models": (
        rewriting("/v1/models", b"", replacing(b'"model"', b'"thing"')),
        '"object":"thing"',
    ),
    "openai-completion": (with_chat(b"Name a flower", dropping("usage")), "`usage` is None"),
    "openai-stream": (
        with_chat(b"Name a fish", replacing(b"data: [DONE]\n\n", b"")),
        "not [DONE].",
    ),
    "openai-stream-equals-completion": (
        with_chat(b'"Name a planet."}], "max_tokens": 8, "temperature": 0}', lambda s: said(s)),
        "whole 'Mars', joined '",
    ),
    "openai-error": (
        with_chat(b'"messages": "hello"', becoming(422, {"detail": "no"})),
        '422, application/json: {"detail": "no"}',
    ),
    "openai-unknown-field": (
        with_chat(b"service_tier", becoming(400, {"error": {"message": "no"}})),
        "400, application/json",
    ),
}


def wrong_method(seen: Seen) -> None:
    if seen.method == "GET":
        seen.status = 404


def said(seen: Seen) -> None:
    seen.edit(lambda found: found["choices"][0]["message"].update(content="Mars"))


@pytest.fixture(scope="module")
def switch() -> Iterator[Switch]:
    with breakable(ScriptedRunner()) as switch:
        yield switch


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving_checks, "SOON_SECONDS", 0.4)
    monkeypatch.setattr(leaving_checks, "LIMITS", (100,))
    monkeypatch.setattr(client_module, "LEAVE_SECONDS", 0.1)


def test_a_server_cannot_speak_to_the_terminal() -> None:
    came = "no JSON, but é \x1b[31m\x07\n."
    failed = Result("health", "alive", "failed", "a", came, "b")
    skipped = Result("health", "alive", "skipped", "a", came)
    for result in (failed, skipped):
        assert r"no JSON, but é \x1b[31m\x07\n." in str(result)
        assert "\x1b" not in contract_table([result])


def assert_only(results: list[Result], name: str, words: str) -> None:
    assert ended(results, "failed") == [name], contract_table(results)
    (result,) = [result for result in results if result.name == name]
    assert words in result.came
    assert result.expects and result.todo
    told = str(result)
    came = result.came.replace("\n", r"\n")  # a table's line is one line
    for said in (f"FAILED   {name.upper()}", result.expects, came, result.todo):
        assert said in told


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_named_and_nothing_else(
    switch: Switch, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_checks, "IDLE_SECONDS", 0.1)
    switch.broken, words = BROKEN[name]
    assert_only(run_contract(switch.url), name, words)


def late_refusals(bodies: list[bytes]) -> Breakage:
    """Refuse some bodies on /stream only after the answer has begun."""

    async def broken(app: Any, scope: Any, receive: Any, send: Any) -> None:
        for body in bodies:
            app = functools.partial(with_stream(body, LATE_REFUSAL), app)
        await app(scope, receive, send)

    return broken


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("run", range(6))
def test_each_body_that_is_let_in_is_named(switch: Switch, run: int) -> None:
    """Half of the bodies in each run, each body in three of the six: for any two bodies there
    is a run in which only the first is let in, so that a check which answers for another shows.
    """
    runs = itertools.combinations(range(6), 3)
    half = [name for name, mine in zip(BODIES, runs, strict=False) if run in mine]
    switch.broken = late_refusals([BODIES[name][1] for name in half])
    results = run_contract(switch.url)
    assert ended(results, "failed") == [f"refuses-{name.replace('_', '-')}" for name in half]
    came = "/stream: 200, text/event-stream: event: error"
    assert all(r.came.startswith(came) for r in results if r.outcome == "failed")


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("path", ["/stream", "/generate"])
def test_who_goes_on_for_nobody_is_found(
    rows: int, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaving_checks, "LIMITS", (400,))  # a second and more
    words = "1 running" if rows > 1 else "was not answered within"
    with breakable(ScriptedRunner(rows, pace=0.0025)) as switch:
        over = threading.Event()
        switch.broken = deaf(path, over)
        results = run_contract(switch.url)
        over.set()
    assert_only(results, f"left-{path[1:]}", words)


@pytest.mark.usefixtures("impatient")
def test_a_key_that_is_not_asked_for_is_found(keyed: Switch) -> None:
    async def open_door(app: Any, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/stream":
            key = (b"authorization", f"Bearer {KEY}".encode())
            scope = {**scope, "headers": [*_but_the_key(scope), key]}
        await app(scope, receive, send)

    keyed.broken = open_door
    assert_only(run_contract(keyed.url, KEY), "key-needed", "/stream without a key: 200")


def _but_the_key(scope: Any) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in scope["headers"] if name != b"authorization"]


@pytest.mark.usefixtures("impatient")
def test_a_health_that_asks_for_a_key_is_found(keyed: Switch) -> None:
    async def closed(app: Any, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/health" and len(_but_the_key(scope)) == len(scope["headers"]):
            scope = {**scope, "path": "/closed"}
        await app(scope, receive, send)

    keyed.broken = closed
    assert_only(run_contract(keyed.url, KEY), "health-needs-no-key", "401, application/json")


def test_every_check_has_its_broken_server() -> None:
    elsewhere = {*NEEDS_KEY, "left-stream", "left-generate"}
    elsewhere |= {f"refuses-{name.replace('_', '-')}" for name in BODIES}
    assert {check.name for check in ALL} == set(BROKEN) | elsewhere
    assert len({check.name for check in ALL}) == len(ALL)


@pytest.mark.usefixtures("impatient")
def test_what_a_server_does_not_have_is_skipped(switch: Switch) -> None:
    async def bare(app: Any, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"].startswith(("/v1", "/metrics")):
            scope = {**scope, "path": "/nowhere"}
        await app(scope, receive, send)

    switch.broken = bare
    results = run_contract(switch.url)
    assert ended(results, "failed") == []
    optional = {check.name for check in ALL if check.name.startswith(("openai", "metrics"))}
    assert set(ended(results, "skipped")) == optional | set(NEEDS_KEY)
    (models,) = [result for result in results if result.name == "openai-models"]
    assert str(models) == "skipped  openai-models: the server has no /v1/models."


# Servers that keep a client waiting, and none at all.


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that lets everybody in and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_hung_server_fails_in_words_and_in_time(silent: str) -> None:
    results = run_contract(silent, seconds=0.2)
    assert [result.outcome for result in results] == ["failed"] * len(ALL)
    assert [result.came for result in results[:3]] == ["no answer within 0.2 s."] * 3
    assert results[3].came == "not tried: 3 checks before it had no answer in time."
    assert sum(result.seconds for result in results) < 3


def test_a_server_that_trickles_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "SPARE_SECONDS", 0.2)

    def trickle(connection: socket.socket) -> None:
        with connection:
            try:
                connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                while True:
                    connection.sendall(b"x")
                    stop.wait(0.01)
            except OSError:
                return

    def accept() -> None:
        while not stop.is_set():
            try:
                threading.Thread(target=trickle, args=(listener.accept()[0],), daemon=True).start()
            except OSError:
                return

    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        results = run_contract(f"127.0.0.1:{listener.getsockname()[1]}", seconds=0.2)
        stop.set()
    assert ended(results, "failed") == [check.name for check in ALL]
    assert results[0].came == "no end within 0.2 s."


def test_what_is_no_answer_at_all_is_told() -> None:
    def shout() -> None:
        while True:
            try:
                with listener.accept()[0] as connection:
                    connection.recv(100)
                    connection.sendall(b"220 mail.example ESMTP\r\n")
            except OSError:
                return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=shout, daemon=True).start()
        results = run_contract(f"http://127.0.0.1:{listener.getsockname()[1]}", seconds=2)
    assert {result.outcome for result in results} == {"failed", "skipped"}
    assert results[0].came.startswith("the connection broke: ")


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://127.0.0.1:9", "Nothing answers at http://127.0.0.1:9; start a server there"),
        ("no.such.host.invalid", "Nothing answers at http://no.such.host.invalid"),
        ("ftp://127.0.0.1", "write it like http://127.0.0.1:8000"),
        ("http://", "write it like"),
        ("http://[::1", "is no address"),
    ],
)
def test_nothing_there_is_exit_code_2(
    url: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["contract", url]) == 2
    captured = capsys.readouterr()
    assert sentence in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "1e9"])
def test_times_that_cannot_be(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["contract", "http://127.0.0.1:9", "--seconds", seconds]) == 2
    assert "should be above 0" in capsys.readouterr().err


# The command.


@pytest.mark.usefixtures("impatient")
def test_the_command_prints_each_result_and_a_sum(
    switch: Switch, capsys: pytest.CaptureFixture[str]
) -> None:
    switch.broken = None
    assert main(["contract", switch.url]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(ALL) + 1
    assert lines[0] == 'passed   health: GET /health answers 200 with {"status": "ok"}.'
    assert lines[-1] == f"{len(ALL) - 2} passed, 0 failed, 2 skipped."


@pytest.mark.usefixtures("impatient")
def test_the_command_as_json_with_a_failure(
    switch: Switch, capsys: pytest.CaptureFixture[str]
) -> None:
    switch.broken = BROKEN["ready"][0]
    assert main(["contract", switch.url, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [result["name"] for result in found if result["outcome"] == "failed"] == ["ready"]
    assert set(found[0]) == {"name", "group", "outcome", "expects", "came", "todo", "seconds"}


@pytest.mark.usefixtures("impatient")
def test_the_key_comes_from_the_environment_too(
    keyed: Switch, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keyed.broken = None
    assert main(["contract", keyed.url]) == 2
    assert "give it with --api-key" in capsys.readouterr().err
    monkeypatch.setenv("TUTORIAL_SERVER_API_KEY", KEY)
    assert main(["contract", keyed.url]) == 0


def test_it_needs_no_torch() -> None:
    code = "import sys, tutorial_server.contract; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
