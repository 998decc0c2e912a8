"""What many requests at once came to: medians, as a table."""

import statistics
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Speeds:
    """One round: tokens per second of each way, and how long the answers over HTTP were."""

    requests: int
    at_once: float
    batch: float
    in_turn: float
    answer_tokens: tuple[int, ...]


@dataclass(frozen=True)
class FirstToken:
    """One prompt: milliseconds to its first token over HTTP, and of the runner's own prefill."""

    http: float
    prefill: float


@dataclass(frozen=True)
class ManyReport:
    """Medians over all rounds; each ratio is the median of the ratios within a round.

    `shortest_answer` and `longest_answer` are tokens over HTTP. `first_tokens` counts the
    requests whose time to first token was taken. The prefill is the runner's
    own, of the same prompt, in this process; None where the model cannot be opened.
    """

    model: str
    device: str
    requests: int
    tokens: int
    rounds: int
    shortest_answer: int
    longest_answer: int
    at_once_tokens_per_second: float
    batch_tokens_per_second: float
    in_turn_tokens_per_second: float
    at_once_over_batch: float
    at_once_over_in_turn: float
    first_tokens: int
    ttft_ms: float | None
    prefill_ms: float | None
    ttft_over_prefill_ms: float | None


def summary(
    model: str, device: str, tokens: int, speeds: list[Speeds], first_tokens: list[FirstToken]
) -> ManyReport:
    """Take the medians."""
    lengths = [length for s in speeds for length in s.answer_tokens]
    return ManyReport(
        model=model,
        device=device,
        requests=speeds[0].requests,
        tokens=tokens,
        rounds=len(speeds),
        shortest_answer=min(lengths),
        longest_answer=max(lengths),
        at_once_tokens_per_second=_median([s.at_once for s in speeds]),
        batch_tokens_per_second=_median([s.batch for s in speeds]),
        in_turn_tokens_per_second=_median([s.in_turn for s in speeds]),
        at_once_over_batch=_median([s.at_once / s.batch for s in speeds]),
        at_once_over_in_turn=_median([s.at_once / s.in_turn for s in speeds]),
        first_tokens=len(first_tokens),
        ttft_ms=_median([f.http for f in first_tokens]),
        prefill_ms=_median([f.prefill for f in first_tokens]),
        ttft_over_prefill_ms=_median([f.http - f.prefill for f in first_tokens]),
    )


def table(report: ManyReport) -> str:
    """Lay a report out for reading."""
    r = report
    rows = [
        ("at once, over HTTP", r.at_once_tokens_per_second),
        ("one batch in generate", r.batch_tokens_per_second),
        ("in turn, over HTTP", r.in_turn_tokens_per_second),
    ]
    lines = [
        f"{r.model} on {r.device}: {r.requests} requests, medians of {r.rounds} rounds",
        _lengths(r),
        "",
        f"{'way':<24}{'tokens/s':>10}",
        *(f"{way:<24}{speed:>10.1f}" for way, speed in rows),
        "",
        f"at once is {r.at_once_over_batch:.2f} × one batch, "
        f"and {r.at_once_over_in_turn:.2f} × in turn",
    ]
    if r.ttft_ms is not None:
        lines.append(
            f"first token over HTTP after {r.ttft_ms:.1f} ms, {r.ttft_over_prefill_ms:.1f} ms "
            f"more than the runner's prefill (medians of {r.first_tokens})"
        )
    return "\n".join(lines)


def _lengths(r: ManyReport) -> str:
    if r.shortest_answer == r.tokens:
        return f"every answer had {r.tokens} tokens"
    return (
        f"answers over HTTP had {r.shortest_answer} to {r.longest_answer} tokens, those of the "
        f"batch {r.tokens}: some ended early, and the ratios say less"
    )


def _median(values: list[float]) -> Any:
    """None where there is nothing to take it of."""
    return round(statistics.median(values), 3) if values else None
