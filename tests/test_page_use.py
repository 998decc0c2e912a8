"""The chat page as people use it: by hand, by ear, by eye, on narrow screens and wide ones."""

import re
from typing import Any

import pytest
from scripted import Hold, Refusal
from server import wait_until

pytest_plugins = ("browser",)

# The contrast of each text with what is behind it, as WCAG 2 reckons it.
CONTRASTS = """() => {
    const parse = colour => colour.match(/[\\d.]+/g).map(Number);
    const light = colour => parse(colour).slice(0, 3).map(c => c / 255)
        .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const ground = element => {
        const colour = getComputedStyle(element).backgroundColor;
        return (parse(colour)[3] ?? 1) ? colour : ground(element.parentElement);
    };
    return [...document.body.querySelectorAll("*")]
        .filter(e => e.checkVisibility() && !e.closest("svg, .unseen, .skip"))
        .filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()))
        .map(e => {
            const [a, b] = [light(getComputedStyle(e).color), light(ground(e))];
            return [e.textContent.slice(0, 30), (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)];
        });
}"""


def test_the_keyboard_is_enough(script: Any, open_page: Any) -> None:
    said, url = script
    said.answer = ("Once ", Hold())
    page = open_page(url)
    keys = page.tab.keyboard
    assert page.focused() == "prompt"
    keys.press("Enter")
    keys.type("   ")
    keys.press("Enter")
    assert said.asked == []
    page.tab.fill("#prompt", "")
    keys.type("one")
    keys.press("Shift+Enter")
    keys.type("two")
    keys.press("Enter")
    page.wait_text(".answer", "Once ")
    assert said.asked[0]["messages"] == [{"role": "user", "content": "one\ntwo"}]
    keys.type("next")
    keys.press("Enter")  # while an answer is written: kept, not sent
    assert page.tab.input_value("#prompt") == "next"
    keys.press("Escape")
    page.wait("stopped")
    wait_until(lambda: said.left == 1, "the client's leaving")
    assert len(said.asked) == 1


def test_enter_that_ends_a_composition_does_not_send(script: Any, open_page: Any) -> None:
    said, url = script
    page = open_page(url)
    page.tab.fill("#prompt", "にほん")
    press = """options => document.getElementById("prompt")
        .dispatchEvent(new KeyboardEvent("keydown", options))"""
    enter = {"key": "Enter", "bubbles": True, "cancelable": True}
    press = f"options => {{ const prompt = document.getElementById('prompt'); ({press})(options) }}"
    page.tab.evaluate(press, {**enter, "isComposing": True})
    page.tab.evaluate(press, {**enter, "keyCode": 229})
    assert page.tab.locator(".turn").count() == 0
    assert page.tab.input_value("#prompt") == "にほん"
    page.tab.evaluate(press, enter)
    page.answered()
    assert said.asked[0]["messages"][0]["content"] == "にほん"


def test_a_screen_reader_hears_an_answer_once(script: Any, open_page: Any) -> None:
    said, url = script
    said.answer = ("a ", 0.05, "b ", 0.05, "c")
    page = open_page(url)
    page.tab.evaluate("""() => {
        window.heard = [];
        const announcer = document.getElementById("announcer");
        new MutationObserver(() => window.heard.push(announcer.textContent))
            .observe(announcer, { childList: true, characterData: true, subtree: true });
    }""")
    page.ask("hello")
    assert page.tab.evaluate("window.heard") == ["Sent.", "The answer: a b c"]
    assert page.tab.get_attribute("#log", "aria-live") == "off"


def test_every_control_has_a_name(script: Any, open_page: Any) -> None:
    page = open_page(script[1])
    page.tab.evaluate("document.querySelectorAll('[hidden]').forEach(e => e.hidden = false)")
    snapshot = page.tab.locator("body").aria_snapshot()
    controls = re.findall(r"- (button|textbox|slider|spinbutton|img|meter|log)(.*)", snapshot)
    assert len(controls) >= 12
    assert [kind for kind, rest in controls if not re.match(r' "[^"]+"', rest)] == []
    names = {name for _, rest in controls for name in re.findall(r'^ "([^"]+)"', rest)}
    assert {"Message", "System prompt", "Temperature", "Top-p", "Top-k", "Token limit"} <= names


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(script: Any, open_page: Any, scheme: str) -> None:
    said, url = script
    said.replies = [("A whole answer.",), Refusal(400, "No.")]
    page = open_page(url, color_scheme=scheme)
    page.ask("one")
    page.send("two")
    page.wait("failed")
    ratios = page.tab.evaluate(CONTRASTS)
    assert len(ratios) > 20
    assert [found for found in ratios if found[1] < 4.5] == []


@pytest.mark.parametrize("width", [320, 360, 820, 1440])
def test_it_fits_every_width(script: Any, open_page: Any, width: int) -> None:
    said, url = script
    said.answer = ("long" * 200, "\n" * 30)
    page = open_page(url, width, 640)
    page.ask("x" * 500)
    overflow = """() => [...document.querySelectorAll("body, header, #tiles, main, #log, .turn *")]
        .filter(e => e.checkVisibility() && e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 1)
        .map(e => e.id || e.className || e.tagName)"""
    assert page.tab.evaluate(overflow) == []
    assert page.tab.evaluate("document.documentElement.scrollHeight") == 640
    for panel in ("Timing", "Settings"):
        if width < 720:
            page.press(panel)
            button = page.tab.get_by_role("button", name=panel, exact=True)
            assert button.get_attribute("aria-expanded") == "true"
        assert page.tab.locator(f"#{panel.lower()}").is_visible()
        assert page.tab.evaluate(overflow) == []
    for control in ("#prompt", "#send", "#limit", "#new"):
        box = page.tab.locator(control).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width


def test_the_log_follows_only_who_is_at_its_end(script: Any, open_page: Any) -> None:
    said, url = script
    said.answer = ("line\n" * 80, Hold(), "end\n" * 80)
    page = open_page(url)
    distance = "() => { const l = document.getElementById('log');"
    distance += " return l.scrollHeight - l.scrollTop - l.clientHeight }"
    page.send("hello")
    page.wait("writing")
    assert page.tab.evaluate(distance) < 2
    page.tab.evaluate("document.getElementById('log').scrollTop = 100")
    page.tab.wait_for_selector("#latest:not([hidden])")
    said.released = True
    page.wait("done")
    assert page.tab.evaluate("document.getElementById('log').scrollTop") == 100
    page.press("Latest ↓")
    page.tab.wait_for_selector("#latest", state="hidden")
    assert page.tab.evaluate(distance) < 2


def test_nothing_moves_where_that_is_asked_for(script: Any, open_page: Any) -> None:
    said, url = script
    said.answer = (Hold(),)
    page = open_page(url, reduced_motion="reduce")
    page.send("hello")
    page.wait("waiting")
    name = "getComputedStyle(document.querySelector('.answer'), '::after').animationName"
    assert page.tab.evaluate(name) == "none"
    said.released = True
    page.wait("done")
    assert page.note() == "The model ended its turn without a word."
