"""Each exercise notebook runs untouched, and with the model solutions in place of its stubs."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from kernels import Kernel, started

from tutorial_server.exercises import registry
from tutorial_server.exercises.standalone import standalone

ROOT = Path(__file__).resolve().parents[2]
BOOKS = sorted((ROOT / "exercises").glob("*.ipynb"))
LESSONS = {lesson.notebook: lesson for lesson in registry.LESSONS}

# One kernel serves all notebooks, since starting one and importing torch takes most of the
# time. Each finds no names, none of the package's modules, and a learner's folder of its own.
BEGIN_ANEW = """
import os, sys
os.environ["TUTORIAL_SERVER_EXERCISES"] = {mine!r}
for name in [n for n in sys.modules if n.split(".")[0] == "tutorial_server"]:
    del sys.modules[name]
get_ipython().run_line_magic("reset", "-f")
"""


@pytest.fixture(scope="module")
def shared_kernel() -> Iterator[Kernel]:
    with started(ROOT / "exercises") as kernel:
        yield kernel


@pytest.fixture
def kernel(shared_kernel: Kernel, mine: Path) -> Kernel:
    shared_kernel.run(BEGIN_ANEW.format(mine=str(mine)), store_history=False)
    names = "not {'os', 'sys', 'name', 'check', 'torch', 'json'} & set(globals())"
    assert shared_kernel.run(f"print({names})", store_history=False) == "True\n"
    return shared_kernel


def code_cells(book):
    cells = json.loads(book.read_text())["cells"]
    return [c for c in cells if c["cell_type"] == "code"]


@pytest.mark.parametrize("book", BOOKS, ids=lambda p: p.stem)
def test_untouched_and_solved(book, kernel, mine):
    tasks = {task.name: task for task in LESSONS[book.name].tasks()}
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
