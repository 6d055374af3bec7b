"""A real browser: Chromium without a window, driven by Playwright. Where one of the two is missing, these
tests are skipped and say which. A page that logs an error, or asks for anything from outside this
machine, fails its test. Screenshots go to MINIVLLM_SCREENSHOTS, or to a folder that is thrown away.
One JupyterLab serves all of these tests, with the labs and two small notebooks."""

import os
import shutil
from pathlib import Path

import pytest

from tests.browser.jupyter import ROOT, jupyterlab, write_notebook
from tests.browser.small import CELLS

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@pytest.fixture(scope="session")
def browser():
    api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed (pip install playwright)"
    )
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("chromium is not installed (Debian and Ubuntu: apt-get install chromium)")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def lab_folder(browser, tmp_path_factory):
    """What JupyterLab serves is in its folder "notebooks"."""
    return tmp_path_factory.mktemp("jupyterlab")


@pytest.fixture(scope="session")
def lab(lab_folder, checkpoints):
    """From the name of a notebook to its address in JupyterLab."""
    folder = lab_folder
    shutil.copytree(
        ROOT / "labs", folder / "notebooks", ignore=shutil.ignore_patterns("src", ".*"), dirs_exist_ok=True
    )
    path = str(checkpoints["llama"])
    for name, cells in CELLS.items():
        write_notebook(folder / "notebooks" / f"{name}.ipynb", [cell.format(path=path) for cell in cells])
    with jupyterlab(folder) as address:
        yield address


@pytest.fixture
def page(browser):
    """An empty page, 1280 × 800."""
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.set_default_timeout(20_000)
    errors, outside = [], []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda r: None if r.url.startswith(LOCAL) else outside.append(r.url))
    yield page
    page.close()
    assert errors == [], "errors in the browser's console"
    assert outside == [], "the page asked the network"


LOCAL = ("file://", "http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:", "about:")


@pytest.fixture
def screenshot(page, request, tmp_path):
    """`screenshot()` keeps what the page shows, under the test's name."""
    folder = Path(os.environ.get("MINIVLLM_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)

    def take(name: str = "") -> None:
        page.screenshot(path=folder / f"{request.node.name}{name and '-' + name}.png", full_page=True)

    return take
