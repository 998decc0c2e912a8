import re
from typing import Any

import pytest
import torch
from IPython.core.formatters import DisplayFormatter
from tiny import tiny_tokenizer

from tutorial_server import display
from tutorial_server.padding import pad_left

TOKENIZER = tiny_tokenizer()
KEPT_TAGS = {"div", "span", "br", "table", "thead", "tbody", "tr", "th", "td"}


def displays() -> list[Any]:
    """One of each that is HTML, from texts that are awkward in it."""
    ids = TOKENIZER('<think><script>alert("1")</script>🙂 $5 & $6\n').input_ids
    labels = display.token_labels(TOKENIZER, ids)
    even = torch.full((len(TOKENIZER),), 1 / len(TOKENIZER))
    return [
        display.show_tokens(TOKENIZER, ids),
        display.show_mask(torch.ones(len(ids), len(ids)).tril(), labels),
        display.show_mask([[0, 1], [1, 1]], [["<script>"], ["&", '"']], kind="padding"),
        display.show_distribution(TOKENIZER, even, top=90),
        display.show_table([["<script>", 1]], ["<style>", "<svg>"]),
        display.compare(1, 2.0, "<script>"),
    ]


@pytest.mark.parametrize("shown", displays(), ids=lambda shown: type(shown).__name__)
def test_html_survives_an_untrusted_notebook(shown: Any):
    page = shown._repr_html_()
    for lost in ("<style", "<svg", "<script", "hsl(", "var(", "onclick"):
        assert lost not in page
    assert set(re.findall(r"</?([a-z]+)", page)) <= KEPT_TAGS
    assert set(re.findall(r' ([a-z-]+)="', page)) <= {"class", "style", "title", "scope"}


@pytest.mark.parametrize("shown", displays(), ids=lambda shown: type(shown).__name__)
def test_html_sets_ink_and_paper_and_no_formulas(shown: Any):
    page = shown._repr_html_()
    sheet = re.match(r'<div class="mathjax_ignore" style="([^"]*)">', page)
    assert sheet is not None
    assert re.search(r"background-color:#[0-9a-f]{6};color:#[0-9a-f]{6}", sheet[1])
    for style in re.findall(r'style="([^"]*background-color[^"]*)"', page):
        assert re.search(r"(^|;)color:#[0-9a-f]{6}", style) or style == "background-color:#f6f8fa"


@pytest.mark.parametrize("place", range(len(displays())))
def test_both_forms_are_the_same_each_time(place: int):
    first, second = displays()[place], displays()[place]
    assert repr(first) == repr(second)
    assert first._repr_html_() == second._repr_html_()


def test_source_is_the_code_that_runs():
    source = display.show_source(pad_left)
    assert repr(source).startswith("def pad_left(sequences")
    assert repr(source).endswith("return ids, mask")
    assert source._repr_markdown_() == (
        f"`tutorial_server.padding.pad_left`\n\n```python\n{source!r}\n```"
    )


def test_source_with_backticks_has_a_longer_fence():
    def quoting() -> str:
        return "```"

    source = display.show_source(quoting)
    assert repr(source) == 'def quoting() -> str:\n    return "```"'
    assert source._repr_markdown_().endswith(f"````python\n{source!r}\n````")


def test_source_of_a_decorated_function_is_its_own():
    @torch.inference_mode()
    def inner() -> int:
        return 1

    assert "return 1" in repr(display.show_source(inner))


def test_what_has_no_source_is_refused():
    with pytest.raises(TypeError):
        display.show_source(len)


def test_a_notebook_is_given_these_forms():
    formats = DisplayFormatter().format
    given = {type(shown).__name__: set(formats(shown)[0]) for shown in displays()}
    assert given == {
        name: {"text/plain", "text/html"}
        for name in ("TokenChips", "MaskPicture", "Distribution", "Table", "Comparison")
    }
    assert set(formats(display.show_source(pad_left))[0]) == {"text/plain", "text/markdown"}
    picture = display.plot_bars(["a"], [1], "x", "y", "t")
    data, metadata = formats(picture)
    assert set(data) == {"text/plain", "image/png"}
    assert metadata == {"image/png": {"width": 640, "height": 360}}


def test_every_name_offered_exists():
    assert all(hasattr(display, name) for name in display.__all__)


def test_a_signature_shows_all_but_the_body():
    from tutorial_server.padding import position_ids

    shown = repr(display.show_signature(position_ids))
    assert shown.startswith("def position_ids(mask: Tensor) -> Tensor:\n")
    assert "Number the real tokens of each row" in shown
    assert shown.endswith("\n    ...")
    assert "cumsum" not in shown
