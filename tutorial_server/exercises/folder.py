"""Where a learner's work lies, and how it is written so that nothing is ever lost."""

import os
import tempfile
from pathlib import Path

from filelock import FileLock
from platformdirs import user_data_path

import tutorial_server

VARIABLE = "TUTORIAL_SERVER_EXERCISES"


def mine() -> Path:
    """The learner's own folder: what the variable says, else `exercises/mine` of the course.

    Without a course folder (a package installed alone) it is in the user's data folder.
    """
    if said := os.environ.get(VARIABLE):
        return Path(said).expanduser().absolute()
    course = course_folder()
    if course is None:
        return user_data_path("tutorial_server") / "exercises"
    return course / "exercises" / "mine"


def course_folder() -> Path | None:
    """The folder with `notebooks/` and `exercises/`: around the notebook, else the package."""
    here = Path.cwd()
    package = Path(tutorial_server.__file__).absolute().parent
    return next((p for p in (here, *here.parents, package.parent) if _is_course(p)), None)


def _is_course(folder: Path) -> bool:
    project = folder / "pyproject.toml"
    try:
        named = 'name = "tutorial-server"' in project.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return named and (folder / "exercises").is_dir()


def solutions() -> Path:
    """Folder of the passed solutions, one file a task."""
    return mine() / "solutions"


def solution_file(name: str) -> Path:
    """Where a task's passed solution is, or would be."""
    return solutions() / f"{name}.py"


def lock() -> FileLock:
    """Take turns with other kernels that write here."""
    mine().mkdir(parents=True, exist_ok=True)
    return FileLock(mine() / ".lock", timeout=10)


def read(file: Path) -> str:
    """Read a learner's file, even one that some other program has spoilt."""
    return file.read_text(encoding="utf-8", errors="replace")


def write(file: Path, text: str) -> None:
    """Write a file whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
        os.replace(name, file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def back_up(text: str, name: str) -> Path:
    """Keep a text as `backups/name.N`, under the first number that is free."""
    folder = mine() / "backups"
    folder.mkdir(parents=True, exist_ok=True)
    stem, suffix = os.path.splitext(name)
    number = 1
    while True:
        file = folder / f"{stem}.{number}{suffix}"
        try:
            with file.open("x", encoding="utf-8", newline="\n") as stream:
                stream.write(text)
            return file
        except FileExistsError:
            if read(file) == text:
                return file  # this very text is already kept
            number += 1


def short(path: Path) -> str:
    """Name a path as briefly as it can be found from here."""
    course = course_folder()
    for base in (course, Path.home()) if course else (Path.home(),):
        if path.is_relative_to(base):
            inner = path.relative_to(base).as_posix()
            return inner if base == course else f"~/{inner}"
    return str(path)
