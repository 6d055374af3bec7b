"""JupyterLab for a test: on this machine only, with a token, in a folder and a workspace of its own."""

import json
import os
import secrets
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import nbformat

ROOT = Path(__file__).parents[2]
KERNEL = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}


@contextmanager
def jupyterlab(folder: Path):
    """Serve `folder`/notebooks; yields a function from notebook name to its address."""
    home, notebooks, token = folder / "jupyter", folder / "notebooks", secrets.token_hex(16)
    notebooks.mkdir(exist_ok=True)
    (home / "config" / "labconfig").mkdir(parents=True)
    disabled = {"@jupyterlab/apputils-extension:announcements": True}  # it would ask for news, and ask us
    page_config = home / "config" / "labconfig" / "page_config.json"
    page_config.write_text(json.dumps({"disabledExtensions": disabled}))
    places = {
        "JUPYTER_CONFIG_DIR": "config", "JUPYTER_RUNTIME_DIR": "runtime", "JUPYTER_DATA_DIR": "data",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces", "JUPYTERLAB_SETTINGS_DIR": "settings",
        "IPYTHONDIR": "ipython", "MINIVLLM_WORKSPACE": "my_engine",
    }  # fmt: skip
    environment = {
        **os.environ,
        **{name: str(home / place) for name, place in places.items()},
        "JUPYTER_PLATFORM_DIRS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        "OMP_NUM_THREADS": "1",
    }
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", "--port=0", "--allow-root",
        f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={notebooks}",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]  # fmt: skip
    with open(folder / "jupyterlab.log", "w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, cwd=folder)
    try:
        port = _port(server, home / "runtime", folder / "jupyterlab.log")
        yield lambda name: f"http://127.0.0.1:{port}/lab/tree/{name}?token={token}&reset"
    finally:
        server.terminate()  # it ends its kernels, too
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _port(server: subprocess.Popen, runtime: Path, log: Path) -> int:
    """The server says in a file of its own which port it got."""
    end = time.monotonic() + 60
    while time.monotonic() < end and server.poll() is None:
        for path in runtime.glob(f"jpserver-{server.pid}.json"):
            text = path.read_text()
            if text.strip():
                return json.loads(text)["port"]
        time.sleep(0.1)
    raise AssertionError(f"JupyterLab did not start:\n{log.read_text()[-2000:]}")


def write_notebook(path: Path, cells: list[str]) -> None:
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in cells], metadata={"kernelspec": KERNEL}
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)


def until(page, condition, what: str, seconds: float = 20) -> None:
    """Wait until a condition of this process holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen"
        page.wait_for_timeout(50)


class OpenNotebook:
    """A notebook in JupyterLab, through a Playwright page."""

    def __init__(self, page, address: str) -> None:
        self.page = page
        for _ in range(2):  # on a busy machine a kernel may start too late, and JupyterLab then asks for one
            page.goto(address)
            page.locator(".jp-Notebook .jp-CodeCell").first.wait_for(timeout=60_000)
            idle = page.locator('.jp-NotebookPanel [data-status="idle"]')
            page.locator(".jp-Dialog").or_(idle).first.wait_for(timeout=60_000)
            if page.locator(".jp-Dialog").count() == 0:
                break

    def run_all(self, last: int, seconds: float) -> None:
        """Run all cells, from the menu, and wait until code cell `last` has its number."""
        self.page.get_by_role("menuitem", name="Run", exact=True).click()
        self.page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        prompt = self.cell(last).locator(".jp-InputPrompt").first
        until(self.page, lambda: prompt.inner_text().strip("[]: \n").isdigit(), f"cell {last}", seconds)

    def run(self, number: int) -> None:
        """Run the code cell and wait until it has its number. Keys pressed while the kernel is still
        connecting are lost, so they are pressed again if nothing happens."""
        prompt = self.cell(number).locator(".jp-InputPrompt").first
        end, pressed = time.monotonic() + 60, 0.0
        while not (state := prompt.inner_text().strip("[]: \n")).isdigit():
            assert time.monotonic() < end, f"cell {number} does not end; it shows [{state}]"
            dialog = self.page.locator(".jp-Dialog")
            assert dialog.count() == 0, f"JupyterLab asks or says: {dialog.first.inner_text()}"
            if state != "*" and time.monotonic() - pressed > 3:
                self.cell(number).locator(".cm-content").click(position={"x": 5, "y": 5})
                self.page.keyboard.press("Control+Enter")
                pressed = time.monotonic()
            self.page.wait_for_timeout(50)

    def cell(self, number: int):
        return self.page.locator(".jp-Notebook .jp-CodeCell").nth(number)
