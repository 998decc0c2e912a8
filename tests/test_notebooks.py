"""What nbval does not look at: that lessons were really run, whole, and are in good form."""

import re
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[1]
LESSONS = sorted((ROOT / "notebooks").glob("*.ipynb"))
WITHOUT_EXERCISES = ("00_first_answer.ipynb", "10_your_tools.ipynb")  # the way in, the way out
EXERCISES = sorted((ROOT / "exercises").glob("*.ipynb"))

lessons = pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.stem)
notebooks = pytest.mark.parametrize("path", [*LESSONS, *EXERCISES], ids=lambda p: p.stem)


def code_cells(path: Path) -> list:
    cells = nbformat.read(path, as_version=4).cells
    return [c for c in cells if c.cell_type == "code" and c.source.strip()]


def markdown(path: Path) -> str:
    cells = nbformat.read(path, as_version=4).cells
    return "\n\n".join(c.source for c in cells if c.cell_type == "markdown")


def test_every_lesson_is_there_with_its_exercises():
    assert [p.stem[:2] for p in LESSONS] == [f"{n:02}" for n in range(len(LESSONS))]
    assert len(LESSONS) >= 8
    expected = [p.name for p in LESSONS if p.name not in WITHOUT_EXERCISES]
    assert [p.name for p in EXERCISES] == expected


@notebooks
def test_was_run_from_top_to_bottom(path):
    counts = [cell.execution_count for cell in code_cells(path)]
    assert counts == list(range(1, len(counts) + 1))


@notebooks
def test_shows_no_error(path):
    kinds = [o.output_type for cell in code_cells(path) for o in cell.outputs]
    assert "error" not in kinds


@notebooks
def test_has_no_trace_of_a_machine(path):
    text = path.read_text()
    assert not re.search(r"/(home|root|tmp|work|Users)/", text)
    assert '"widgets"' not in text


@lessons
def test_hides_at_most_two_outputs(path):
    hidden = [c.id for c in code_cells(path) if "nbval-ignore-output" in c.metadata.get("tags", [])]
    skipped = [c.id for c in code_cells(path) if "nbval-skip" in c.metadata.get("tags", [])]
    assert len(hidden) <= 2
    assert skipped == []


@lessons
def test_nearly_every_cell_shows_something(path):
    cells = code_cells(path)
    silent = [c.id for c in cells if not c.outputs and not re.match(r"guess\w* = None", c.source)]
    assert len(silent) <= len(cells) // 3, silent


@lessons
def test_predicts_asserts_and_recaps(path):
    sources = "\n".join(cell.source for cell in code_cells(path))
    assert re.search(r"^guess\w* = None", sources, re.MULTILINE)
    assert re.search(r"^\s*(assert |assert_agree\()", sources, re.MULTILINE)
    recap = markdown(path).split("## To remember")[1].split("\n## ")[0]
    points = [line for line in recap.splitlines() if re.match(r"([-*]|\d\.) ", line)]
    assert len(points) == 3


@lessons
def test_leads_to_its_exercises_and_the_next_lesson(path):
    end = markdown(path).split("## To remember")[1]
    number = LESSONS.index(path)
    if path.name not in WITHOUT_EXERCISES:
        assert f"../exercises/{path.name}" in end
    if number + 1 < len(LESSONS):
        assert LESSONS[number + 1].name in end


@notebooks
def test_links_lead_somewhere(path):
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", markdown(path)):
        assert link.startswith("https://") or (path.parent / link).exists(), link
