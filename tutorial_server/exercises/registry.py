"""The lessons and their tasks; a lesson's cases are imported when first asked for."""

import importlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path

from .task import Task


@dataclass(frozen=True)
class Lesson:
    """One lesson: its number, its title, and the file name that its notebooks share."""

    number: int
    title: str

    @property
    def notebook(self) -> str:
        """File name of the exercise notebook, the lesson's own as well."""
        words = self.title.lower().replace("-", " ").split()
        return f"{self.number:02}_{'_'.join(words)}.ipynb"

    @property
    def module(self) -> str:
        """Module that holds the cases."""
        return f"{__package__}.lesson{self.number:02}"

    def tasks(self) -> tuple[Task, ...]:
        """All tasks in their order; none where the cases are not there."""
        if self.source() is None:
            return ()
        tasks: tuple[Task, ...] = importlib.import_module(self.module).TASKS
        return tasks

    def source(self) -> Path | None:
        """The file of the cases."""
        spec = importlib.util.find_spec(self.module)
        return Path(spec.origin) if spec and spec.origin else None

    def mentions(self, name: str) -> bool:
        """Tell whether the cases speak of a task, without importing what they need."""
        source = self.source()
        return source is not None and f'"{name}"' in source.read_text(encoding="utf-8")


LESSONS = (
    Lesson(1, "Tokens and chat templates"),
    Lesson(2, "Attention masks and padding"),
    Lesson(3, "Prefill"),
    Lesson(4, "Sampling"),
    Lesson(5, "KV-cached decoding"),
    Lesson(6, "Streaming"),
    Lesson(7, "The server"),
    Lesson(8, "The model with its cover off"),
    Lesson(9, "Many users"),
)


def all_tasks() -> list[Task]:
    """Every task of the course, lesson by lesson."""
    return [task for lesson in LESSONS for task in lesson.tasks()]


def find(name: str) -> Task | None:
    """The task of that name, or None; imports no lesson that does not mention it."""
    tasks = (t for lesson in LESSONS if lesson.mentions(name) for t in lesson.tasks())
    return next((task for task in tasks if task.name == name), None)


def lesson_of(task: Task) -> Lesson:
    """The lesson that a task belongs to."""
    return next(lesson for lesson in LESSONS if lesson.number == task.lesson)
