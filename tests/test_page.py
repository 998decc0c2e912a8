"""The chat page in a real browser: over a tiny model, and over a server that plays a part."""

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from typing import Any

import httpx
import pytest
from scripted import BREAK, GAUGES, Hold, Refusal, Script
from server import GatedRunner, Server, gated, serving, wait_until
from tiny import tiny_llama

from tutorial_server.background import background
from tutorial_server.chat import Message, encode_chat
from tutorial_server.config import Settings
from tutorial_server.decoding import run
from tutorial_server.models import LLM
from tutorial_server.page import page_routes
from tutorial_server.runner import TransformersRunner
from tutorial_server.sequence import SamplingParams, Sequence

pytest_plugins = ("browser",)
HOSTILE = (
    "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
    "</div><a href='javascript:alert(1)'>press</a>&lt;b&gt; <svg/onload=alert(1)>\u202e evil"
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(lambda: TransformersRunner(tiny_llama())) as server:
        yield server


@pytest.fixture
def held() -> Iterator[tuple[Server, GatedRunner]]:
    """A server whose tokens the test lets through; no id ends its answers."""
    settings = Settings(max_waiting=0)
    with gated(endless(), settings) as pair:
        yield pair


def endless() -> LLM:
    """The tiny model, with no id that ends a turn."""
    return replace(tiny_llama(), stop_ids=frozenset())


def expected(*said: str, limit: int, llm: LLM | None = None) -> str:
    """The greedy answer to a conversation that is told as user, assistant, user …"""
    llm = llm or tiny_llama()
    sequence = Sequence(llm, prompt_ids(*said), SamplingParams(limit))
    return "".join(run(TransformersRunner(llm), sequence))


def prompt_ids(*said: str) -> list[int]:
    roles = cycle(("user", "assistant"))
    turns: list[Message] = [
        {"role": role, "content": text} for role, text in zip(roles, said, strict=False)
    ]
    return encode_chat(tiny_llama(), turns)


# --- over a real server and a tiny model ----------------------------------------------


def test_the_answer_shown_is_the_server_s(server: Server, open_page: Any) -> None:
    page = open_page(server.url)
    page.set("Temperature", 0)
    page.set("Token limit", 12)
    first = page.ask("hello")
    assert first == expected("hello", limit=12)
    assert len(first) > 0
    second = page.ask("and then?")
    assert second == expected("hello", first, "and then?", limit=12)
    assert second != expected("and then?", limit=12)
    assert page.text("#status") == "tiny-llama"


def test_figures_are_the_server_s_and_the_browser_s(server: Server, open_page: Any) -> None:
    page = open_page(server.url)
    page.set("Temperature", 0)
    page.set("Token limit", 12)
    page.ask("hello")
    assert re.match(r"12 tokens · [\d.]+ m?s to the first · [\d.]+ tokens/s$", page.text(".meta"))
    assert re.match(
        r"Queued .+, prefill .+, then 12 tokens in .+ at most\.$", page.text("#summary")
    )
    assert re.match(r"[\d.]+ m?s$", page.text("#ttft"))
    assert float(page.text("#rate")) > 0
    page.wait_text("#running", "0")
    page.wait_text("#waiting", "0")
    page.wait_text("#cache", "0%")


def test_stop_keeps_what_came_and_frees_the_row(held: Any, open_page: Any) -> None:
    server, runner = held
    page = open_page(server.url)
    page.set("Temperature", 0)
    page.send("hello")
    runner.allow(6)
    runner.wait_begun(7)
    long = "() => document.querySelector('.turn .answer').textContent.length > 2"
    page.tab.wait_for_function(long)
    page.press("Stop")
    page.wait("stopped")
    runner.open()
    server.wait_line(waiting=0, running=0)
    assert runner.sequences[0].cancelled
    assert runner.sequences[0].cache is None
    shown = page.text(f"{page.last} .answer")
    whole = expected("hello", limit=6, llm=endless())
    assert len(shown) > 2
    assert whole.startswith(shown)
    assert page.note() == "Stopped; above is what came."
    assert page.focused() == "prompt"
    page.set("Token limit", 4)
    page.ask("go on")
    (asked,) = [list(s.prompt_ids) for s in runner.sequences[1:]]
    assert asked == prompt_ids("hello", shown, "go on")


def test_a_failure_in_the_middle_is_said(held: Any, open_page: Any) -> None:
    server, runner = held
    page = open_page(server.url)
    page.set("Temperature", 0)
    runner.fail_at = 6
    page.send("hello")
    runner.open()
    page.wait("failed")
    whole = expected("hello", limit=5, llm=endless())
    assert page.text(f"{page.last} .answer") == whole
    assert page.note() == "The model failed while answering; the server's log says why."
    page.set("Token limit", 3)
    page.press("Try again")
    assert page.answered() == expected("hello", limit=3)
    assert page.tab.locator(".turn").count() == 1


def test_a_full_line_is_said_with_when_to_try_again(held: Any, open_page: Any) -> None:
    server, runner = held
    first, second = open_page(server.url), open_page(server.url)
    first.send("hello")
    server.wait_line(waiting=0, running=1)
    second.set("Token limit", 2)
    second.send("me too")
    second.wait("failed")
    assert second.note().startswith("The server is busy. ")
    assert second.note().endswith(" Try again in 1 s.")
    first.tab.keyboard.press("Escape")
    first.wait("stopped")
    runner.open()
    server.wait_line(waiting=0, running=0)
    second.press("Try again")
    second.wait("done")


def test_a_key_is_asked_for_kept_in_the_tab_and_sent(open_page: Any) -> None:
    settings = Settings(api_key="sesame")
    with serving(lambda: TransformersRunner(tiny_llama()), settings) as server:
        page = open_page(server.url)
        page.tab.wait_for_selector("#key-form:not([hidden])")
        page.set("Temperature", 0)
        page.set("Token limit", 5)
        page.send("hello")
        page.wait("failed")
        assert page.focused() == "key"
        page.tab.fill("#key", "sesame")
        page.press("Use key")
        assert page.answered() == expected("hello", limit=5)
        page.wait_text("#running", "0")
        assert page.tab.locator("#key-form").is_hidden()
        assert page.tab.evaluate("Object.values(sessionStorage)") == ["sesame"]
        assert page.tab.evaluate("localStorage.length + document.cookie.length") == 0


# --- over a server that plays a part --------------------------------------------------


def test_markup_from_the_model_stays_text(script: Any, open_page: Any) -> None:
    said, url = script
    said.answer = (HOSTILE[:9], HOSTILE[9:40], HOSTILE[40:])
    page = open_page(url)
    assert page.ask(HOSTILE) == HOSTILE
    assert page.text(".question") == HOSTILE
    assert page.tab.locator(".answer *, .question *").count() == 0
    assert page.tab.title() == "Tutorial Server"
    said.replies = [Refusal(400, HOSTILE)]
    page.send("again")
    page.wait("failed")
    assert page.note() == HOSTILE
    assert page.tab.locator(".note *").count() == 0


def test_no_presscan_write_markup(script: Any, browser: Any) -> None:
    """Even code of ours that went wrong could not: the browser refuses."""
    tab = browser.new_page()
    tab.goto(script[1])
    write = "text => { try { document.body.innerHTML = text } catch (e) { return e.name } }"
    assert tab.evaluate(write, "<b>x</b>") == "TypeError"
    tab.close()


def test_what_is_sent(script: Any, open_page: Any) -> None:
    said, url = script
    page = open_page(url)
    page.wait_text("#status", "scripted")
    page.set("System prompt", "Be brief.")
    page.set("Temperature", 0.3)
    page.set("Top-p", 0.9)
    page.set("Top-k", 40)
    page.set("Token limit", 99_999)
    assert page.ask("Hi\nthere") == "Hello, you."
    page.set("Top-k", "")
    page.set("System prompt", "  ")
    page.ask("More")
    first, second = said.asked
    assert first == {
        "model": "scripted",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi\nthere"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 8192,
        "temperature": 0.3,
        "top_p": 0.9,
        "top_k": 40,
    }
    assert second["messages"] == [
        {"role": "user", "content": "Hi\nthere"},
        {"role": "assistant", "content": "Hello, you."},
        {"role": "user", "content": "More"},
    ]
    assert "top_k" not in second
    assert said.authorizations == [None, None]


def test_a_new_conversation_forgets(script: Any, open_page: Any) -> None:
    said, url = script
    page = open_page(url)
    page.ask("first")
    page.press("New conversation")
    assert page.tab.locator(".turn").count() == 0
    assert page.focused() == "prompt"
    page.ask("second")
    assert said.asked[1]["messages"] == [{"role": "user", "content": "second"}]


def test_beginning_anew_in_mid_stream_stops(script: Any, open_page: Any) -> None:
    said, url = script
    said.answer = ("Once ", Hold())
    page = open_page(url)
    page.send("a story")
    page.wait_text(".answer", "Once ")
    page.press("New conversation")
    wait_until(lambda: said.left == 1, "the client's leaving")
    said.answer = ("Yes.",)
    assert page.ask("still there?") == "Yes."


def test_an_answer_that_breaks_off_keeps_what_came(script: Any, open_page: Any) -> None:
    said, url = script
    said.replies = [("Half ", "of ", BREAK), ("Bad ", {"error": {"message": "It rains in."}})]
    page = open_page(url)
    page.send("one")
    page.wait("failed")
    assert page.text(f"{page.last} .answer") == "Half of "
    assert page.note() == "The connection was lost in the middle of the answer; above is what came."
    page.send("two")
    page.wait("failed")
    assert page.text(f"{page.last} .answer") == "Bad "
    assert page.note() == "It rains in."
    page.ask("three")
    assert [message["content"] for message in said.asked[2]["messages"]] == [
        *("one", "Half of ", "two", "Bad ", "three")
    ]


def test_a_refused_question_can_be_edited_and_is_no_part_of_the_talk(
    script: Any, open_page: Any
) -> None:
    said, url = script
    said.replies = [Refusal(400, "The prompt is too long.")]
    page = open_page(url)
    page.send("much too long")
    page.wait("failed")
    assert page.note() == "The prompt is too long."
    page.press("Edit")
    assert page.tab.input_value("#prompt") == "much too long"
    assert page.tab.locator(".turn").count() == 0
    page.ask("short")
    assert said.asked[1]["messages"] == [{"role": "user", "content": "short"}]


def test_a_loading_model_is_waited_for(script: Any, open_page: Any) -> None:
    said, url = script
    said.status = "loading"
    said.replies = [Refusal(503, "The model is still loading; ask again in a moment.")]
    page = open_page(url)
    page.wait_text("#status", "loading the model")
    page.send("hello")
    waits = "The model is still loading; your message goes out when it is ready."
    page.wait_text(f"{page.last} .note", waits)
    said.status = "ready"
    assert page.answered() == "Hello, you."
    assert page.note() == ""
    assert len(said.asked) == 2
    assert page.text(".meta").split(" · ")[1].endswith(" ms to the first"), "loading is not counted"


def test_a_server_that_is_stopping_is_not_waited_for(script: Any, open_page: Any) -> None:
    said, url = script
    said.status = "stopping"
    said.replies = [Refusal(503, "The server is shutting down.")]
    page = open_page(url)
    page.send("hello")
    page.wait("failed")
    assert page.note() == "The server is shutting down."


def test_a_server_that_is_gone_is_said(open_page: Any) -> None:
    with background(Script().app()) as url:
        page = open_page(url)
        page.wait_text("#status", "scripted")
    page.send("anyone?")
    page.wait("failed")
    assert page.note() == "The server cannot be reached. Is it still running?"
    page.wait_text("#status", "no connection")
    page.wait_text("#running", "–")


def test_gauges_are_read_and_missing_ones_are_not_made_up(script: Any, open_page: Any) -> None:
    said, url = script
    page = open_page(url)
    for name, value in (("running", "3"), ("waiting", "2"), ("cache", "63%")):
        page.wait_text(f"#{name}", value)
    said.gauges = None
    bare = open_page(url)
    bare.wait_text("#status", "scripted")
    assert [bare.text(f"#{name}") for name in ("running", "waiting", "cache")] == ["–"] * 3


def test_nobody_is_asked_for_gauges_that_nobody_sees(script: Any, open_page: Any) -> None:
    page = open_page(script[1])
    page.wait_text("#running", "3")
    hide = """hidden => {
        Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page.tab.evaluate(hide, True)
    before = len(page.requests)
    page.tab.wait_for_timeout(2300)
    assert len(page.requests) == before
    script[0].gauges = GAUGES.replace("3.0", "4.0")
    page.tab.evaluate(hide, False)
    page.wait_text("#running", "4")


def test_a_fast_model_does_not_hold_up_the_page(script: Any, open_page: Any) -> None:
    said, url = script
    said.answer = ("word ",) * 3000
    page = open_page(url)
    assert page.ask("much") == "word " * 3000
    assert page.text(".meta").startswith("3000 tokens · ")
    assert float(page.text("#rate")) > 500


def test_the_waterfall_is_to_scale(script: Any, open_page: Any) -> None:
    said, url = script
    said.answer = (0.4, "a", 0.1, "b", 0.3, "c")
    said.timing = {"queue_ms": 100, "ttft_ms": 300, "latency_ms": 800}
    page = open_page(url)
    page.ask("hello")
    bars = page.tab.evaluate("""() => ["rect.queued", "rect.prefill", "path.token"].map(name => {
        const {x, width} = document.querySelector(`#waterfall ${name}`).getBBox();
        return [x, width];
    })""")
    (queue_x, queue), (read_x, read), (token_x, tokens) = bars
    assert queue_x == 0
    assert read_x == pytest.approx(queue, abs=0.1)
    assert read == pytest.approx(2 * queue, rel=0.01)
    assert token_x == pytest.approx(3 * queue, rel=0.01)
    assert tokens > 4 * queue  # from 300 ms to 800 and more
    assert page.text("#summary").startswith("Queued 100 ms, prefill 200 ms, then 3 tokens in ")
    assert page.text("#legend .queued") == "queued"


def test_without_the_server_s_clock_queue_and_prefill_are_one(script: Any, open_page: Any) -> None:
    said, url = script
    said.timing = None
    page = open_page(url)
    page.ask("hello")
    assert page.text("#summary").startswith("Queued and prefill together ")
    assert page.tab.locator("#waterfall rect.queued").count() == 0
    assert page.tab.locator("#legend .queued").is_hidden()


def test_events_are_read_however_they_are_cut(script: Any, open_page: Any) -> None:
    page = open_page(script[1])
    read = """async chunks => {
        const { readEvents } = await import("/page/sse.js");
        const body = new ReadableStream({ start(to) {
            for (const chunk of chunks) to.enqueue(new Uint8Array(chunk));
            to.close();
        }});
        const found = [];
        for await (const { event, data } of readEvents(body)) found.push([event, data]);
        return found;
    }"""
    text = (
        "\ufeff: hello\r\ndata: ä\r\n\r\nevent: error\rdata:x\rdata\r\rid: 1\ndata: {}\n\ndata: cut"
    )
    events = [["message", "ä"], ["error", "x\n"], ["message", "{}"]]
    raw = list(text.encode())
    for size in (1, 2, 3, 7, len(raw)):
        chunks = [raw[at : at + size] for at in range(0, len(raw), size)]
        assert page.tab.evaluate(read, chunks) == events, size


# --- as files -------------------------------------------------------------------------


def test_files_come_with_their_types_and_a_policy(script: Any) -> None:
    _, url = script
    kinds = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg"}
    for path, name in page_routes().items():
        reply = httpx.get(url + path, timeout=10)
        assert reply.status_code == 200
        assert reply.headers["content-type"].startswith(kinds[name.rpartition(".")[2]])
        assert reply.headers["cache-control"] == "no-cache"
        policy = reply.headers["content-security-policy"].split("; ")
        assert {"default-src 'none'", "script-src 'self'", "connect-src 'self'"} <= set(policy)
        assert "unsafe" not in " ".join(policy)
    assert httpx.head(url, timeout=10).status_code == 200


@pytest.mark.parametrize("path", ["/page/../api.py", "/page/__init__.py", "/page/", "/page/x.js"])
def test_no_other_file_is_served(script: Any, path: str) -> None:
    assert httpx.get(script[1] + path, timeout=10).status_code == 404
