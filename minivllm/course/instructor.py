"""`python -m minivllm.course.instructor COURSE [NUMBER …]`: the labs as a course of nbgrader's.

It writes COURSE/source/NAME/NAME.ipynb for each lab, with the regions that `nbgrader generate_assignment`
cuts out, and COURSE/nbgrader_config.py, which names our stub. A check cell ends in a hidden test,
`lab.grade("1.3")`: nbgrader takes the number that it returns for points, and an exception for none.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import catalogue
from .build import REGION, STUB, _notebook, _stub, write

CONFIG = f"""c = get_config()  # noqa: F821
c.ClearSolutions.code_stub = {{"python": {STUB!r}}}
c.ExecutePreprocessor.timeout = 300
"""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m minivllm.course.instructor", description=__doc__.split("\n")[0]
    )
    parser.add_argument("course", type=Path, metavar="COURSE", help="the folder of the nbgrader course")
    parser.add_argument("numbers", nargs="*", type=int, metavar="NUMBER", help="labs (default: all)")
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the folder that holds labs/src")
    options = parser.parse_args(arguments)
    for number in options.numbers or catalogue.LABS:
        if number not in catalogue.LABS:
            parser.error(f"there is no lab {number}; the labs are {', '.join(map(str, catalogue.LABS))}")
        name = catalogue.LABS[number]
        source = (options.root / "labs" / "src" / f"{name}.py").read_text(encoding="utf-8")
        path = options.course / "source" / name / f"{name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        write(instructor_notebook(source), path)
        print(f"wrote {path}")
    config = options.course / "nbgrader_config.py"
    if not config.exists():
        config.write_text(CONFIG, encoding="utf-8")
    return 0


def instructor_notebook(source: str):
    """The lab with solution regions in exercise cells (nbgrader refuses them elsewhere, so a prediction is
    empty already) and a hidden test in each check cell."""
    notebook = _notebook(source)
    for cell in notebook.cells:
        grade_id = cell.metadata.get("nbgrader", {}).get("grade_id", "")
        if not grade_id:
            cell.source = REGION.sub(_stub, cell.source).rstrip("\n")
        elif grade_id.startswith("check-") and "### BEGIN HIDDEN TESTS" not in cell.source:
            exercise_id = grade_id.removeprefix("check-").replace("-", ".")
            hidden = f'### BEGIN HIDDEN TESTS\nlab.grade("{exercise_id}")\n### END HIDDEN TESTS'
            cell.source = f"{cell.source}\n{hidden}"
    return notebook


if __name__ == "__main__":
    sys.exit(main())
