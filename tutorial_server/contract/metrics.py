"""/metrics, where the server has it."""

from time import monotonic, sleep

from .check import check
from .client import Client, NotHere, Unmet

GROUP = "/metrics"
RUNNING, WAITING = "num_requests_running", "num_requests_waiting"
IDLE_SECONDS = 3.0


def samples(client: Client) -> dict[str, float]:
    """Read /metrics: the sum of each sample's values by its name. Raises NotHere and Unmet."""
    from prometheus_client.parser import text_string_to_metric_families

    reply = client.get("/metrics")
    if reply.status != 200:
        raise NotHere("the server has no /metrics")
    found: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families(reply.body.decode("utf-8")):
            for sample in family.samples:
                found[sample.name] = found.get(sample.name, 0.0) + sample.value
    except Exception as error:  # the parser raises whatever its steps do
        raise Unmet(f"what a Prometheus parser cannot read: {error}.") from None
    return found


def running(client: Client) -> float:
    """How many requests run, as far as the server says."""
    try:
        return _gauge(samples(client), RUNNING)
    except (NotHere, Unmet):
        return 0.0


def _gauge(found: dict[str, float], stem: str) -> float:
    return sum(value for name, value in found.items() if name.endswith(stem))


@check(
    GROUP,
    "/metrics is in Prometheus' text format.",
    "Let prometheus-client write it: generate_latest(registry).",
)
def metrics_parse(client: Client) -> None:
    """Read them with Prometheus' own parser."""
    if not samples(client):
        raise Unmet("not one sample.")


@check(
    GROUP,
    "With nobody asking, the gauges of running and waiting requests are at 0.",
    "Read gauges from the engine when they are asked for; never count up and down by hand.",
)
def metrics_idle(client: Client) -> None:
    """Look at them when all is quiet."""
    end = monotonic() + IDLE_SECONDS
    while True:
        try:
            found = samples(client)
        except Unmet:
            raise NotHere("/metrics cannot be read") from None
        busy = {stem: _gauge(found, stem) for stem in (RUNNING, WAITING)}
        if not any(busy.values()):
            return
        if monotonic() > end:
            raise Unmet(f"{busy[RUNNING]:g} running, {busy[WAITING]:g} waiting.")
        sleep(0.05)


CHECKS = (metrics_parse, metrics_idle)
