"""JupyterLab as a learner sees it: opened through `tutorial-server lab`, in a real browser."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from skips import skip_or_fail

ROOT = Path(__file__).resolve().parents[1]
BROWSER_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
LAB_FLAGS = [
    "--no-browser",
    "--allow-root",
    "--ServerApp.port=0",
    "--IdentityProvider.token=",
    "--LabApp.expose_app_in_browser=True",
    "--LabApp.news_url=None",
]

LESSON = "notebooks/06_streaming.ipynb"
LONG, SHORT = "max_new_tokens=40", "max_new_tokens=4"  # nbval runs it with long answers

# These run in the page. A notebook that is open and connected; then all cells, run anew.
IS_OPEN = """path => {
    const context = window.jupyterapp?.shell.currentWidget?.context;
    return context?.path === path && context.isReady && context.sessionContext.isReady;
}"""
RUN_ALL = """async () => {
    const app = window.jupyterapp;
    await app.shell.currentWidget.context.sessionContext.session.kernel.info;
    await app.commands.execute('notebook:clear-all-cell-outputs');
    await app.commands.execute('notebook:run-all-cells');
}"""
HAS_RUN = """() => [...window.jupyterapp.shell.currentWidget.content.model.cells]
    .filter(cell => cell.type === 'code')
    .every(cell => cell.executionCount !== null && cell.executionState !== 'running')"""
CELLS = """() => [...window.jupyterapp.shell.currentWidget.content.model.cells]
    .filter(cell => cell.type === 'code')
    .map(cell => cell.toJSON())
    .map(cell => [cell.execution_count, cell.outputs.map(output => output.output_type)])"""


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
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a JupyterLab that `tutorial-server lab` started in a copy of the course."""
    home = tmp_path_factory.mktemp("jupyter")
    course = home / "course"
    for folder in ("notebooks", "exercises"):
        shutil.copytree(ROOT / folder, course / folder, ignore=shutil.ignore_patterns("mine"))
    shutil.copy(ROOT / "pyproject.toml", course)
    lesson = (course / LESSON).read_text()
    assert lesson.count(LONG) == 2
    (course / LESSON).write_text(lesson.replace(LONG, SHORT))
    env = {name: value for name, value in os.environ.items() if name != "TUTORIAL_SERVER_EXERCISES"}
    env |= {f"JUPYTER{kind}_DIR": str(home / kind) for kind in ("_CONFIG", "_DATA")}
    env |= {f"JUPYTERLAB_{kind}_DIR": str(home / kind) for kind in ("SETTINGS", "WORKSPACES")}
    command = [sys.executable, "-m", "tutorial_server", "lab", "--", *LAB_FLAGS]
    log = home / "log"
    with log.open("w") as out:
        process = subprocess.Popen(command, cwd=course, env=env, stdout=out, stderr=out)
    try:
        yield _address(log, process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def _address(log: Path, process: subprocess.Popen) -> str:
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        if found := re.search(r"http://(?:localhost|127\.0\.0\.1):(\d+)/lab", log.read_text()):
            return f"http://127.0.0.1:{found[1]}"
        time.sleep(0.2)
    raise AssertionError(f"JupyterLab did not start: {log.read_text()[-2000:]}")


def run_all(browser: Any, lab: str, path: str, picture: Path) -> list[tuple[int, list[str]]]:
    """Open a notebook, run it whole; give each code cell's count and kinds of output."""
    page = browser.new_page(viewport={"width": 1280, "height": 2000})
    page.set_default_timeout(120_000)
    page.goto(f"{lab}/lab/tree/{path}?reset")
    page.wait_for_function(IS_OPEN, arg=path)
    page.evaluate(RUN_ALL)
    page.wait_for_function(HAS_RUN)
    page.screenshot(path=picture)
    found = page.evaluate(CELLS)
    page.close()
    return found


@pytest.mark.parametrize(
    "notebook",
    [LESSON, "exercises/mine/02_attention_masks_and_padding.ipynb"],
)
def test_all_cells_run_without_error(browser, lab, tmp_path, notebook):
    cells = run_all(browser, lab, notebook, tmp_path / "page.png")
    assert [count for count, _ in cells] == list(range(1, len(cells) + 1))
    assert len(cells) >= 5
    assert "error" not in [kind for _, kinds in cells for kind in kinds]
