"""Where a learner's code is written: the cells of a notebook, or a file.

`inspect.getsource` fails for a class in a cell and for anything under `%%time`. So the
definition is looked for with `ast` in the text of the cells, newest first.
"""

import ast
import inspect
import linecache
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

from . import kernel

_CELL_FILE = re.compile(r"ipykernel_\d+|^<ipython-input")
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Found:
    """A statement of the learner's, and its text as written (decorators included)."""

    node: ast.stmt
    text: str


def definition(thing: Any) -> Found | None:
    """Find the text of a function or class, or None where it cannot be found."""
    thing = inspect.unwrap(thing)
    found = [f for text in _texts(thing) for f in _definitions(text, thing.__name__)]
    return next((f for f in found if _is_the_same(f, thing)), None)


def binding(thing: Any, name: str) -> Found | None:
    """Find the newest import or assignment that gives `name` its value, near `thing`."""
    for text in _texts(inspect.unwrap(thing)):
        for found in reversed(list(statements(text))):
            if name in _bound(found.node):
                return found
    return None


def statements(text: str) -> Iterator[Found]:
    """Give the top-level statements of a cell, those under a cell magic included."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    lines = text.splitlines()
    for node in tree.body:
        body = _magic_body(node)
        if body is not None:
            yield from statements(_plain(body))
            continue
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        yield Found(node, "\n".join(lines[first - 1 : node.end_lineno]))


def _texts(thing: Any) -> Iterator[str]:
    """Give the texts that may hold a thing's definition: its own file, then cells."""
    file = _file(thing)
    if file in linecache.cache or file.endswith(".py"):
        yield "".join(linecache.getlines(file))
    if getattr(thing, "__module__", "__main__") == "__main__":
        yield from cell_texts()


def _file(thing: Any) -> str:
    """Name the file that a function, or the first method of a class, was compiled from."""
    if inspect.isclass(thing):
        module = sys.modules.get(thing.__module__)
        if thing.__module__ != "__main__" and getattr(module, "__file__", None):
            return str(module.__file__)  # type: ignore[union-attr]
        methods = [m for m in vars(thing).values() if inspect.isfunction(m)]
        return methods[0].__code__.co_filename if methods else ""
    code = getattr(thing, "__code__", None)
    return code.co_filename if code else ""


def cell_texts() -> Iterator[str]:
    """Give the cells run in this kernel, newest first, with magics made harmless."""
    shell = kernel.shell()
    if shell is None:
        return
    history = [kernel.running_cell() or "", *reversed(shell.user_ns.get("In", []))]
    for text in dict.fromkeys(history):
        yield _plain(text)
    for file in reversed(list(linecache.cache)):  # kept even where history is not
        if _CELL_FILE.search(str(file)):
            yield "".join(linecache.getlines(file))


def _plain(text: str) -> str:
    """Turn IPython's own syntax into Python, which leaves the lines where they are."""
    from IPython.core.inputtransformer2 import TransformerManager

    try:
        return TransformerManager().transform_cell(text)
    except Exception:
        return text


def _magic_body(node: ast.stmt) -> str | None:
    """Give the code under a `%%magic`, which IPython passes on as a string."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return None
    call = node.value
    is_magic = isinstance(call.func, ast.Attribute) and call.func.attr == "run_cell_magic"
    body = call.args[2] if is_magic and len(call.args) == 3 else None
    return body.value if isinstance(body, ast.Constant) and isinstance(body.value, str) else None


def _definitions(text: str, name: str) -> list[Found]:
    """Give the definitions of `name` in a text, last first."""
    found = [f for f in statements(text) if isinstance(f.node, Definition)]
    return [f for f in reversed(found) if getattr(f.node, "name", "") == name]


def _is_the_same(found: Found, thing: Any) -> bool:
    """Tell whether a text is what the running function was compiled from.

    Bytecode depends on what stands around a definition, so names and constants are
    compared; of a class nothing is left to compare.
    """
    code = getattr(thing, "__code__", None)
    if code is None:
        return isinstance(found.node, ast.ClassDef)
    compiled = compile(ast.Module([found.node], []), "<found>", "exec", dont_inherit=True)
    inner = [c for c in compiled.co_consts if inspect.iscode(c) and c.co_name == code.co_name]
    return any(_print_of(c) == _print_of(code) for c in inner)


def _print_of(code: CodeType) -> tuple[Any, ...]:
    """A fingerprint: all that a function's text decides, wherever the text stands."""
    consts = [_print_of(c) if inspect.iscode(c) else repr(c) for c in code.co_consts]
    return code.co_names, code.co_varnames, code.co_cellvars, code.co_freevars, tuple(consts)


def _bound(node: ast.stmt) -> set[str]:
    """Name what a statement binds, if it is an import or a plain assignment."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.split(".")[0] for alias in node.names}
    if isinstance(node, ast.Assign):
        names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
        return {n.id for n in names if isinstance(n.ctx, ast.Store)}
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
        return {node.target.id}
    return set()
