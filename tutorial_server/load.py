"""Many clients at once: questions of mixed length, and clients that leave before the end."""

import asyncio
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter

import httpx
from tqdm import tqdm

from .errors import TutorialServerError
from .load_client import ask
from .load_plan import LoadPlan, Question
from .load_report import LoadReport, Outcome, table

PAUSE_AFTER_REFUSAL = 0.1  # seconds; far less than Retry-After asks, since load is the aim


async def run_load(
    plan: LoadPlan,
    questions: Iterable[Question] | None = None,
    on_outcome: Callable[[Outcome], object] = lambda outcome: None,
) -> LoadReport:
    """Let the plan's clients loose on its server, and report how each request ended.

    They ask the plan's questions, or others; `on_outcome` hears of each end at once. Whatever
    goes wrong with a request is an outcome, not an exception. Raises TutorialServerError where
    nothing answers at the address, or the model is still loading.
    """
    asked = iter(plan.questions() if questions is None else questions)
    outcomes: list[Outcome] = []

    def ended(outcome: Outcome) -> None:
        outcomes.append(outcome)
        on_outcome(outcome)

    async with _new_client(plan) as http:
        await _check_there(http, plan.url)
        start = perf_counter()
        end = start + plan.seconds
        clients = (_client(http, plan, asked, end, ended) for _ in range(plan.clients))
        await asyncio.gather(*clients)
        return LoadReport(tuple(outcomes), perf_counter() - start)


def _new_client(plan: LoadPlan) -> httpx.AsyncClient:
    """Make what opens a new connection for each request, and goes to the plan's server alone."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    headers = {"Accept-Encoding": "identity"}
    if plan.api_key is not None:
        headers["Authorization"] = f"Bearer {plan.api_key}"
    return httpx.AsyncClient(timeout=None, limits=limits, headers=headers, trust_env=False)


def print_load(plan: LoadPlan, as_json: bool) -> None:
    """Run a load from the command line, and print a table or JSON. Raises TutorialServerError."""
    shown = {"desc": "requests", "file": sys.stderr, "leave": False, "disable": None}
    with tqdm(total=plan.requests, **shown) as bar:
        report = asyncio.run(run_load(plan, on_outcome=lambda outcome: bar.update()))
    print(json.dumps(report.as_dict(), indent=2) if as_json else table(report))


async def _client(
    http: httpx.AsyncClient,
    plan: LoadPlan,
    questions: Iterator[Question],
    end: float,
    ended: Callable[[Outcome], None],
) -> None:
    """Ask one question after the other while there are any, and time is left."""
    while perf_counter() < end and (question := next(questions, None)):
        outcome = await ask(http, plan, question, end)
        ended(outcome)
        if outcome.ending == "refused":
            await asyncio.sleep(min(PAUSE_AFTER_REFUSAL, max(0.0, end - perf_counter())))


async def _check_there(http: httpx.AsyncClient, url: str) -> None:
    """Ask once before anybody else does: a typing error is not a hundred failures."""
    try:
        async with http.stream("GET", f"{url.rstrip('/')}/ready", timeout=10.0) as response:
            status = response.status_code
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = str(error) or type(error).__name__
        raise TutorialServerError(
            f"Nothing answers at {url} ({reason}); start the server, or give its address."
        ) from None
    if status == 503:
        raise TutorialServerError(f"The server at {url} is not ready; ask again in a moment.")
