"""What a learner has done so far: remembered between kernels, and never worth an error."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import folder

Entry = dict[str, Any]


def entry(name: str) -> Entry:
    """What is known of a task: `state` (tried, passed) and `hints` (levels seen)."""
    return _read().get(name, {})


def state(name: str) -> str:
    """Say how far a task has come: passed, tried or not started."""
    if folder.solution_file(name).is_file():
        return "passed"
    known = entry(name).get("state")
    return known if known in ("passed", "tried") else "not started"


def tried(name: str) -> None:
    """Note that a check has failed; what has passed once stays passed."""
    if state(name) == "not started":
        _change(name, lambda e: {**e, "state": "tried"})


def passed(name: str) -> None:
    """Note that a check has passed."""
    _change(name, lambda e: {**e, "state": "passed"})


def forgotten(name: str) -> None:
    """Begin a task anew, its hints included."""
    _change(name, lambda e: {})


def next_hint(name: str) -> int:
    """Give the level of the hint to show now, 1 to 3, and remember it."""
    level = 1

    def up(known: Entry) -> Entry:
        nonlocal level
        seen = known.get("hints", 0)
        level = min(seen + 1, 3) if isinstance(seen, int) and seen >= 0 else 1
        return {**known, "hints": level}

    _change(name, up)
    return level


def _change(name: str, change: Callable[[Entry], Entry]) -> None:
    """Read, change and write under the lock, so that two kernels lose nothing."""
    with folder.lock():
        known = _read(set_aside=True)
        known[name] = change(known.get(name, {}))
        text = json.dumps({"version": 1, "tasks": known}, indent=1, sort_keys=True)
        folder.write(_file(), text + "\n")


def _read(set_aside: bool = False) -> dict[str, Entry]:
    """Read all entries; a spoilt file counts as empty, and is kept before it is replaced."""
    try:
        text = _file().read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError):
        text = ""
    tasks = _tasks(text)
    if tasks is None and set_aside and text:
        folder.back_up(text, "progress.spoilt.json")
    return tasks or {}


def _tasks(text: str) -> dict[str, Entry] | None:
    try:
        tasks = json.loads(text)["tasks"]
        return {name: dict(known) for name, known in tasks.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _file() -> Path:
    return folder.mine() / "progress.json"
