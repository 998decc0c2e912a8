"""Run notebooks from top to bottom and store what they show, without churn.

Usage: python .ci/refresh_notebooks.py [NOTEBOOK ...]   (default: all lessons and exercises)

A cell whose output only differs in what nbval sanitises (timings) keeps its old output,
so that a refresh shows up in a diff only where something really changed.
"""

import configparser
import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
KEPT_METADATA = ("tags", "task")


def main(names: list[str]) -> None:
    paths = [Path(n).resolve() for n in names] or [
        *sorted((ROOT / "notebooks").glob("*.ipynb")),
        *sorted((ROOT / "exercises").glob("*.ipynb")),
    ]
    for path in paths:
        refresh(path)
        print(path.relative_to(ROOT))


def refresh(path: Path) -> None:
    """Execute one notebook in its own folder, and write it back in a canonical form."""
    old = nbformat.read(path, as_version=4)
    new = nbformat.read(path, as_version=4)
    NotebookClient(
        new,
        timeout=600,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": path.parent}},
    ).execute()
    new.metadata = {
        "kernelspec": {
            "display_name": "Python 3 (ipykernel)",
            "language": "python",
            "name": "python3",
        },
        "language_info": {"name": "python"},
    }
    rules = sanitize_rules()
    before = {cell.id: cell for cell in old.cells}
    for cell in new.cells:
        cell.metadata = {k: v for k, v in cell.metadata.items() if k in KEPT_METADATA}
        if cell.cell_type == "code":
            cell.outputs = [tidy(output) for output in merged(cell.outputs)]
            keep_old_outputs(cell, before.get(cell.id), rules)
    nbformat.write(new, path)


def merged(outputs: list) -> list:
    """Join pieces of one stream: how they were cut is a matter of chance."""
    result: list = []
    for output in outputs:
        if (
            output.output_type == "stream"
            and result
            and result[-1].output_type == "stream"
            and result[-1].name == output.name
        ):
            result[-1].text += output.text
        else:
            result.append(output)
    return result


def tidy(output):
    """Drop what says nothing to a reader; a picture keeps the size that it is shown at."""
    if "metadata" in output:
        output.metadata = {k: v for k, v in output.metadata.items() if k.startswith("image/")}
    if "data" in output:
        output.data.pop("application/vnd.jupyter.widget-view+json", None)
    return output


def sanitize_rules() -> list[tuple[str, str]]:
    config = configparser.RawConfigParser()
    config.read(ROOT / "tests" / "nbval.cfg")
    return [(config[s]["regex"], config[s]["replace"]) for s in config.sections()]


def keep_old_outputs(cell, old, rules) -> None:
    if old is None or old.cell_type != "code" or old.source != cell.source:
        return
    if essence(old.outputs, rules) == essence(cell.outputs, rules):
        cell.outputs = old.outputs
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = cell.execution_count


def essence(outputs: list, rules: list[tuple[str, str]]) -> list:
    """What of a cell's outputs nbval compares: texts after sanitising, pictures not at all."""
    result = []
    for output in outputs:
        texts = [output.text] if output.output_type == "stream" else []
        if "data" in output:
            texts += [str(v) for k, v in sorted(output.data.items()) if not k.startswith("image/")]
        for regex, replace in rules:
            texts = [re.sub(regex, replace, text) for text in texts]
        result.append((output.output_type, texts))
    return result


if __name__ == "__main__":
    main(sys.argv[1:])
