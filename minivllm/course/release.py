"""`python -m minivllm.course.release`: what students get, in dist/.

A folder minivllm-labs with the labs (stubs, no outputs), a wheel of the package, requirements and a README
of a few lines. No solution is in it: solutions/ and labs/src stay behind. The package itself is the engine
that the labs rebuild, and holds a reference for each exercise, which the labs run on until the student's own
part passes; so a release keeps solutions out of sight, not out of reach.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from . import catalogue

README = """# minivllm: the labs

You need Python 3.10 or newer, about 3 GB of disk and 4 GB of memory; no GPU.

    python3 -m venv .venv
    .venv/bin/pip install -r requirements.txt {wheel}
    .venv/bin/python -m minivllm fetch
    .venv/bin/jupyter lab --notebook-dir=labs

Begin with labs/{first}.ipynb. What you build is kept in my_engine/. Hand in the notebook that you solved.
"""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m minivllm.course.release", description=__doc__.split("\n")[0])
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the folder that holds labs/")
    parser.add_argument("--to", type=Path, default=Path("dist"), help="where to put it (default: dist)")
    options = parser.parse_args(arguments)
    folder = options.to / "minivllm-labs"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "labs").mkdir(parents=True)
    names = [catalogue.LABS[number] for number in sorted(catalogue.LABS)]
    for name in names:
        shutil.copy(options.root / "labs" / f"{name}.ipynb", folder / "labs")
    shutil.copy(options.root / "requirements.txt", folder)
    shutil.copy(options.root / "LICENSE", folder)
    wheel = build_wheel(options.root, folder)
    (folder / "README.md").write_text(README.format(wheel=wheel.name, first=names[0]), encoding="utf-8")
    print(f"wrote {folder}: {len(names)} labs and {wheel.name}")
    return 0


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
