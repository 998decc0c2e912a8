import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tutorial_server.loading import kept_folder as module
from tutorial_server.loading.kept_folder import MANIFEST, is_whole, kept_folder

CONTENT = b"weights" * 1000


class Builder:
    """Writes two files and counts how often it was asked to."""

    def __init__(self) -> None:
        self.built = 0

    def __call__(self, folder: Path) -> None:
        self.built += 1
        (folder / "weights").write_bytes(CONTENT)
        (folder / "config").write_text("{}")


@pytest.fixture
def builder() -> Builder:
    return Builder()


@pytest.fixture
def folder(tmp_path: Path, builder: Builder) -> Path:
    return kept_folder(tmp_path / "cache" / "small", builder, "1")


def leftovers(folder: Path) -> set[str]:
    return {path.name for path in folder.parent.iterdir()} - {folder.name, f".{folder.name}.lock"}


def test_it_is_built_once(folder: Path, builder: Builder) -> None:
    assert kept_folder(folder, builder, "1") == folder
    assert builder.built == 1
    assert {path.name for path in folder.iterdir()} == {"weights", "config", MANIFEST}
    assert leftovers(folder) == set()


def flip_a_bit(folder: Path) -> None:
    with (folder / "weights").open("r+b") as file:
        file.seek(3456)
        byte = file.read(1)[0]
        file.seek(3456)
        file.write(bytes([byte ^ 1]))


def flip_a_bit_and_hide_the_time(folder: Path) -> None:
    before = (folder / "weights").stat()
    flip_a_bit(folder)
    os.utime(folder / "weights", ns=(before.st_atime_ns, before.st_mtime_ns))


def break_the_manifest(folder: Path) -> None:
    (folder / MANIFEST).write_text((folder / MANIFEST).read_text()[:-20])


DAMAGES = [
    flip_a_bit,
    flip_a_bit_and_hide_the_time,
    break_the_manifest,
    lambda folder: os.truncate(folder / "weights", 500),
    lambda folder: (folder / "weights").unlink(),
    lambda folder: (folder / MANIFEST).unlink(),
    lambda folder: (folder / MANIFEST).write_text("[]"),
    lambda folder: (folder / MANIFEST).write_text('{"recipe": "1", "files": {"weights": 7}}'),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_broken_copy_is_noticed_and_rebuilt(
    folder: Path,
    builder: Builder,
    damage: Callable[[Path], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    damage(folder)
    assert not is_whole(folder, "1")
    kept_folder(folder, builder, "1")
    assert builder.built == 2
    assert (folder / "weights").read_bytes() == CONTENT
    assert is_whole(folder, "1")
    assert leftovers(folder) == set()
    said = capsys.readouterr().err.splitlines()
    assert said == [f"The copy in {folder} is not whole: building it again."]


def test_a_copy_of_another_recipe_is_rebuilt(folder: Path, builder: Builder) -> None:
    kept_folder(folder, builder, "2")
    assert builder.built == 2
    assert is_whole(folder, "2")


def test_other_times_with_the_same_content_are_whole_and_noted(
    folder: Path, builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.utime(folder / "weights")
    kept_folder(folder, builder, "1")
    assert builder.built == 1
    monkeypatch.setattr(module, "_sha256", lambda path: pytest.fail("read again"))
    assert is_whole(folder, "1")


def test_a_whole_copy_is_used_without_writing(
    folder: Path, builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FileLock", lambda path: pytest.fail("locked"))
    before = sorted((path.name, path.stat().st_mtime_ns) for path in folder.iterdir())
    kept_folder(folder, builder, "1")
    assert sorted((path.name, path.stat().st_mtime_ns) for path in folder.iterdir()) == before


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "weights").write_bytes(CONTENT)
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        kept_folder(tmp_path / "small", fail, "1")
    assert not (tmp_path / "small").exists()
    assert leftovers(tmp_path / "small") == set()


def test_a_failed_rebuild_can_be_repeated(folder: Path, builder: Builder) -> None:
    flip_a_bit(folder)

    def fail(folder: Path) -> None:
        raise OSError

    with pytest.raises(OSError):
        kept_folder(folder, fail, "1")
    kept_folder(folder, builder, "1")
    assert (folder / "weights").read_bytes() == CONTENT


def test_what_dead_processes_left_is_cleared(tmp_path: Path, builder: Builder) -> None:
    left = tmp_path / ".small.tmp-dead" / "new"
    left.mkdir(parents=True)
    (left / "weights").write_bytes(b"half")
    kept_folder(tmp_path / "small", builder, "1")
    assert leftovers(tmp_path / "small") == set()


BUILD_IN_A_PROCESS = """
import sys, time
from pathlib import Path
from tutorial_server.loading.kept_folder import kept_folder

def build(folder):
    with (folder.parent.parent.parent / "log").open("a") as log:
        log.write("built\\n")
    for _ in range(20):
        with (folder / "weights").open("ab") as file:
            file.write(b"weights" * 50)
        time.sleep(0.02)

folder = kept_folder(Path(sys.argv[1]), build, "1")
print(len((folder / "weights").read_bytes()))
"""


def test_two_processes_at_once_build_one_whole_copy(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BUILD_IN_A_PROCESS, str(tmp_path / "cache" / "small")]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=60)[0].strip() for process in both] == ["7000", "7000"]
    assert (tmp_path / "log").read_text() == "built\n"
    assert leftovers(tmp_path / "cache" / "small") == set()


def test_who_waits_long_says_so(
    tmp_path: Path,
    builder: Builder,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(module, "SECONDS_BEFORE_SAYING_SO", 0.05)
    begun, go_on = threading.Event(), threading.Event()

    def build_slowly(folder: Path) -> None:
        begun.set()
        go_on.wait(10)
        builder(folder)

    folder = tmp_path / "small"
    first = threading.Thread(target=kept_folder, args=(folder, build_slowly, "1"))
    second = threading.Thread(target=kept_folder, args=(folder, builder, "1"))
    first.start()
    begun.wait(10)
    second.start()
    second.join(0.5)
    assert second.is_alive()
    go_on.set()
    first.join(10)
    second.join(10)
    assert builder.built == 1
    assert "Waiting for another process" in capsys.readouterr().err


def test_the_manifest_holds_what_it_says(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    stat = (folder / "weights").stat()
    assert manifest["recipe"] == "1"
    assert manifest["files"]["weights"]["looks"] == [7000, stat.st_mtime_ns, stat.st_ctime_ns]
    assert len(manifest["files"]["weights"]["sha256"]) == 64
