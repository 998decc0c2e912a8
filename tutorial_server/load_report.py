"""What a load made of a server: one outcome for each request, and the percentiles of all."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from .percentile import percentile

Ending = Literal["complete", "left", "refused", "error", "unfinished"]


@dataclass(frozen=True)
class Outcome:
    """One request as its client saw it; times are seconds, counted from its sending.

    `gaps` lie between two pieces of text that arrived one after the other. `tokens` is what
    the stream's last event counts, so only a complete answer has any. `unfinished` means
    that the whole load's time was up; `words` say what went wrong.
    """

    ending: Ending
    seconds: float
    status: int | None = None
    ttft: float | None = None
    gaps: tuple[float, ...] = ()
    tokens: int = 0
    prompt_tokens: int = 0
    words: str = ""


@dataclass(frozen=True)
class Percentiles:
    """The value that half, nine in ten, and 99 in a hundred did not exceed."""

    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Percentiles | None":
        """Take them of values in seconds, as milliseconds; None where there are no values."""
        if not values:
            return None
        return cls(*(round(percentile(values, q) * 1e3, 3) for q in (50, 90, 99)))


@dataclass(frozen=True)
class LoadReport:
    """All outcomes, counted; `seconds` passed from the first request to the last ending.

    `ttft_ms` and `between_tokens_ms` take in whatever arrived, also for those who left;
    `latency_ms` and tokens belong to complete answers.
    """

    outcomes: tuple[Outcome, ...]
    seconds: float

    @property
    def tokens(self) -> int:
        """Tokens of all complete answers."""
        return sum(outcome.tokens for outcome in self.outcomes)

    @property
    def tokens_per_second(self) -> float:
        """Tokens of complete answers, by the whole load's time."""
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def ttft_ms(self) -> Percentiles | None:
        """From sending to the first piece of text, the wait in line included."""
        return Percentiles.of([o.ttft for o in self.outcomes if o.ttft is not None])

    @property
    def between_tokens_ms(self) -> Percentiles | None:
        """Between two pieces of text; a token that completes no text comes with the next."""
        return Percentiles.of([gap for o in self.outcomes for gap in o.gaps])

    @property
    def latency_ms(self) -> Percentiles | None:
        """From sending to the end, of complete answers."""
        return Percentiles.of([o.seconds for o in self.outcomes if o.ending == "complete"])

    @property
    def errors(self) -> dict[str, int]:
        """What went wrong, in words, and how often; the most frequent first."""
        return dict(Counter(o.words for o in self.outcomes if o.ending == "error").most_common())

    def count(self, ending: Ending) -> int:
        """Say how many requests ended so."""
        return sum(outcome.ending == ending for outcome in self.outcomes)

    def as_dict(self) -> dict[str, Any]:
        """Put everything but the single outcomes into what JSON can hold."""
        spread = {
            name: asdict(found) if (found := getattr(self, name)) else None
            for name in ("ttft_ms", "between_tokens_ms", "latency_ms")
        }
        return {
            "requests": len(self.outcomes),
            "complete": self.count("complete"),
            "left": self.count("left"),
            "refused": self.count("refused"),
            "errors": self.count("error"),
            "unfinished": self.count("unfinished"),
            "seconds": round(self.seconds, 3),
            "tokens": self.tokens,
            "tokens_per_second": round(self.tokens_per_second, 2),
            **spread,
            "error_words": self.errors,
        }


def table(report: LoadReport) -> str:
    """Lay a report out for reading."""
    rows = [
        ("first token", report.ttft_ms),
        ("between tokens", report.between_tokens_ms),
        ("whole answer", report.latency_ms),
    ]
    lines = [
        f"{len(report.outcomes)} requests in {report.seconds:.1f} s: "
        f"{report.count('complete')} complete, {report.count('left')} left, "
        f"{report.count('refused')} refused, {report.count('error')} errors"
        + (f", {report.count('unfinished')} unfinished" * bool(report.count("unfinished"))),
        f"{report.tokens} tokens in complete answers, {report.tokens_per_second:.1f} tokens/s",
        "",
        f"{'milliseconds':<16}{'p50':>10}{'p90':>10}{'p99':>10}",
        *(_row(name, found) for name, found in rows),
    ]
    if report.errors:
        lines += ["", *(f"{count} × {words}" for words, count in report.errors.items())]
    return "\n".join(lines)


def _row(name: str, found: Percentiles | None) -> str:
    values = (found.p50, found.p90, found.p99) if found else ("-",) * 3
    cells = (f"{v:>10.1f}" if isinstance(v, float) else f"{v:>10}" for v in values)
    return f"{name:<16}{''.join(cells)}"
