"""Finding the clone, and opening JupyterLab in it."""

from pathlib import Path
from typing import Any

import pytest

from tutorial_server import course
from tutorial_server.course import FIRST_LESSON, course_folder, open_lab
from tutorial_server.errors import TutorialServerError

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    (folder / "notebooks").mkdir(parents=True)
    (folder / "notebooks" / FIRST_LESSON).write_text("{}")
    return folder


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder outside any clone, and a package that lies in none."""
    folder = tmp_path / "elsewhere"
    (folder / "package").mkdir(parents=True)
    monkeypatch.setattr(course, "__file__", str(folder / "package" / "course.py"))
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("below", [".", "notebooks", "notebooks/deep/er"])
def test_the_working_folder_or_one_above(
    clone: Path, below: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (clone / below).mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(clone / below)
    assert course_folder() == clone


def test_else_where_the_package_lies(
    clone: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(course, "__file__", str(clone / "tutorial_server" / "course.py"))
    assert course_folder() == clone


def test_here_it_is_this_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert course_folder() == ROOT
    assert (ROOT / "notebooks" / FIRST_LESSON).is_file()


def test_nowhere_is_one_sentence(elsewhere: Path) -> None:
    with pytest.raises(TutorialServerError, match="clone the project"):
        course_folder()


def test_a_folder_of_that_name_is_no_lesson(elsewhere: Path) -> None:
    (elsewhere / "notebooks" / FIRST_LESSON).mkdir(parents=True)
    with pytest.raises(TutorialServerError):
        course_folder()


def test_lab_opens_the_first_lesson_in_the_clone(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    started: list[tuple[list[str], Path]] = []
    monkeypatch.setattr("jupyterlab.labapp.main", lambda argv: started.append((argv, Path.cwd())))
    copies = [clone / "mine" / "exercise.ipynb"]
    monkeypatch.setattr("tutorial_server.exercises.prepare", lambda: copies)
    (clone / "deep").mkdir()
    monkeypatch.chdir(clone / "deep")
    assert open_lab(["--no-browser"]) == 0
    ((argv, folder),) = started
    assert folder == clone
    assert f"--ServerApp.root_dir={clone}" in argv
    assert argv[-2:] == [f"notebooks/{FIRST_LESSON}", "--no-browser"]
    assert str(clone / "mine") in capsys.readouterr().out


def test_lab_says_nothing_of_copies_that_were_there(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr("jupyterlab.labapp.main", lambda argv: None)
    monkeypatch.setattr("tutorial_server.exercises.prepare", list)
    monkeypatch.chdir(clone)
    assert open_lab() == 0
    assert capsys.readouterr().out == ""


def test_lab_without_a_clone_starts_nothing(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jupyterlab.labapp.main", lambda argv: pytest.fail("it started"))
    with pytest.raises(TutorialServerError):
        open_lab()
    assert Path.cwd() == elsewhere
