from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import errors

from tutorial_server.errors import ModelError
from tutorial_server.loading.hub import HubUnreachable, hub_folder


def accept(folder: Path) -> None:
    """What a whole folder is let pass by."""


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


def answer_with(monkeypatch: pytest.MonkeyPatch, answer: Callable[[bool], Any]) -> list[bool]:
    """Put a hub in place of the real one, and keep whether each call was a local one."""
    calls: list[bool] = []

    def snapshot_download(model: str, *, local_files_only: bool, **_: Any) -> str:
        calls.append(local_files_only)
        result = answer(local_files_only)
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return calls


def http_error(kind: type[Exception], status: int) -> Exception:
    error = kind.__new__(kind)
    error.response = type("Response", (), {"status_code": status})()
    return error


def not_cached(or_else: Any) -> Callable[[bool], Any]:
    return lambda local: errors.LocalEntryNotFoundError("no") if local else or_else


def test_a_whole_local_copy_needs_no_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls = answer_with(monkeypatch, lambda local: str(tmp_path))
    assert hub_folder("some/model", accept) == tmp_path
    assert calls == [True]


def test_what_is_not_there_is_downloaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls = answer_with(monkeypatch, not_cached(str(tmp_path)))
    assert hub_folder("some/model", accept) == tmp_path
    assert calls == [True, False]


def test_a_copy_in_part_is_completed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    part, whole = tmp_path / "part", tmp_path / "whole"

    def check(folder: Path) -> None:
        if folder == part:
            raise ModelError("half of it")

    calls = answer_with(monkeypatch, lambda local: str(part if local else whole))
    assert hub_folder("some/model", check) == whole
    assert calls == [True, False]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            http_error(errors.RepositoryNotFoundError, 404),
            "no folder and no public hub model called",
        ),
        (http_error(errors.HfHubHTTPError, 401), "no folder and no public hub model called"),
        (http_error(errors.GatedRepoError, 403), "is gated: accept its terms"),
        (OSError(28, "No space left on device"), "disk is too full for some/model"),
    ],
)
def test_what_the_hub_refuses(
    monkeypatch: pytest.MonkeyPatch, error: Exception, sentence: str
) -> None:
    answer_with(monkeypatch, not_cached(error))
    with pytest.raises(ModelError, match=sentence) as raised:
        hub_folder("some/model", accept)
    assert not isinstance(raised.value, HubUnreachable)


@pytest.mark.parametrize(
    "error",
    [http_error(errors.HfHubHTTPError, 503), ConnectionError("refused"), TimeoutError()],
)
def test_a_hub_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    answer_with(monkeypatch, not_cached(error))
    with pytest.raises(HubUnreachable, match="cannot be reached: check the name and the network"):
        hub_folder("some/model", accept)


def test_offline_and_not_cached() -> None:
    with pytest.raises(HubUnreachable, match="There is no folder some/model"):
        hub_folder("some/model", accept)


@pytest.mark.parametrize("name", ["ü/ß", " ", "a" * 500])
def test_what_no_hub_id_can_be(name: str) -> None:
    with pytest.raises(ModelError, match="neither a local folder nor a hub id") as raised:
        hub_folder(name, accept)
    assert len(str(raised.value)) < 250
