"""How fast is it, and against what? Ratios within one run, since machines are noisy."""

import json
import statistics
import sys
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any

import torch
from tqdm import tqdm

from .chat import build_messages, encode_chat
from .config import Settings
from .decoding import run
from .errors import TutorialServerError
from .memory import kv_cache_bytes
from .models import LLM, load_model, sync_gpu
from .runner import Runner, TransformersRunner, UncachedRunner
from .sequence import SamplingParams, Sequence
from .slot_runner import SlotPlan, SlotRunner
from .transformer import why_not

PROMPT = "Explain, step by step and in detail, how a bicycle stays upright."
EDGE = 16  # tokens at either end of an answer that are compared with each other


@dataclass(frozen=True)
class Timed:
    """One answer: its speed, and how much slower its last tokens were than its first."""

    tokens_per_second: float
    last_over_first: float | None  # None where single tokens cannot be timed


@dataclass(frozen=True)
class Report:
    """Medians over all rounds; each ratio is the median of the ratios within a round."""

    model: str
    device: str
    tokens: int
    rounds: int
    uncached_tokens_per_second: float
    cached_tokens_per_second: float
    generate_tokens_per_second: float
    opened_tokens_per_second: float | None  # None where the model cannot be opened
    cached_over_generate: float
    cached_over_uncached: float
    opened_over_generate: float | None
    uncached_last_over_first: float
    cached_last_over_first: float
    opened_last_over_first: float | None


def bench(settings: Settings, tokens: int, rounds: int, as_json: bool) -> int:
    """Measure, and print a table or JSON."""
    if rounds < 5 or tokens < 2 * EDGE:
        raise TutorialServerError(
            f"Fewer than 5 rounds or {2 * EDGE} tokens say nothing; raise --rounds or --tokens."
        )
    llm = load_model(settings.model, settings.device, settings.dtype, cache=settings.cache)
    report = measure(llm, tokens, rounds)
    print(json.dumps(asdict(report), indent=2) if as_json else table(report))
    return 0


def measure(llm: LLM, tokens: int = 128, rounds: int = 5) -> Report:
    """Run the four ways in turn, round after round, on answers that never end early."""
    uncached, cached, generate, opened = [], [], [], []
    own = opened_runner(llm, [_prompt_ids(llm)], tokens)
    for number in tqdm(range(rounds + 1), desc="rounds", file=sys.stderr, leave=False):
        ours = _timed_run(TransformersRunner(llm), tokens)
        theirs = _timed_generate(llm, tokens)
        fast = _timed_run(own, tokens) if own else None
        naive = _timed_run(UncachedRunner(llm), tokens)
        if number > 0:  # the first round warms up
            cached.append(ours)
            generate.append(theirs)
            uncached.append(naive)
            opened += [fast] if fast else []
    return Report(
        model=llm.name,
        device=str(llm.device),
        tokens=tokens,
        rounds=rounds,
        uncached_tokens_per_second=_speed(uncached),
        cached_tokens_per_second=_speed(cached),
        generate_tokens_per_second=_speed(generate),
        opened_tokens_per_second=_speed(opened) if opened else None,
        cached_over_generate=_ratio(cached, generate),
        cached_over_uncached=_ratio(cached, uncached),
        opened_over_generate=_ratio(opened, generate) if opened else None,
        uncached_last_over_first=_growth(uncached),
        cached_last_over_first=_growth(cached),
        opened_last_over_first=_growth(opened) if opened else None,
    )


def table(report: Report) -> str:
    """Lay a report out for reading."""
    r = report
    rows = [
        ("uncached", r.uncached_tokens_per_second, r.uncached_last_over_first),
        ("cached", r.cached_tokens_per_second, r.cached_last_over_first),
        ("transformers generate", r.generate_tokens_per_second, None),
        ("opened", r.opened_tokens_per_second, r.opened_last_over_first),
    ]
    opened = f"opened is {r.opened_over_generate:.2f} × generate" if r.opened_over_generate else ""
    lines = [
        f"{r.model} on {r.device}: {r.tokens} tokens, medians of {r.rounds} rounds",
        "",
        f"{'way':<24}{'tokens/s':>10}   last {EDGE} tokens ÷ first {EDGE}",
        *(_row(*row) for row in rows),
        "",
        f"cached is {r.cached_over_generate:.2f} × generate, "
        f"and {r.cached_over_uncached:.2f} × uncached",
        opened or "opened: the model is outside the family that transformer.py knows",
    ]
    return "\n".join(lines)


def _row(way: str, speed: float | None, growth: float | None) -> str:
    shown = "-" if speed is None else f"{speed:.1f}"
    return f"{way:<24}{shown:>10}   {f'{growth:.2f} ×' if growth else ''}".rstrip()


def opened_runner(llm: LLM, prompts: list[list[int]], tokens: int) -> SlotRunner | None:
    """Open a model with one slot in which each of these prompts and its answer has room."""
    if why_not(llm):
        return None
    length = max(map(len, prompts)) + tokens
    return SlotRunner(
        llm, SlotPlan(1, length, kv_cache_bytes(llm.model.config, 1, llm.dtype.itemsize))
    )


def _prompt_ids(llm: LLM) -> list[int]:
    return encode_chat(llm, build_messages(PROMPT))


def _timed_run(runner: Runner, tokens: int) -> Timed:
    """Time our loop; end-of-turn ids count as any other, so that all answers are as long."""
    llm = replace(runner.llm, stop_ids=frozenset())
    sequence = Sequence(llm, _prompt_ids(llm), SamplingParams(max_new_tokens=tokens))
    start = perf_counter()
    for _ in run(runner, sequence):
        pass
    sync_gpu(llm.device)
    seconds = perf_counter() - start
    times = sequence.token_times
    first = times[EDGE] - times[0]  # decode steps only: the prefill is not one of them
    last = times[-1] - times[-1 - EDGE]
    return Timed(tokens / seconds, last / first)


def _timed_generate(llm: LLM, tokens: int) -> Timed:
    input_ids = torch.tensor([_prompt_ids(llm)], device=llm.device)  # [1, T]
    model: Any = llm.model
    start = perf_counter()
    model.generate(
        input_ids,
        attention_mask=torch.ones_like(input_ids),
        max_new_tokens=tokens,
        do_sample=False,
        eos_token_id=llm.model.config.vocab_size,  # no id, so that every answer is as long
        pad_token_id=0,
    )
    sync_gpu(llm.device)
    return Timed(tokens / (perf_counter() - start), None)


def _speed(runs: list[Timed]) -> float:
    return round(statistics.median(r.tokens_per_second for r in runs), 2)


def _ratio(runs: list[Timed], others: list[Timed]) -> float:
    pairs = zip(runs, others, strict=True)
    return round(statistics.median(a.tokens_per_second / b.tokens_per_second for a, b in pairs), 3)


def _growth(runs: list[Timed]) -> float:
    return round(statistics.median(r.last_over_first for r in runs if r.last_over_first), 3)
