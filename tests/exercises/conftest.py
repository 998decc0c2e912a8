"""Every test of the exercises gets a learner's folder of its own."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "mine"
    monkeypatch.setenv("TUTORIAL_SERVER_EXERCISES", str(folder))
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    return folder
