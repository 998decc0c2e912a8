"""What a check found, and how it looks: an exact text, and the same as a small table."""

from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from . import kernel

PASSED, WRONG, UNWRITTEN, UNKNOWN = "passed", "wrong", "not written", "unknown"
_MARKS = {"ok": "#1b7f3b", "WRONG": "#b3261e", "not reached": "#59636e"}

# Text and background are both set, so that a dark theme changes neither; JupyterLab keeps
# inline hex colours in a notebook that it does not trust, and no other styling.
_INK, _PAPER = "#1b1f24", "#f6f8fa"
_PANEL = (
    f"display:inline-block;max-width:100%;overflow-x:auto;padding:8px 10px;margin:2px 0;"
    f"background-color:{_PAPER};color:{_INK};border:1px solid #afb8c1;border-radius:4px;"
    "font-family:'DejaVu Sans Mono',Menlo,Consolas,monospace;font-size:13px;line-height:1.35;"
    "text-align:left"
)
_GRID = (
    f"border-collapse:collapse;margin:6px 0 10px 0;background-color:{_PAPER};color:{_INK};"
    "font-size:13px"
)


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
    _shown_in: list[str | None] = field(default_factory=list, compare=False)

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

    def show(self) -> None:
        """Put it before the learner's eyes: tables in a notebook, text elsewhere."""
        self._shown_in.append(kernel.run_id())
        kernel.put(str(self), self.to_html())

    def _ipython_display_(self) -> None:
        """Show a report that ends a cell, unless this very run has shown it already."""
        if kernel.run_id() not in self._shown_in:
            self.show()

    def to_html(self) -> str:
        """The same as tables, on a panel that reads alike on a light and a dark page."""
        parts = [f"<b>{_lines(self.headline)}</b>", _stage_table(self), _failure_table(self)]
        parts += [f'<div style="margin-top:4px">{_lines(note)}</div>' for note in self.notes]
        return _panel("\n".join(part for part in parts if part))


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
            (
                f'<b style="color:{_MARKS[mark]}">{_unbroken(mark)}</b>',
                _unbroken(name),
                escape(about),
            )
        )
        for mark, name, about in report.stages
    ]
    return _table(rows)


def _failure_table(report: Report) -> str:
    if report.failure is None:
        return ""
    parts = report.failure.rows()
    rows = [_row((f"<b>{_unbroken(label)}</b>", _lines(text))) for label, text in parts]
    return f"In stage <b>{escape(report.failure.stage)}</b>:\n" + _table(rows)


def _panel(content: str) -> str:
    # Without this class JupyterLab would set what stands between two $ signs as a formula.
    return f'<div class="mathjax_ignore" style="{_PANEL}">{content}</div>'


def _table(rows: list[str]) -> str:
    body = "\n".join(rows)
    return f'<table style="{_GRID}"><tbody>{body}</tbody></table>' if rows else ""


def _row(cells: tuple[str, ...]) -> str:
    style = "text-align:left;vertical-align:top;padding:1px 14px 1px 0"
    done = "".join(f'<td style="{style}">{cell}</td>' for cell in cells)
    return f'<tr style="background-color:{_PAPER}">{done}</tr>'


def _lines(text: str) -> str:
    """Keep a text's lines, and the columns that its spaces make."""
    lines = [escape(line) for line in text.split("\n")]
    indents = ["&nbsp;" * (len(line) - len(line.lstrip(" "))) for line in lines]
    bare = [line.lstrip(" ").replace("  ", " &nbsp;") for line in lines]
    return "<br>".join(indent + line for indent, line in zip(indents, bare, strict=True))


def _unbroken(text: str) -> str:
    return escape(text).replace(" ", "&nbsp;")
