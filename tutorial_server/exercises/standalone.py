"""A learner's function as a file that stands alone: with it, all that it leans on."""

import __future__

import ast
import dis
import importlib
import inspect
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from . import cells

_LOADS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_LONGEST_LITERAL = 5000  # characters
_LITERALS = (bool, int, float, str, bytes, list, tuple, dict, set, type(None))
_SMALL = {"builtins", "collections", "datetime", "enum", "functools", "json", "math", "numpy"}
_SMALL |= {"operator", "pathlib", "re", "string", "torch", "types", "typing"}


@dataclass(frozen=True)
class Standalone:
    """The text of the file, and what could not be put into it: name → why."""

    text: str
    missing: dict[str, str]


def standalone(thing: Any, name: str) -> Standalone:
    """Collect the definition of a function or class, and what its names stand for.

    Helpers are taken in as text, modules as imports, small constants by value, other
    assignments as written. A loaded model, a tokenizer or an unknown object is `missing`.
    """
    collector = _Collector(thing)
    collector.define(name, thing)
    return Standalone(collector.text(name), collector.missing)


class _Collector:
    """Walks from one definition to all that it needs, needed things first."""

    def __init__(self, thing: Any):
        thing = inspect.unwrap(thing)
        self.thing = thing
        self.module = thing.__module__
        space = getattr(thing, "__globals__", None)
        self.space: dict[str, Any] = vars(sys.modules[self.module]) if space is None else space
        self.imports: dict[str, None] = {}
        self.pieces: list[str] = []
        self.missing: dict[str, str] = {}
        self.seen: set[str] = set()

    def text(self, name: str) -> str:
        """Write the file: imports, then the pieces in the order in which they are needed."""
        about = f'"""{name}, saved by tutorial_server.exercises when it passed its check."""'
        code = _code(self.thing)
        late = code is not None and code.co_flags & __future__.annotations.compiler_flag
        future = ["from __future__ import annotations"] if late else []
        blocks = [about, "\n".join(future + sorted(self.imports)), *self.pieces]
        return "\n\n".join(block for block in blocks if block) + "\n"

    def define(self, name: str, thing: Any) -> None:
        """Take in a function or class as text."""
        self.seen.add(name)
        found = cells.definition(thing)
        if found is None:
            self.missing[name] = "its text was not found in a cell; define it at the top of one"
            return
        for free in getattr(_code(thing), "co_freevars", ()):
            self.missing[free] = "it belongs to the function around yours"
        self._take(found.text)

    def _take(self, text: str) -> None:
        for name in _names_used(text):
            self._need(name)
        self.pieces.append(text)

    def _need(self, name: str) -> None:
        if name in self.seen or name not in self.space:
            return
        self.seen.add(name)
        value = self.space[name]
        if isinstance(value, ModuleType):
            self._import(name, value, _import_line(value.__name__, name))
        elif _is_defined_in(value, self.module):
            self.define(value.__name__, value)
            if value.__name__ != name:
                self.pieces.append(f"{name} = {value.__name__}")
        elif line := _from_line(value, name):
            self._import(name, sys.modules[value.__module__], line)
        else:
            self._bind(name, value)

    def _import(self, name: str, module: ModuleType, line: str) -> None:
        """Take in an import, unless the module lies beside the notebook, where only it looks."""
        if _lies_here(module):
            self.missing[name] = f"module {module.__name__} is a file of yours, not installed"
        else:
            self.imports[line] = None

    def _bind(self, name: str, value: Any) -> None:
        """Take in a constant by value, or the statement that made it."""
        literal = _literal(value)
        if literal is not None:
            self.pieces.append(f"{name} = {literal}")
            return
        found = cells.binding(self.thing, name)
        if found is not None and isinstance(found.node, ast.Import | ast.ImportFrom):
            self.imports[_one_of(found.node, name)] = None
        elif found is not None and _is_small(value):
            self._take(found.text)
        else:
            self.missing[name] = f"a {type(value).__name__} made elsewhere in your notebook"


def _code(thing: Any) -> CodeType | None:
    """The code of the function itself, under its decorators."""
    return getattr(inspect.unwrap(thing), "__code__", None)


def _names_used(text: str) -> list[str]:
    """Name what a definition looks up outside itself, its decorators and defaults included.

    A class looks up `__name__`, which every file has of its own.
    """
    names = _loaded(compile(textwrap.dedent(text), "<text>", "exec"))
    return [name for name in dict.fromkeys(names) if name != "__name__"]


def _loaded(code: CodeType) -> list[str]:
    instructions = list(dis.get_instructions(code))
    stored = {i.argval for i in instructions if i.opname == "STORE_NAME"}
    names = [i.argval for i in instructions if i.opname in _LOADS and i.argval not in stored]
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    return names + [name for c in inner for name in _loaded(c)]


def _is_defined_in(value: Any, module: str) -> bool:
    named = inspect.isfunction(inspect.unwrap(value)) if callable(value) else False
    named = (named and value.__name__ != "<lambda>") or inspect.isclass(value)
    return named and getattr(value, "__module__", None) == module


def _import_line(module: str, name: str) -> str:
    return f"import {module}" if module == name else f"import {module} as {name}"


def _from_line(value: Any, name: str) -> str:
    """Say how to import a function or class of an installed module, or nothing."""
    module, own = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if not isinstance(module, str) or not isinstance(own, str) or module == "__main__":
        return ""
    try:
        found = getattr(importlib.import_module(module), own, None)
    except Exception:
        return ""
    alias = "" if own == name else f" as {name}"
    return f"from {module} import {own}{alias}" if found is value else ""


def _one_of(node: ast.Import | ast.ImportFrom, name: str) -> str:
    """Cut an import statement down to the one name that is needed."""
    alias = next(a for a in node.names if (a.asname or a.name.split(".")[0]) == name)
    single = type(node)(**{**dict(ast.iter_fields(node)), "names": [alias]})
    return ast.unparse(single)


def _lies_here(module: ModuleType) -> bool:
    """Tell a module that is found only because the notebook runs in its folder."""
    file = Path(getattr(module, "__file__", None) or sys.executable)
    installed = "site-packages" in file.parts or module.__name__.startswith("tutorial_server")
    return not installed and file.is_relative_to(Path.cwd())


def _literal(value: Any) -> str | None:
    """Write a constant as Python, or give None for what has no short literal."""
    text = repr(value) if isinstance(value, _LITERALS) else ""
    try:
        same = len(text) <= _LONGEST_LITERAL and ast.literal_eval(text) == value
    except (ValueError, SyntaxError):
        return None
    return text if same else None


def _is_small(value: Any) -> bool:
    """Tell what may be made anew when the file is read; a model may not."""
    home = type(value).__module__.split(".")[0]
    return home in {*_SMALL, "__main__"} and not hasattr(value, "parameters")
