"""What a task of the course is made of: stages that name one suspect each, and hints."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Check = Callable[[Any], None]
Raises = tuple[type[BaseException], str, str]


class Words(str):
    """Text for a person, shown as it stands; any other str is a value and gets quotes."""


ABSENT = Words("")


class Wrong(Exception):
    """Raised by a stage: what came is not what was expected, and the hint says why.

    `hint` names the fault in the learner's terms. `expected` and `got` are values, or
    `Words`. `given` is what the function was called with, as `{name: value}`; without it
    the last call's arguments are shown. `differs` says where the two part.
    """

    def __init__(
        self,
        hint: str,
        *,
        expected: Any = ABSENT,
        got: Any = ABSENT,
        given: dict[str, Any] | None = None,
        differs: str = "",
    ):
        super().__init__(hint)
        self.hint = hint
        self.expected = expected
        self.got = got
        self.given = given
        self.differs = differs


@dataclass(frozen=True)
class Stage:
    """One look at the learner's function, with inputs that leave one thing to blame.

    `check` takes the function, and returns or raises `Wrong`. `raises` has hints for a
    function that itself raises here: `(type, part of the message, hint)`, the first that
    fits counts.
    """

    name: str
    about: str
    check: Check
    raises: tuple[Raises, ...] = ()

    def __post_init__(self) -> None:
        if not self.name or not self.about:
            raise ValueError("a stage needs a name, and words for what it looks at")


@dataclass(frozen=True)
class Task:
    """A function to write or to mend, with all that the course says about it.

    `solution` is the package's own function, which passes the same stages; `helpers` are
    shown with it. `hints` are three: the idea, the shapes, nearly the code. The stages of
    a `hunt` look at a function that the learner was given with a defect in it.
    """

    name: str
    lesson: int
    minutes: int
    difficulty: str
    statement: str
    stages: tuple[Stage, ...]
    hints: tuple[str, str, str]
    solution: Any
    helpers: tuple[Any, ...] = ()
    hunt: bool = False

    def __post_init__(self) -> None:
        if not self.stages or not all(self.hints) or len(self.hints) != 3:
            raise ValueError(f"{self.name}: a task needs stages and three hints")
        if self.difficulty not in ("easy", "medium", "hard"):
            raise ValueError(f"{self.name}: difficulty is easy, medium or hard")

    @property
    def signature(self) -> str:
        """How the function is called, without annotations: `pad_left(sequences, pad_id)`."""
        if isinstance(self.solution, type):
            return f"class {self.name}"
        parameters = inspect.signature(self.solution).parameters.values()
        bare = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
        return self.name + str(inspect.Signature(bare))

    @property
    def file(self) -> str:
        """Name of the file that holds a passed solution."""
        return f"{self.name}.py"
