"""Many at once: what the numbers are made of, and that the server is gone afterwards."""

import json
import os
import re
import signal
import time
from pathlib import Path

import httpx
import psutil
import pytest
from canned import HEAD, canned
from tiny import save_tiny, tiny_llama

from tutorial_server import bench_many as module
from tutorial_server import server_process as server_process_module
from tutorial_server.bench_many import PROMPTS, bench_many, measure_many
from tutorial_server.bench_many_report import FirstToken, ManyReport, Speeds, summary, table
from tutorial_server.config import Settings
from tutorial_server.errors import TutorialServerError
from tutorial_server.models import load_model
from tutorial_server.server_process import server_process

SPEEDS = [
    Speeds(8, at_once=40.0, batch=20.0, in_turn=10.0, answer_tokens=(64, 64)),
    Speeds(8, at_once=90.0, batch=30.0, in_turn=10.0, answer_tokens=(64, 64)),
    Speeds(8, at_once=60.0, batch=60.0, in_turn=20.0, answer_tokens=(64, 64)),
]
FIRST = [FirstToken(30.0, 20.0), FirstToken(25.0, 20.0), FirstToken(50.0, 38.0)]


def test_medians_of_ratios_not_ratios_of_medians() -> None:
    report = summary("m", "cpu", 64, SPEEDS, FIRST)
    assert report == ManyReport(
        model="m",
        device="cpu",
        requests=8,
        tokens=64,
        rounds=3,
        shortest_answer=64,
        longest_answer=64,
        at_once_tokens_per_second=60.0,
        batch_tokens_per_second=30.0,
        in_turn_tokens_per_second=10.0,
        at_once_over_batch=2.0,
        at_once_over_in_turn=4.0,
        first_tokens=3,
        ttft_ms=30.0,
        prefill_ms=20.0,
        ttft_over_prefill_ms=10.0,
    )


def test_the_table() -> None:
    shown = table(summary("m", "cpu", 64, SPEEDS, FIRST)).splitlines()
    assert shown == [
        "m on cpu: 8 requests, medians of 3 rounds",
        "every answer had 64 tokens",
        "",
        f"{'way':<24}  tokens/s",
        f"{'at once, over HTTP':<24}      60.0",
        f"{'one batch in generate':<24}      30.0",
        f"{'in turn, over HTTP':<24}      10.0",
        "",
        "at once is 2.00 × one batch, and 4.00 × in turn",
        "first token over HTTP after 30.0 ms, 10.0 ms more than the runner's prefill "
        "(medians of 3)",
    ]


def test_answers_that_ended_early_are_told() -> None:
    short = [Speeds(8, 1.0, 1.0, 1.0, answer_tokens=(64, 9, 64))]
    shown = table(summary("m", "cpu", 64, short, []))
    assert "answers over HTTP had 9 to 64 tokens, those of the batch 64" in shown
    assert "first token" not in shown


@pytest.mark.parametrize(("tokens", "rounds"), [(64, 4), (1, 5)])
def test_too_little_says_nothing(tokens: int, rounds: int) -> None:
    with pytest.raises(TutorialServerError, match="--rounds or --tokens"):
        bench_many(Settings(), tokens, rounds, as_json=False)


def test_a_real_run_and_a_server_that_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny model answers eight prompts at once; what bench starts, it ends."""
    monkeypatch.setattr(module, "PROMPTS", tuple(f"hello {n}" for n in range(8)))
    monkeypatch.setattr(module, "FIRST_TOKENS", 2)
    monkeypatch.setenv("TUTORIAL_SERVER_API_KEY", "not-for-this-server")
    monkeypatch.setenv("TUTORIAL_SERVER_PORT", "1")
    settings = Settings(model=str(save_tiny(tmp_path)), device="cpu", cache=tmp_path, port=0)
    llm = load_model(settings.model, settings.device, settings.dtype, cache=settings.cache)
    with pytest.raises(KeyboardInterrupt), server_process(settings) as url:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url)
        report = measure_many(llm, url, tokens=4, rounds=1)
        assert children() == 1
        raise KeyboardInterrupt  # however the block ends
    assert children() == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/ready", timeout=5)
    assert (report.requests, report.tokens, report.rounds) == (8, 4, 1)
    assert report.longest_answer <= 4
    assert report.at_once_over_batch > 0
    assert report.first_tokens == 2
    assert report.ttft_ms is not None
    assert report.prefill_ms is not None
    assert min(report.ttft_ms, report.prefill_ms) > 0  # which is longer is measured, not tested
    assert json.loads(json.dumps(vars(report)))["model"] == llm.name


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_server_too(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_process_module, "_wait_until_ready", lambda process, log: "here")
    before = signal.signal(number, signal.default_int_handler)  # whatever it was: not ignored
    with pytest.raises(SystemExit) as ended, server_process(Settings(device="cpu")):
        assert children() == 1
        os.kill(os.getpid(), number)
        time.sleep(5)
    assert ended.value.code == 128 + number
    assert children() == 0
    assert signal.signal(number, before) is signal.default_int_handler


def children() -> int:
    found = psutil.Process(os.getpid()).children()
    return sum("tutorial_server" in child.cmdline() for child in found if child.is_running())


def test_a_server_that_cannot_start_says_why() -> None:
    settings = Settings.model_construct(cache=Path("c"), dtype="int8", kv_cache_gb=1, max_running=1)
    with (
        pytest.raises(
            TutorialServerError, match=r"did not start: .*'int8' does not do for --dtype"
        ),
        server_process(settings),
    ):
        pass
    assert children() == 0


def test_a_request_that_fails_holds_the_measurement_up() -> None:
    with canned([HEAD]) as (url, _), pytest.raises(TutorialServerError, match="ended before"):
        measure_many(tiny_llama(), url, 4, 1)
    assert len(set(PROMPTS)) == 8
