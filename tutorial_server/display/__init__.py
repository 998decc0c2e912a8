"""Everything that a notebook shows something with, to import from one place.

Each display is an object with a plain text that is exact, and beside it HTML, Markdown or
a PNG. Nothing in them needs a trusted notebook, and nothing is said by colour alone.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .distribution import Distribution, show_distribution
from .mask_picture import MaskPicture, show_mask
from .plots import Picture, plot_bars, plot_lines
from .tables import Comparison, Table, compare, show_table
from .timeline import plot_timeline
from .token_chips import TokenChips, show_tokens
from .token_text import token_labels, token_text

__all__ = [
    "Comparison",
    "Distribution",
    "MaskPicture",
    "Picture",
    "Source",
    "Table",
    "TokenChips",
    "compare",
    "plot_bars",
    "plot_lines",
    "plot_timeline",
    "show_distribution",
    "show_mask",
    "show_signature",
    "show_source",
    "show_table",
    "show_tokens",
    "token_labels",
    "token_text",
]


@dataclass(frozen=True, repr=False)
class Source:
    """A function's source, as Python in Markdown and as the bare text."""

    name: str
    code: str

    def __repr__(self) -> str:
        return self.code

    def _repr_markdown_(self) -> str:
        longest = max((len(run) for run in re.findall("`+", self.code)), default=0)
        fence = "`" * max(3, longest + 1)
        return f"`{self.name}`\n\n{fence}python\n{self.code}\n{fence}"


def show_source(function: Callable[..., Any]) -> Source:
    """Show the code that runs, so that a lesson need not repeat it.

    `function` is a function or a class of the package. Raises OSError or TypeError where
    Python keeps no source of it.
    """
    code = textwrap.dedent(inspect.getsource(function)).rstrip()
    return Source(f"{function.__module__}.{function.__qualname__}", code)


def show_signature(function: Callable[..., Any]) -> Source:
    """Show what a function is for and how it is called, and leave its body to the exercises."""
    lines = textwrap.dedent(inspect.getsource(function)).splitlines()
    definition = ast.parse("\n".join(lines)).body[0]
    assert isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef)
    last = definition.body[0].end_lineno if ast.get_docstring(definition) else None
    shown = lines[definition.lineno - 1 : last or definition.body[0].lineno - 1]
    return Source(f"{function.__module__}.{function.__qualname__}", "\n".join([*shown, "    ..."]))
