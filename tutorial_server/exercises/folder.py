"""Where a learner's work lies, and how it is written so that nothing is ever lost."""

import os
import tempfile
from pathlib import Path

from filelock import FileLock
from platformdirs import user_data_path

from ..course import course_folder
from ..errors import TutorialServerError

VARIABLE = "TUTORIAL_SERVER_EXERCISES"


def mine() -> Path:
    """The learner's own folder: what the variable says, else `exercises/mine` of the course.

    Without a course folder (a package installed alone) it is in the user's data folder.
    """
    if said := os.environ.get(VARIABLE):
        return Path(said).expanduser().absolute()
    clone = course()
    if clone is None:
        return user_data_path("tutorial_server") / "exercises"
    return clone / "exercises" / "mine"


def course() -> Path | None:
    """The clone with the course's notebooks, or None where the package was installed alone."""
    try:
        return course_folder()
    except TutorialServerError:
        return None


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
    clone = course()
    if clone is not None and path.is_relative_to(clone):
        return path.relative_to(clone).as_posix()
    if path.is_relative_to(Path.home()):
        return f"~/{path.relative_to(Path.home()).as_posix()}"
    return str(path)
