"""What can be known of the notebook around us, and how to show something in it."""

import os
import sys
from pathlib import Path
from typing import Any


def shell() -> Any:
    """The IPython that runs here, or None; never starts one."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython else None


def running_cell() -> str | None:
    """The text of the cell that is being run, or None outside a kernel."""
    code: str | None = _request().get("content", {}).get("code")
    return code


def run_id() -> str | None:
    """A name for this one run of a cell, or None outside a kernel."""
    name: str | None = _request().get("header", {}).get("msg_id")
    return name


def notebook() -> Path | None:
    """Where Jupyter says that the open notebook lies, or None."""
    name = os.environ.get("JPY_SESSION_NAME")
    return Path(name) if name and name.endswith(".ipynb") else None


def put(text: str, html: str = "", markdown: str = "") -> None:
    """Show text, in the richest form that this place can show."""
    if shell() is None:
        print(text)
        return
    from IPython.display import display

    data = {"text/plain": text, "text/html": html, "text/markdown": markdown}
    display({kind: said for kind, said in data.items() if said}, raw=True)


def _request() -> dict[str, Any]:
    request: dict[str, Any] | None = getattr(shell(), "get_parent", dict)()
    return request or {}
