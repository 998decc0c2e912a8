"""All checks in turn, each on its own, none longer than its time."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from threading import Thread
from time import monotonic, sleep
from typing import TypeVar

import httpx

from ..errors import TutorialServerError
from . import alive, answers, key, leaving, metrics, openai, refusals, streams
from .check import Check, Result
from .client import Client, NotHere, Unmet

MODULES = (alive, answers, streams, refusals, leaving, metrics, openai, key)
ALL: tuple[Check, ...] = tuple(check for module in MODULES for check in module.CHECKS)
CHECK_SECONDS = 60.0
MOST_SECONDS = 3600
MOST_HUNG = 3  # checks in a row without an answer, after which nobody goes on waiting
FIRST_SECONDS = 5.0
SPARE_SECONDS = 1.0  # after its time, for a check that is about to say what it was that was late
T = TypeVar("T")


def run_contract(
    url: str,
    api_key: str | None = None,
    seconds: float = CHECK_SECONDS,
    on_result: Callable[[Result], None] = lambda result: None,
    checks: Iterable[Check] = ALL,
) -> list[Result]:
    """Check a server's HTTP contract from outside, whoever wrote it.

    `seconds` is the time that one check may take; a server whose model still loads is
    given as long first. `on_result` hears of each result as it comes; `checks` are all, or a
    choice of them.
    Raises TutorialServerError where no server answers, where it wants a key, and for a time or
    a key that cannot be.
    """
    url = _address(url)
    if not 0 < seconds <= MOST_SECONDS:
        raise TutorialServerError(f"A check's time should be above 0 and up to {MOST_SECONDS} s.")
    if api_key is not None and not (api_key.isascii() and api_key.isprintable()):
        raise TutorialServerError("The key should be printable ASCII; no header holds others.")
    _look(url, api_key, seconds)
    results: list[Result] = []
    hung = 0
    for check in checks:
        if hung >= MOST_HUNG:
            result = _failed(check, f"not tried: {hung} checks before it had no answer in time.")
        else:
            result, timed_out = _run(check, Client(url, api_key, seconds), seconds)
            hung = hung + 1 if timed_out else 0
        results.append(result)
        on_result(result)
    return results


def _address(url: str) -> str:
    url = (url if "://" in url else f"http://{url}").rstrip("/")
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise TutorialServerError(f"{url!r} is no address: {error}.") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise TutorialServerError(f"{url!r} is no address; write it like http://127.0.0.1:8000.")
    return url


def _look(url: str, api_key: str | None, seconds: float) -> None:
    """See that somebody answers, lets us in, and has loaded its model (or says nothing of it)."""
    client = Client(url, api_key, seconds)
    faults = _within(seconds + SPARE_SECONDS, lambda: _first_fault(client, seconds)) or [""]
    client.close()
    if faults[0]:
        raise TutorialServerError(faults[0])


def _first_fault(client: Client, seconds: float) -> str:
    try:
        client.ask("GET", "/health", seconds=FIRST_SECONDS)
        if client.ask("POST", "/generate", {}, seconds=FIRST_SECONDS).status in (401, 403):
            which = "another" if client.api_key else "a"
            return f"The server at {client.url} wants {which} key; give it with --api-key."
        end = monotonic() + seconds
        while client.get("/ready").status == 503 and monotonic() < end:
            sleep(0.2)
    except httpx.ConnectError:
        return f"Nothing answers at {client.url}; start a server there (tutorial-server serve)."
    except httpx.HTTPError:
        pass  # somebody is there: the checks will say what is wrong
    return ""


def _within(seconds: float, work: Callable[[], T]) -> list[T]:
    """Do work on a thread of its own, so that a server that trickles holds nothing up."""
    found: list[T] = []
    thread = Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    thread.join(seconds)
    return found[:1]


def _run(check: Check, client: Client, seconds: float) -> tuple[Result, bool]:
    """Give the result, and whether the server let us wait in vain."""
    began = monotonic()
    found = _within(seconds + SPARE_SECONDS, lambda: _outcome(check, client, seconds))
    late = (_failed(check, f"no end within {seconds:g} s."), True)
    result, timed_out = found[0] if found else late
    client.close()
    return replace(result, seconds=round(monotonic() - began, 3)), timed_out


def _outcome(check: Check, client: Client, seconds: float) -> tuple[Result, bool]:
    try:
        check.run(client)
    except Unmet as error:
        return _failed(check, str(error)), False
    except NotHere as error:
        return Result(check.name, check.group, "skipped", check.expects, f"{error}."), False
    except httpx.TimeoutException:
        return _failed(check, f"no answer within {seconds:g} s."), True
    except httpx.HTTPError as error:
        return _failed(check, f"the connection broke: {str(error) or type(error).__name__}."), False
    except Exception as error:  # an answer of a kind that the check did not foresee
        return _failed(check, f"an answer that it could not read ({error!r})."), False
    return Result(check.name, check.group, "passed", check.expects), False


def _failed(check: Check, came: str) -> Result:
    return Result(check.name, check.group, "failed", check.expects, came, check.todo)


def contract_table(results: Iterable[Result]) -> str:
    """Lay results out for reading: a line for what passed, four for what did not."""
    results = list(results)
    return "\n".join([*(str(result) for result in results), _summary(results)])


def _summary(results: list[Result]) -> str:
    count = Counter(result.outcome for result in results)
    return f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped."


def print_contract(
    url: str, api_key: str | None = None, seconds: float = CHECK_SECONDS, as_json: bool = False
) -> bool:
    """Check a server and print the results, as they come or as JSON; whether all passed."""
    if as_json:
        results = run_contract(url, api_key, seconds)
        print(json.dumps([asdict(result) for result in results], indent=2))
    else:
        results = run_contract(url, api_key, seconds, lambda result: print(result, flush=True))
        print(_summary(results))
    return all(result.passed for result in results)
