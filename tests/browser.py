"""A browser that the tests drive, and the chat page as they see it in there."""

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from scripted import Script
from skips import skip_or_fail

from tutorial_server.background import background

BROWSER_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


class Page:
    """A tab with the page open, and everything that it complained about or asked for."""

    last = ".turn:last-of-type"

    def __init__(self, tab: Any, url: str):
        self.tab = tab
        self.url = url
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._heard = {
            "console": self._hear,
            "pageerror": lambda error: self.complaints.append(str(error)),
            "request": lambda request: self.requests.append(request.url),
        }
        for event, hear in self._heard.items():
            tab.on(event, hear)
        tab.goto(url)

    def leave(self) -> None:
        """Leave the tab as a new one is: nothing kept, nobody listening."""
        self.tab.evaluate("() => { sessionStorage.clear(); localStorage.clear() }")
        self.tab.context.clear_cookies()
        for event, hear in self._heard.items():
            self.tab.remove_listener(event, hear)
        self.tab.goto("about:blank")

    def _hear(self, message: Any) -> None:
        # Chromium itself writes a line for each status of 400 and more.
        if message.type in ("error", "warning") and "Failed to load" not in message.text:
            self.complaints.append(message.text)

    def send(self, text: str) -> None:
        self.tab.fill("#prompt", text)
        self.tab.press("#prompt", "Enter")

    def ask(self, text: str) -> str:
        """Send, wait for the end, and give the answer that is shown."""
        self.send(text)
        return self.answered()

    def answered(self) -> str:
        self.wait("done")
        return self.text(f"{self.last} .answer")

    def wait(self, state: str) -> None:
        self.tab.wait_for_selector(f'{self.last}[data-state="{state}"]')

    def text(self, selector: str) -> str:
        return self.tab.locator(selector).text_content()

    def wait_text(self, selector: str, text: str) -> None:
        arguments = [selector, text]
        self.tab.wait_for_function(
            "([where, text]) => document.querySelector(where)?.textContent === text", arg=arguments
        )

    def note(self) -> str:
        return self.text(f"{self.last} .note")

    def press(self, name: str) -> None:
        self.tab.get_by_role("button", name=name, exact=True).click()

    def set(self, label: str, value: Any) -> None:
        self.tab.get_by_label(label, exact=True).fill(str(value))

    def focused(self) -> str:
        return self.tab.evaluate("document.activeElement.id")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        skip_or_fail("needs a chromium on the PATH (Debian's package chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=BROWSER_FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def spare_tabs(browser: Any) -> list[Any]:
    """Tabs that a test has left, clean: to open a new one takes as long as most tests do."""
    return []


@pytest.fixture
def open_page(browser: Any, spare_tabs: list[Any]) -> Iterator[Callable[..., Page]]:
    """Open the page at an address, in a context of its own; in the end nothing was amiss."""
    pages: list[Page] = []
    plain: list[Any] = []

    def open_(url: str, width: int = 1280, height: int = 800, **options: Any) -> Page:
        viewport = {"width": width, "height": height}
        if spare_tabs and not options:
            tab = spare_tabs.pop()
            tab.set_viewport_size(viewport)
        else:
            tab = browser.new_context(viewport=viewport, **options).new_page()
            tab.set_default_timeout(20_000)
        if not options:
            plain.append(tab)
        pages.append(Page(tab, url))
        return pages[-1]

    yield open_
    for page in pages:
        assert page.complaints == []
        assert [url for url in page.requests if not url.startswith(page.url)] == []
        if page.tab in plain:
            page.leave()
            spare_tabs.append(page.tab)
        else:
            page.tab.context.close()


@pytest.fixture(scope="module")
def played() -> Iterator[tuple[Script, str]]:
    script = Script()
    with background(script.app()) as url:
        yield script, url


@pytest.fixture
def script(played: tuple[Script, str]) -> tuple[Script, str]:
    """A server that has the test's own part to play, and its address."""
    played[0].begin()
    return played
