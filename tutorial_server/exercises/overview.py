"""All tasks at once: how far a learner is, and whether what is saved still passes."""

from . import folder, progress, registry
from .outcome import report_of
from .report import PASSED, Report
from .saved import try_file


def status_text() -> str:
    """All tasks, lesson by lesson, with their state, minutes and difficulty."""
    blocks = [_lesson_text(lesson) for lesson in registry.LESSONS if lesson.tasks()]
    tasks = registry.all_tasks()
    left = [task for task in tasks if progress.state(task.name) != PASSED]
    minutes = sum(task.minutes for task in left)
    total = f"{len(tasks) - len(left)} of {len(tasks)} passed"
    return "\n\n".join([*blocks, total + (f", about {minutes} minutes left" if left else "")])


def check_saved() -> list[Report]:
    """Check every saved solution again from its file."""
    tasks = [t for t in registry.all_tasks() if folder.solution_file(t.name).is_file()]
    return [report_of(t, try_file(t, folder.solution_file(t.name))[0]) for t in tasks]


def print_saved() -> bool:
    """Print the status, and the report of each saved solution that no longer passes.

    True if there is none of those; for `tutorial-server check`.
    """
    reports = check_saved()
    print(status_text())
    for report in reports:
        if not report:
            print(f"\nSaved, but it no longer passes: {report}")
    return all(reports)


def _lesson_text(lesson: registry.Lesson) -> str:
    lines = [f"{lesson.number:02}  {lesson.title}"]
    for task in lesson.tasks():
        sort = "bug hunt" if task.hunt else task.difficulty
        state = progress.state(task.name)
        lines.append(f"    {task.name:<24}{state:<14}{task.minutes:>3} min   {sort}")
    return "\n".join(lines)
