"""`python -m minivllm.course.release`: what students get, in dist/.

A folder minivllm-labs with the labs (stubs, no outputs), a wheel of the package, requirements and a README
of a few lines. No solution is in it: solutions/ and labs/src stay behind. The package itself is the engine
that the labs rebuild, and holds a reference for each exercise, which the labs run on until the student's own
part passes; so a release keeps solutions out of sight, not out of reach. A link to a file that is not in the
folder becomes the file's name, since there it leads nowhere.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from . import catalogue

README = """# minivllm: the labs

You need Python 3.10 or newer, about 3 GB of disk and 4 GB of memory; no GPU.

    python3 -m venv .venv
    .venv/bin/pip install -r requirements.txt {wheel}
    .venv/bin/python -m minivllm fetch
    .venv/bin/jupyter lab --notebook-dir=labs

Begin with labs/{first}.ipynb. What you build is kept in my_engine/. Hand in the notebook that you solved.
"""


LINK = re.compile(r"\[([^\]\n]*)\]\(\.\./([^)\s]+)\)")  # to a file beside labs/
INSTALL = '"--editable", ".."'  # what the labs' first cell says in the repository


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m minivllm.course.release", description=__doc__.split("\n")[0])
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the folder that holds labs/")
    parser.add_argument("--to", type=Path, default=Path("dist"), help="where to put it (default: dist)")
    options = parser.parse_args(arguments)
    folder = options.to / "minivllm-labs"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "labs").mkdir(parents=True)
    names = [catalogue.LABS[number] for number in sorted(catalogue.LABS)]
    shutil.copy(options.root / "requirements.txt", folder)
    shutil.copy(options.root / "LICENSE", folder)
    wheel = build_wheel(options.root, folder)
    for name in names:
        text = (options.root / "labs" / f"{name}.ipynb").read_text(encoding="utf-8")
        released = json.dumps(for_students(json.loads(text), wheel.name), indent=1, ensure_ascii=False)
        (folder / "labs" / f"{name}.ipynb").write_text(released + "\n", encoding="utf-8")
    (folder / "README.md").write_text(README.format(wheel=wheel.name, first=names[0]), encoding="utf-8")
    print(f"wrote {folder}: {len(names)} labs and {wheel.name}")
    return 0


def for_students(notebook: dict[str, Any], wheel: str) -> dict[str, Any]:
    """The notebook without links that lead out of the release, and with the wheel as what its first cell
    installs where the package is missing."""

    def plain(link: re.Match) -> str:
        words, path = link[1], link[2]
        return f"`{path}`" if words.strip("`") in (path, Path(path).name) else f"{words} (`{path}`)"

    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            text = LINK.sub(plain, text)
        cell["source"] = text.replace(INSTALL, f'"../{wheel}"').splitlines(keepends=True)
    return notebook


def build_wheel(root: Path, to: Path) -> Path:
    """A wheel of the package, built from a copy that has nothing else in it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "package")
        shutil.copytree(root / "minivllm", copy / "minivllm", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(root / name, copy)
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(to)]
        subprocess.run([*command, str(copy)], check=True)
    return next(to.glob("*.whl"))


if __name__ == "__main__":
    sys.exit(main())
