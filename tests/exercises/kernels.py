"""A real kernel, cell by cell: what a notebook does that a test process does not."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
from nbclient import NotebookClient


class Kernel:
    """Runs cells, and gives what they show as text; an error in a cell fails the test."""

    def __init__(self, client: NotebookClient):
        self._client = client

    def outputs(self, source: str, store_history: bool = True) -> list:
        cell = nbformat.v4.new_code_cell(source)
        self._client.nb.cells.append(cell)
        number = len(self._client.nb.cells) - 1
        self._client.execute_cell(cell, number, store_history=store_history)
        return cell.outputs

    def run(self, source: str, store_history: bool = True) -> str:
        return "\n".join(map(text_of, self.outputs(source, store_history)))


def text_of(output) -> str:
    return output.text if output.output_type == "stream" else output.data["text/plain"]


@contextmanager
def started(folder: Path) -> Iterator[Kernel]:
    client = NotebookClient(
        nbformat.v4.new_notebook(),
        timeout=120,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    )
    with client.setup_kernel():
        yield Kernel(client)
