"""The learner's copies of the exercise notebooks: made once, mended cell by cell."""

import json
import os
from pathlib import Path
from typing import Any

from . import folder, kernel, progress
from .cells import definition
from .registry import LESSONS, lesson_of
from .task import Task

Cell = dict[str, Any]


def prepare() -> list[Path]:
    """Copy the course's exercise notebooks to the learner's folder; give those newly made.

    A copy that is there is left alone, whatever has become of the original.
    """
    clone = folder.course()
    if clone is None:
        return []
    names = [lesson.notebook for lesson in LESSONS]
    return [folder.mine() / n for n in names if _copy(clone / "exercises" / n)]


def _copy(shipped: Path) -> bool:
    copy = folder.mine() / shipped.name
    if not shipped.is_file():
        return False
    with folder.lock():
        if copy.exists():
            return False
        folder.write(copy, _fresh(shipped, copy))
    return True


def _fresh(shipped: Path, copy: Path) -> str:
    """A notebook as if never run: its outputs would tell what a bug hunt is about."""
    book = _read(shipped)
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
    return _relinked(_text(book), shipped, copy)


def _relinked(text: str, shipped: Path, copy: Path) -> str:
    """Point links to the lessons from the copy's folder; JupyterLab follows relative ones."""
    lessons = os.path.relpath(shipped.parent.parent / "notebooks", copy.parent)
    return text.replace("](../notebooks/", f"]({Path(lessons).as_posix()}/")


def astray() -> str:
    """Say where to work if the open notebook is the course's own; it may be updated any day."""
    notebook, clone = kernel.notebook(), folder.course()
    if notebook is None or clone is None or notebook.parent != clone / "exercises":
        return ""
    prepare()
    copy = folder.mine() / notebook.name
    if not copy.is_file():
        return ""
    where = folder.short(copy)
    return f"This is the course's own notebook, which updates change. Work in your copy: {where}"


def is_untouched(task: Task, fn: Any) -> bool:
    """Tell whether a function is still what the course's notebook gave."""
    clone, found = folder.course(), definition(fn)
    if clone is None or found is None:
        return False
    try:
        cell = _stub(task, clone / "exercises" / lesson_of(task).notebook)
    except (OSError, ValueError, KeyError):
        return False
    return cell is not None and _source(cell).strip() == found.text.strip()


def restore(task: Task, current: Any = None) -> str:
    """Put a task's stub back into the learner's copy, and forget what was saved for it.

    The old cell and the old solution go to `backups/`, and so does `current`, the function
    as this kernel knows it. Gives what the learner should know, in sentences.
    """
    name = lesson_of(task).notebook
    clone, copy = folder.course(), folder.mine() / name
    if copy.is_file() and _unsaved(copy):
        return "Save this notebook first (Ctrl-S), then run reset again: nothing was changed."
    said = f"{task.name} is as if never started."
    with folder.lock():
        book = _read(copy) if copy.is_file() else None
        stub = _stub(task, clone / "exercises" / name) if clone else None
        kept = _keep(task, current)
        if book is not None and stub is not None:
            kept += _put_stub(book, stub, task)
            folder.write(copy, _text(book))
            said += f" Its cell in {folder.short(copy)} holds the stub again."
    progress.forgotten(task.name)
    if kept:
        places = " and ".join(dict.fromkeys(folder.short(k) for k in kept))
        said += f" What you wrote is in {places}."
    if book is not None and kernel.notebook() is not None:
        said += " To see it: File, Reload Notebook from Disk."
    return said


def _unsaved(copy: Path) -> bool:
    """Tell whether the open notebook is ahead of its file: it lacks the cell that runs now."""
    running, notebook = kernel.running_cell(), kernel.notebook()
    if running is None or notebook is None or notebook.name != copy.name:
        return False
    return all(_source(cell) != running for cell in _read(copy)["cells"])


def _keep(task: Task, current: Any) -> list[Path]:
    """Move what exists of a solution to the backups."""
    kept = []
    file = folder.solution_file(task.name)
    if file.is_file():
        kept.append(folder.back_up(folder.read(file), file.name))
        file.unlink()
    found = definition(current) if callable(current) else None
    if found is not None:
        kept.append(folder.back_up(found.text + "\n", f"{task.name}.cell.py"))
    return kept


def _put_stub(book: dict[str, Any], stub: Cell, task: Task) -> list[Path]:
    """Change the notebook's cell; the old text is kept, if it was anything else."""
    cell = _place(book["cells"], stub)
    old = _source(cell)
    cell |= {"source": stub["source"], "outputs": [], "execution_count": None}
    changed = old.strip() not in ("", _source(stub).strip())
    return [folder.back_up(old + "\n", f"{task.name}.cell.py")] if changed else []


def _stub(task: Task, shipped: Path) -> Cell | None:
    return next((c for c in _read(shipped)["cells"] if _task_of(c) == task.name), None)


def _place(cells: list[Cell], stub: Cell) -> Cell:
    """Find the learner's cell for a stub, by its task or its id; a lost one is put at the end."""
    same = [c for c in cells if _task_of(c) == _task_of(stub) or c.get("id") == stub.get("id")]
    if not same:
        cells.append({**stub, "source": ""})
        return cells[-1]
    return same[0]


def _read(notebook: Path) -> dict[str, Any]:
    book: dict[str, Any] = json.loads(notebook.read_text(encoding="utf-8"))
    return book


def _text(book: dict[str, Any]) -> str:
    return json.dumps(book, indent=1, ensure_ascii=False) + "\n"  # as Jupyter writes it


def _task_of(cell: Cell) -> str | None:
    task: str | None = cell.get("metadata", {}).get("task")
    return task


def _source(cell: Cell) -> str:
    source: str | list[str] = cell["source"]
    return source if isinstance(source, str) else "".join(source)
