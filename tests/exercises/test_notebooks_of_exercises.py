"""Each exercise notebook runs untouched, and with the model solutions in place of its stubs."""

import json
from pathlib import Path

import pytest
from kernels import started

from tutorial_server.exercises import registry
from tutorial_server.exercises.standalone import standalone

ROOT = Path(__file__).resolve().parents[2]
BOOKS = sorted((ROOT / "exercises").glob("*.ipynb"))
LESSONS = {lesson.notebook: lesson for lesson in registry.LESSONS}


def code_cells(book):
    cells = json.loads(book.read_text())["cells"]
    return [c for c in cells if c["cell_type"] == "code"]


@pytest.mark.parametrize("book", BOOKS, ids=lambda p: p.stem)
def test_untouched_and_solved(book, mine):
    tasks = {task.name: task for task in LESSONS[book.name].tasks()}
    with started(book.parent) as kernel:
        said = {c["id"]: kernel.run("".join(c["source"])) for c in code_cells(book)}
        for name, task in tasks.items():
            untouched = said[f"{name.replace('_', '-')}-check"]
            verdict = "not mended yet" if task.hunt else "not written yet"
            assert untouched.startswith(f"{name}: {verdict}")
        assert not mine.exists()  # looking is not trying
        for name, task in tasks.items():
            kernel.run(standalone(task.solution, name).text)
            said = kernel.run(f"r = check({name})\nprint(bool(r), r.failures)")
            assert "checked again from there" in said
            assert said.endswith("True ()\n")
    assert {f.stem for f in (mine / "solutions").iterdir()} == set(tasks)


@pytest.mark.parametrize("book", BOOKS, ids=lambda p: p.stem)
def test_each_task_has_its_stub_and_its_check(book):
    cells = code_cells(book)
    names = [task.name for task in LESSONS[book.name].tasks()]
    assert [c["metadata"]["task"] for c in cells if "task" in c["metadata"]] == names
    checks = ["".join(c["source"]).split("\n")[0] for c in cells if c["id"].endswith("-check")]
    assert checks == [f"check({name})" for name in names]


@pytest.mark.parametrize("book", BOOKS, ids=lambda p: p.stem)
def test_each_task_states_its_minutes_and_difficulty(book):
    cells = json.loads(book.read_text())["cells"]
    text = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    for task in LESSONS[book.name].tasks():
        assert f"`{task.name}" in text
        assert f"*{task.minutes} minutes, {task.difficulty}.*" in text
