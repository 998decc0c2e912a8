"""The comparison: who runs when, how often, and what the numbers are made of."""

import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest
from tiny import tiny_llama

from tutorial_server import bench as bench_module
from tutorial_server.bench import EDGE, Report, Timed, bench, measure, table
from tutorial_server.config import Settings
from tutorial_server.errors import TutorialServerError

TOKENS, ROUNDS = 2 * EDGE, 5


@pytest.fixture(scope="module")
def measured() -> Iterator[tuple[Report, list[int]]]:
    """One real report, and the length of the input of each forward pass that it took."""
    llm = tiny_llama()
    widths: list[int] = []

    def note(module: Any, args: Any, kwargs: Any, output: Any) -> None:
        widths.append(kwargs["input_ids"].shape[1])

    hook = llm.model.register_forward_hook(note, with_kwargs=True)
    yield measure(llm, TOKENS, ROUNDS), widths
    hook.remove()


def test_each_way_runs_once_a_round_in_turn(measured: tuple[Report, list[int]]) -> None:
    _, widths = measured
    assert len(widths) == 3 * TOKENS * (ROUNDS + 1)  # one round warms up
    prompt = widths[0]
    cached = [prompt, *[1] * (TOKENS - 1)]
    uncached = [prompt + token for token in range(TOKENS)]
    # Ours, transformers' own, without a cache; the opened model calls no forward of theirs.
    a_round = [*cached, *cached, *uncached]
    assert widths == a_round * (ROUNDS + 1)


def test_a_report_hangs_together(measured: tuple[Report, list[int]]) -> None:
    report, _ = measured
    assert (report.model, report.device) == ("tiny-llama", "cpu")
    assert (report.tokens, report.rounds) == (TOKENS, ROUNDS)
    for name, value in asdict(report).items():
        if isinstance(value, float):
            assert value > 0, name


def test_the_table(measured: tuple[Report, list[int]]) -> None:
    lines = table(measured[0]).splitlines()
    assert lines[0] == f"tiny-llama on cpu: {TOKENS} tokens, medians of {ROUNDS} rounds"
    rows = [line for line in lines if re.match(r"(uncached|cached|transformers|opened) ", line)][:4]
    speeds = [float(re.search(r" (\d+\.\d)\b", row).group(1)) for row in rows]  # type: ignore
    report = measured[0]
    assert speeds == pytest.approx(
        [
            report.uncached_tokens_per_second,
            report.cached_tokens_per_second,
            report.generate_tokens_per_second,
            report.opened_tokens_per_second,
        ],
        abs=0.06,
    )
    assert all(line == line.rstrip() for line in lines)


@pytest.fixture
def fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs whose speeds are known: 10, 20, … tokens per second, in the order of the calls."""
    speeds = {"TransformersRunner": 100.0, "SlotRunner": 75.0, "UncachedRunner": 10.0}
    calls = {"TransformersRunner": 0, "SlotRunner": 0, "UncachedRunner": 0, "generate": 0}

    def run(runner: Any, tokens: int) -> Timed:
        name = type(runner).__name__
        calls[name] += 1
        return Timed(speeds[name] * calls[name], 1.0 + calls[name])

    def generate(llm: Any, tokens: int) -> Timed:
        calls["generate"] += 1
        return Timed(50.0 * calls["generate"], None)

    monkeypatch.setattr(bench_module, "_timed_run", run)
    monkeypatch.setattr(bench_module, "_timed_generate", generate)
    monkeypatch.setattr(bench_module, "load_model", lambda *args, **kwargs: tiny_llama())


EXPECTED = {
    "model": "tiny-llama",
    "device": "cpu",
    "tokens": 128,
    "rounds": 5,
    "uncached_tokens_per_second": 40.0,  # rounds 2 to 6: 20, 30, 40, 50, 60
    "cached_tokens_per_second": 400.0,
    "generate_tokens_per_second": 200.0,
    "opened_tokens_per_second": 300.0,
    "cached_over_generate": 2.0,
    "cached_over_uncached": 10.0,
    "opened_over_generate": 1.5,
    "uncached_last_over_first": 5.0,
    "cached_last_over_first": 5.0,
    "opened_last_over_first": 5.0,
}


@pytest.mark.usefixtures("fixed")
def test_medians_leave_out_the_first_round(capsys: Any) -> None:
    assert bench(Settings(), tokens=128, rounds=5, as_json=True) == 0
    assert json.loads(capsys.readouterr().out) == EXPECTED


@pytest.mark.usefixtures("fixed")
def test_the_table_says_the_ratios(capsys: Any) -> None:
    assert bench(Settings(), tokens=128, rounds=5, as_json=False) == 0
    shown = capsys.readouterr().out
    assert "cached is 2.00 × generate, and 10.00 × uncached" in shown
    assert "opened is 1.50 × generate" in shown
    assert re.search(r"^uncached +40\.0 +5\.00 ×$", shown, re.MULTILINE)
    assert re.search(r"^opened +300\.0 +5\.00 ×$", shown, re.MULTILINE)


@pytest.mark.usefixtures("fixed")
def test_a_model_that_cannot_be_opened(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(bench_module, "why_not", lambda llm: "it is strange")
    assert bench(Settings(), tokens=128, rounds=5, as_json=True) == 0
    report = json.loads(capsys.readouterr().out)
    nothing = {name: None for name in EXPECTED if name.startswith("opened")}
    assert report == EXPECTED | nothing
    assert bench(Settings(), tokens=128, rounds=5, as_json=False) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^opened +-$", shown, re.MULTILINE)
    assert "opened is" not in shown


def test_the_opened_model_has_room_for_the_longest(measured: tuple[Report, list[int]]) -> None:
    runner = bench_module.opened_runner(tiny_llama(), [[1] * 3, [1] * 5], 7)
    assert runner is not None
    assert (runner.rows, runner.cache.length) == (1, 12)


@pytest.mark.parametrize(("tokens", "rounds"), [(2 * EDGE - 1, 5), (128, 4), (0, 0), (-1, 5)])
def test_too_little_says_nothing(tokens: int, rounds: int) -> None:
    with pytest.raises(TutorialServerError, match="--rounds or --tokens"):
        bench(Settings(), tokens, rounds, as_json=False)
