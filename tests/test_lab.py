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

# Runs in the page: wait for the kernel, run all cells, wait until the kernel is idle.
RUN_ALL = """async () => {
    const app = window.jupyterapp;
    const context = app.shell.currentWidget.context;
    await context.sessionContext.ready;
    await context.sessionContext.session.kernel.info;
    await app.commands.execute('notebook:run-all-cells');
}"""
OUTPUT_KINDS = """() => {
    const cells = [...window.jupyterapp.shell.currentWidget.content.model.cells];
    return cells.filter(cell => cell.type === 'code')
        .map(cell => cell.toJSON())
        .map(cell => [cell.execution_count, cell.outputs.map(output => output.output_type)]);
}"""


@pytest.fixture(scope="module")
def chromium() -> str:
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        skip_or_fail("needs a chromium on the PATH (Debian's package chromium)")
    return path


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a JupyterLab that `tutorial-server lab` started in a copy of the course."""
    home = tmp_path_factory.mktemp("jupyter")
    course = home / "course"
    for folder in ("notebooks", "exercises"):
        shutil.copytree(ROOT / folder, course / folder, ignore=shutil.ignore_patterns("mine"))
    shutil.copy(ROOT / "pyproject.toml", course)
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


def run_all(chromium: str, url: str, pictures: Path) -> list[tuple[int | None, list[str]]]:
    """Open a notebook, run it whole; give each code cell's count and kinds of output."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=BROWSER_FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 2000})
        page.goto(url)
        page.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=90_000)
        page.wait_for_function("() => window.jupyterapp?.shell.currentWidget?.context?.isReady")
        page.evaluate(RUN_ALL)
        page.wait_for_function(
            "() => window.jupyterapp.shell.currentWidget.context"
            ".sessionContext.session.kernel.status === 'idle'",
            timeout=120_000,
        )
        page.screenshot(path=pictures / "page.png")
        found = page.evaluate(OUTPUT_KINDS)
        browser.close()
    return found


@pytest.mark.parametrize(
    "notebook",
    ["notebooks/00_first_answer.ipynb", "exercises/mine/02_attention_masks_and_padding.ipynb"],
)
def test_all_cells_run_without_error(chromium, lab, tmp_path, notebook):
    cells = run_all(chromium, f"{lab}/lab/tree/{notebook}", tmp_path)
    assert [count for count, _ in cells] == list(range(1, len(cells) + 1))
    assert len(cells) >= 5
    assert "error" not in [kind for _, kinds in cells for kind in kinds]
