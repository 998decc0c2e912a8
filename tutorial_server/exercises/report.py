"""What a check found, and how it looks: an exact text, and the same as a small table."""

import sys
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

PASSED, WRONG, UNWRITTEN, UNKNOWN = "passed", "wrong", "not written", "unknown"
_MARKS = {"ok": "#1b7f3b", "WRONG": "#b3261e", "not reached": "#6b6b6b", "not written": "#8a5a00"}


@dataclass(frozen=True)
class Failure:
    """The first thing that was not as asked, all in words ready to print."""

    stage: str
    hint: str
    given: str = ""
    expected: str = ""
    got: str = ""
    differs: str = ""
    printed: str = ""

    def rows(self) -> list[tuple[str, str]]:
        """Label and text of each part that there is something to say about."""
        parts = [
            ("given", self.given),
            ("expected", self.expected),
            ("yours", self.got),
            ("they differ", self.differs),
            ("it printed", self.printed),
            ("hint", self.hint),
        ]
        return [(label, text) for label, text in parts if text]

    def __str__(self) -> str:
        return f"{self.stage}: {self.hint}"


@dataclass(frozen=True)
class Report:
    """The outcome of one check: true if all stages passed, false if anything is missing.

    `state` is passed, wrong, not written or unknown; `stages` are `(mark, name, about)`.
    `notes` say what else there is to know, such as where the solution was saved.
    """

    name: str
    state: str
    headline: str
    stages: tuple[tuple[str, str, str], ...] = ()
    failure: Failure | None = None
    notes: tuple[str, ...] = ()
    saved: Path | None = field(default=None, compare=False)

    def __bool__(self) -> bool:
        return self.state == PASSED

    @property
    def failures(self) -> tuple[str, ...]:
        """The messages: none if all passed."""
        if self.failure:
            return (str(self.failure),)
        return () if self else (self.headline,)

    @property
    def hint(self) -> str:
        """The hint of the stage that failed."""
        return self.failure.hint if self.failure else ""

    def __repr__(self) -> str:
        return f"<Report {self.name}: {self.state}>"

    def __str__(self) -> str:
        blocks = [self.headline, _stage_lines(self), _failure_lines(self), "\n".join(self.notes)]
        return "\n\n".join(block for block in blocks if block)

    def to_html(self) -> str:
        """The same as a table; inline colours only, as an untrusted notebook keeps those."""
        parts = [f"<div><b>{escape(self.headline)}</b></div>", _stage_table(self)]
        parts += [_failure_table(self)] + [f"<div>{escape(note)}</div>" for note in self.notes]
        return "\n".join(part for part in parts if part)


def _stage_lines(report: Report) -> str:
    width = max((len(name) for _, name, _ in report.stages), default=0)
    lines = [f"  {mark:<11}  {name:<{width}}  {about}" for mark, name, about in report.stages]
    return "\n".join(lines)


def _failure_lines(report: Report) -> str:
    if report.failure is None:
        return ""
    rows = report.failure.rows()
    width = max(len(label) for label, _ in rows)
    gap = "\n" + " " * (width + 4)
    lines = [f"  {label:<{width}}  {text.replace(chr(10), gap)}" for label, text in rows]
    return "\n".join([f'In stage "{report.failure.stage}":', *lines])


def _stage_table(report: Report) -> str:
    rows = [
        _row(
            [(mark, f"color:{_MARKS[mark]};font-weight:bold"), (name, ""), (about, "")],
        )
        for mark, name, about in report.stages
    ]
    return _table(rows)


def _failure_table(report: Report) -> str:
    if report.failure is None:
        return ""
    mono = "font-family:monospace;white-space:pre-wrap"
    rows = [
        _row([(label, "font-weight:bold"), (text, "" if label == "hint" else mono)])
        for label, text in report.failure.rows()
    ]
    return f"<div>In stage <b>{escape(report.failure.stage)}</b>:</div>\n" + _table(rows)


def _table(rows: list[str]) -> str:
    return "<table>\n" + "\n".join(rows) + "\n</table>" if rows else ""


def _row(cells: list[tuple[str, str]]) -> str:
    left = "text-align:left;vertical-align:top;padding:2px 12px 2px 0"
    done = [f'<td style="{left};{style}">{_lines(text)}</td>' for text, style in cells]
    return "<tr>" + "".join(done) + "</tr>"


def _lines(text: str) -> str:
    return escape(text).replace("\n", "<br>")


def show_report(report: Report) -> None:
    """Put a report before the learner's eyes: a table in a notebook, text elsewhere."""
    put(str(report), report.to_html())


def put(text: str, html: str = "", markdown: str = "") -> None:
    """Show text, in the richest form that this place can show."""
    data: dict[str, Any] = {"text/plain": text}
    data |= {"text/html": html} if html else {}
    data |= {"text/markdown": markdown} if markdown else {}
    if not _in_notebook():
        print(text)
        return
    from IPython.display import display

    display(data, raw=True)


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None
