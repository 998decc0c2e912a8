"""Numbers for a dashboard, in Prometheus' format and under vLLM's names with our prefix."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from .engine_state import EngineState
from .errors import TookTooLong, TutorialServerError
from .observer import Observer
from .sequence import Sequence

# A colon is legal in a name; Prometheus keeps it for recording rules, and vLLM uses it all the
# same. With it a dashboard made for vLLM fits once `vllm:` is replaced.
PREFIX = "tutorial_server:"
# The text format that every scraper reads; in OpenMetrics the client library may write our
# names with an underscore for the colon, depending on the scraper.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LABELS = ("model_name",)
ENDINGS = ("stop", "length", "cancelled", "failed", "timed_out", "refused")
# fmt: off
SECONDS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250,
)
# fmt: on


class Metrics(Observer):
    """Counts what an engine tells, in a registry of its own, so that two apps never mix.

    Each generated token is either a request's first or comes after a gap, so that the
    counts of the two histograms add up to the generated tokens. An end-of-turn token is
    none of them, as in a response's `token_count`. Latency is that of complete answers.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._state: Callable[[], EngineState] = _nothing
        self._first = self._seconds("time_to_first_token", "Arrival to first token.")
        self._gaps = self._seconds("inter_token_latency", "One token to the next.")
        self._latency = self._seconds("e2e_request_latency", "Arrival to last token.")
        self._queue = self._seconds("request_queue_time", "Arrival to being taken up.")
        self._prompt = self._counter("prompt_tokens", "Tokens of prompts that were read.")
        self._generated = self._counter("generation_tokens", "Tokens generated.")
        self._endings = self._counter(
            "request_success", "Requests by their ending; only stop and length are complete.",
            "finished_reason",
        )  # fmt: skip
        self._gauges = (
            self._gauge("num_requests_running", "Requests that run now."),
            self._gauge("num_requests_waiting", "Requests in line now."),
            self._gauge("kv_cache_usage_perc", "Part of the KV cache that is taken, 0 to 1."),
        )

    def watch(self, state: Callable[[], EngineState]) -> None:
        """Take the gauges, and the model's name, from here whenever somebody looks."""
        self._state = state

    def render(self) -> bytes:
        """Write all numbers as they are now, as `CONTENT_TYPE`."""
        state = self._state()
        name = state.model or ""
        now = (state.running, state.waiting, state.cache_usage)
        for gauge, value in zip(self._gauges, now, strict=True):
            gauge.clear()  # the name was another one before the model was there
            gauge.labels(name).set(value)
        if name:
            self._show_zeros(name)
        return generate_latest(self._registry)

    def refused(self, error: Exception) -> None:
        """Count one that was not taken in; an error that is none of ours is a failure."""
        ending = "refused" if isinstance(error, TutorialServerError) else "failed"
        self._endings.labels(self._name(), ending).inc()

    def started(self, sequence: Sequence) -> None:
        """Measure the time in line."""
        self._queue.labels(self._name()).observe(sequence.started - sequence.arrived)

    def stepped(self, sequence: Sequence) -> None:
        """Count a token, and measure how long it was waited for."""
        name, times = self._name(), sequence.token_times
        if len(times) == 1:
            self._prompt.labels(name).inc(len(sequence.prompt_ids))
        if len(sequence.token_ids) < len(times):
            return  # the end of a turn
        self._generated.labels(name).inc()
        if len(times) == 1:
            self._first.labels(name).observe(times[0] - sequence.arrived)
        else:
            self._gaps.labels(name).observe(times[-1] - times[-2])

    def ended(self, sequence: Sequence, error: Exception | None = None) -> None:
        """Count an ending by its kind; measure a complete answer as a whole."""
        name = self._name()
        self._endings.labels(name, _ending(sequence, error)).inc()
        if error is None:
            self._latency.labels(name).observe(sequence.token_times[-1] - sequence.arrived)

    def _name(self) -> str:
        return self._state().model or ""

    def _show_zeros(self, name: str) -> None:
        """Have every series there from the beginning: a rate needs a zero to start from."""
        for family in (self._first, self._gaps, self._latency, self._queue):
            family.labels(name)
        for counter in (self._prompt, self._generated):
            counter.labels(name)
        for ending in ENDINGS:
            self._endings.labels(name, ending)

    def _seconds(self, name: str, text: str) -> Histogram:
        full = f"{PREFIX}{name}_seconds"
        return Histogram(full, text, LABELS, buckets=SECONDS, registry=self._registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(PREFIX + name, text, (*LABELS, *labels), registry=self._registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(PREFIX + name, text, LABELS, registry=self._registry)


def _nothing() -> EngineState:
    return EngineState("loading", None, 0, 0)


def _ending(sequence: Sequence, error: Exception | None) -> str:
    if error is None:
        assert sequence.finish_reason is not None
        return sequence.finish_reason
    if isinstance(error, TookTooLong):
        return "timed_out"
    return "cancelled" if sequence.cancelled else "failed"
