"""One source a lab, two notebooks: `python -m minivllm.course.build [--check] [NUMBER …]`.

labs/src/NN_name.py is a jupytext percent script with nbgrader's region markers. From it come
labs/NN_name.ipynb (solutions cut out, no outputs) and solutions/NN_name.ipynb (whole, executed in a fresh
workspace, outputs stored). `--check` executes nothing: it fails when the cells of either are not those
that the source gives now. Cells tagged solve:ID and check:ID carry nbgrader's metadata for exercise ID.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from . import catalogue

WIDGET = "application/vnd.jupyter.widget-view+json"
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
STUB = "raise course.NotImplementedYet  # your code instead of this line"
REGION = re.compile(r"^( *)### BEGIN SOLUTION\n.*?^ *### END SOLUTION\n?", re.M | re.S)
HIDDEN = re.compile(r"^ *### BEGIN HIDDEN TESTS\n.*?^ *### END HIDDEN TESTS\n?", re.M | re.S)
MARKER = re.compile(r"^ *### (BEGIN|END) (SOLUTION|HIDDEN TESTS)\n?", re.M)
CELL_SECONDS = 300


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m minivllm.course.build", description=__doc__.split("\n")[0])
    parser.add_argument("numbers", nargs="*", type=int, metavar="NUMBER", help="labs to build (default: all)")
    parser.add_argument("--check", action="store_true", help="compare only; exit code 1 if out of step")
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the folder that holds labs/")
    options = parser.parse_args(arguments)
    unknown = set(options.numbers) - set(catalogue.LABS)
    if unknown:
        parser.error(f"there is no lab {min(unknown)}; the labs are {', '.join(map(str, catalogue.LABS))}")
    problems = []
    for number in options.numbers or catalogue.LABS:
        name = catalogue.LABS[number]
        source = (options.root / "labs" / "src" / f"{name}.py").read_text(encoding="utf-8")
        lab, solution = options.root / "labs" / f"{name}.ipynb", options.root / "solutions" / f"{name}.ipynb"
        if options.check:
            problems += out_of_step(source, lab, solution)
        else:
            write(student_notebook(source), lab)
            write(execute(solution_notebook(source), solution.parent), solution)
            print(f"built {lab} and {solution}")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def student_notebook(source: str):
    """The lab as a student opens it: a stub for each solution in a body; what is assigned in one at top
    level (a prediction) becomes None."""
    notebook = _notebook(source)
    for cell in notebook.cells:
        cell.source = HIDDEN.sub("", cell.source)
        cell.source = REGION.sub(_stub, cell.source).rstrip("\n")
    return notebook


def solution_notebook(source: str):
    """The lab solved, not yet executed."""
    notebook = _notebook(source)
    for cell in notebook.cells:
        cell.source = MARKER.sub("", cell.source).rstrip("\n")
    return notebook


def execute(notebook, folder: Path):
    """Run a notebook as if it lay in `folder`, in a workspace of its own; the outputs stay in it."""
    from nbclient import NotebookClient

    folder.mkdir(exist_ok=True)
    with TemporaryDirectory() as workspace:
        client = NotebookClient(
            notebook,
            timeout=CELL_SECONDS,
            record_timing=False,
            kernel_name="python3",
            resources={"metadata": {"path": str(folder)}},
        )
        package = str(Path(__file__).parents[2])
        paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
        client.execute(
            env={**os.environ, "MINIVLLM_WORKSPACE": workspace, "PYTHONPATH": os.pathsep.join(paths)}
        )
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = _tidy(cell.outputs)
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    return notebook


def _tidy(outputs: list) -> list:
    """Without stderr (progress bars, warnings) and without widgets, whose state lives in a kernel; with
    what was printed in one piece, however the kernel happened to cut it."""
    kept: list = []
    for output in outputs:
        if output.get("name") == "stderr":
            continue
        if WIDGET in output.get("data", {}):
            del output["data"][WIDGET]
            if set(output["data"]) <= {"text/plain"}:  # nothing is left but the widget's name
                continue
        if kept and output.output_type == kept[-1].output_type == "stream":
            kept[-1].text += output.text
        else:
            kept.append(output)
    return kept


def out_of_step(source: str, lab: Path, solution: Path) -> list[str]:
    """What is wrong with the two notebooks, in words; nothing if they are what the source gives."""
    import nbformat

    problems = []
    for path, wanted in ((lab, student_notebook(source)), (solution, solution_notebook(source))):
        if not path.exists():
            problems.append(f"{path} is missing; run make notebooks")
            continue
        found = nbformat.read(path, as_version=4)
        if [_essence(cell) for cell in found.cells] != [_essence(cell) for cell in wanted.cells]:
            problems.append(f"{path} is not what its source in labs/src gives; run make notebooks")
        code = [cell for cell in found.cells if cell.cell_type == "code"]
        if path is lab and any(cell.outputs or cell.execution_count for cell in code):
            problems.append(f"{path} has outputs; run make notebooks")
        if path is solution and not all(cell.execution_count for cell in code):
            problems.append(f"{path} has not been executed; run make notebooks")
        if any(output.output_type == "error" for cell in code for output in cell.outputs):
            problems.append(f"{path} holds an error; run make notebooks")
    return problems


def write(notebook, path: Path) -> None:
    import nbformat

    nbformat.validate(notebook)
    path.parent.mkdir(exist_ok=True)
    path.write_text(nbformat.writes(notebook, version=4) + "\n", encoding="utf-8")


def _notebook(source: str):
    import jupytext
    from nbformat.v4 import new_notebook

    cells = jupytext.reads(source, fmt="py:percent").cells
    used: dict[str, int] = {}
    for cell in cells:
        tags = cell.metadata.get("tags", [])
        cell.metadata = {"tags": tags} if tags else {}
        for tag in tags:
            kind, _, exercise_id = tag.partition(":")
            if kind in ("solve", "check"):
                cell.metadata["nbgrader"] = _nbgrader(kind, catalogue.find(exercise_id))
        digest = hashlib.sha256(cell.source.encode()).hexdigest()[:8]
        used[digest] = used.get(digest, 0) + 1
        cell.id = digest if used[digest] == 1 else f"{digest}-{used[digest]}"
    metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    return new_notebook(cells=cells, metadata=metadata)


def _stub(region: re.Match) -> str:
    if region[1]:
        return f"{region[1]}{STUB}\n"
    return "".join(f"{name} = None  # your prediction\n" for name in re.findall(r"^(\w+) =", region[0], re.M))


def _nbgrader(kind: str, exercise: catalogue.Exercise) -> dict:
    """Format 3 of nbgrader's cell metadata: what a student writes, and what gives points for it."""
    graded = {"points": exercise.points} if kind == "check" else {}
    return {
        "grade": kind == "check",
        "grade_id": f"{kind}-{exercise.id.replace('.', '-')}",  # nbgrader allows no dot
        "locked": kind == "check",
        "schema_version": 3,
        "solution": kind == "solve",
        "task": False,
        **graded,
    }


def _essence(cell) -> tuple:
    return cell.cell_type, cell.id, cell.source, dict(cell.metadata)


if __name__ == "__main__":
    sys.exit(main())
