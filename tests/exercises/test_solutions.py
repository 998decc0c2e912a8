"""Every task is known by what it refuses, and by what it lets pass."""

import ast
import functools
import re
from pathlib import Path

import pytest
from solutions import RIGHT, WRONG

from tutorial_server.exercises import mine, registry, saved
from tutorial_server.exercises.standalone import standalone
from tutorial_server.exercises.trial import try_out

TASKS = registry.all_tasks()
LESSONS = [lesson for lesson in registry.LESSONS if lesson.tasks()]

# In which lesson a module of the package is first talked about; others may be used from 00 on.
TAUGHT = {
    "chat": 1, "padding": 2, "logits": 3, "runner": 3, "sampling": 4, "bench": 5,
    "decoding": 5, "memory": 5, "sequence": 5, "detokenize": 6, "sse": 6, "answer": 7, "api": 7,
    "background": 7, "engine": 7, "reading": 7, "schemas": 7, "serving": 7, "steps": 7,
    "forward_pass": 8, "layers": 8, "linear": 8, "slot_runner": 8, "slots": 8, "transformer": 8,
    "batch": 9, "load": 9, "load_client": 9, "load_plan": 9, "load_report": 9, "percentile": 9,
    "runners": 9, "schedule": 9, "timeline": 9,
}  # fmt: skip

tasks = pytest.mark.parametrize("task", TASKS, ids=lambda t: t.name)
lessons = pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.title)
wrongs = pytest.mark.parametrize("solution", WRONG, ids=str)
rights = pytest.mark.parametrize("solution", RIGHT, ids=str)


@functools.cache
@functools.cache
def failure(solution):
    trial = try_out(registry.find(solution.task), solution.function)
    assert not trial
    return trial.failure


@tasks
def test_the_packages_own_solution_passes(task):
    trial = try_out(task, task.solution)
    assert trial, trial.failure
    assert trial.passed == len(task.stages)


@tasks
def test_it_also_passes_from_a_saved_copy(task):
    result = saved.save(task, task.solution)
    assert result.file is not None, result.note
    trial, function = saved.try_file(task, result.file)
    assert trial, trial.failure
    assert function is not task.solution


@wrongs
def test_a_wrong_solution_is_refused_and_its_fault_named(solution):
    assert re.search(solution.fault, failure(solution).hint)


@wrongs
def test_no_other_fault_is_named(solution):
    hint = failure(solution).hint
    others = {w.fault for w in WRONG if w.task == solution.task} - {solution.fault}
    assert [fault for fault in others if re.search(fault, hint)] == []


@rights
def test_a_right_solution_passes_however_it_is_written(solution):
    trial = try_out(registry.find(solution.task), solution.function)
    assert trial, trial.failure


@rights
def test_a_right_solution_passes_from_a_file_of_its_own(solution, tmp_path):
    alone = standalone(solution.function, solution.function.__name__)
    assert set(alone.missing) == {"right"}  # the decorator, which lies beside this file
    file = tmp_path / "alone.py"
    named = f"{solution.task} = {solution.function.__name__}"
    file.write_text(f"right = lambda _: lambda fn: fn\n{alone.text}\n{named}\n")
    trial, _ = saved.try_file(registry.find(solution.task), file)
    assert trial, trial.failure


@tasks
def test_there_are_enough_of_either(task):
    asked = 6 if task.name in mine.STEPS else 3
    assert sum(w.task == task.name for w in WRONG) >= asked
    assert sum(r.task == task.name for r in RIGHT) >= 1


def test_every_solution_belongs_to_a_task():
    assert {s.task for s in [*WRONG, *RIGHT]} <= {task.name for task in TASKS}


def test_no_two_tasks_share_a_name():
    assert len({task.name for task in TASKS}) == len(TASKS)


@lessons
def test_a_lesson_has_one_bug_hunt_and_numbers_its_tasks(lesson):
    assert sum(task.hunt for task in lesson.tasks()) == 1
    assert {task.lesson for task in lesson.tasks()} == {lesson.number}


@lessons
def test_cases_import_only_what_has_been_taught(lesson):
    later = {module for module, first in TAUGHT.items() if first > lesson.number}
    imported = set()
    for node in ast.walk(ast.parse(Path(lesson.source()).read_text())):
        if isinstance(node, ast.ImportFrom):
            imported |= set((node.module or "").split("."))
            imported |= {alias.name for alias in node.names if node.level}
        elif isinstance(node, ast.Import):
            imported |= {part for alias in node.names for part in alias.name.split(".")}
    assert imported & later == set()
