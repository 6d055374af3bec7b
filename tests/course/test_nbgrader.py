"""nbgrader takes our notebooks, and gives them the points that we would give."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from minivllm.course import build, instructor

pytest.importorskip("nbgrader", reason="nbgrader is not installed")
ROOT = Path(__file__).parents[2]
NAME = "01_naive_kv_cache"
HEAD = """import torch
from minivllm import course
from minivllm.attention.dense import causal_attention
lab = course.open(1)"""


def nbgrader(folder, *arguments):
    environment = {
        **os.environ,
        # nbgrader calls alembic by name, which lies beside a Python that need not be on the path.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "MINIVLLM_WORKSPACE": str(folder / "my_engine"),
        "PYTHONPATH": str(ROOT),
        "JUPYTER_PLATFORM_DIRS": "1",
    }
    command = [sys.executable, "-m", "nbgrader", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


@pytest.fixture(scope="module")
def scores(tmp_path_factory):
    """{student: points} after a round of generate_assignment, autograde and export, on two exercises of
    lab 01 without the cells between them."""
    folder = tmp_path_factory.mktemp("course")
    source = (ROOT / "labs" / "src" / f"{NAME}.py").read_text(encoding="utf-8")
    notebook = instructor.instructor_notebook(source)
    exercises = ("-1-1", "-1-3")
    marked = [cell for cell in notebook.cells if "nbgrader" in cell.metadata]
    notebook.cells = [cell for cell in marked if cell.metadata.nbgrader.grade_id.endswith(exercises)]
    notebook.cells.insert(0, nbformat.v4.new_code_cell(HEAD))
    (folder / "source" / NAME).mkdir(parents=True)
    build.write(notebook, folder / "source" / NAME / f"{NAME}.ipynb")
    (folder / "nbgrader_config.py").write_text(instructor.CONFIG)
    nbgrader(folder, "generate_assignment", NAME)
    solved = {
        cell.metadata.nbgrader.grade_id: cell.source
        for cell in build.solution_notebook(source).cells
        if "nbgrader" in cell.metadata
    }
    released = (folder / "release" / NAME / f"{NAME}.ipynb").read_text(encoding="utf-8")
    assert "HIDDEN TESTS" not in released and "lab.grade" not in released and "### BEGIN" not in released
    off_by_one = solved["solve-1-3"].replace("end > self.max_len", "end >= self.max_len")
    students = {
        "fresh": {},
        "solved": solved,
        "partly": {"solve-1-1": solved["solve-1-1"], "solve-1-3": off_by_one},
    }
    for student, answers in students.items():
        submitted = json.loads(released)
        for cell in submitted["cells"]:
            grade_id = cell["metadata"].get("nbgrader", {}).get("grade_id", "")
            if grade_id.startswith("solve-"):
                cell["source"] = answers.get(grade_id, cell["source"])
        path = folder / "submitted" / student / NAME / f"{NAME}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(submitted), encoding="utf-8")
    nbgrader(folder, "autograde", NAME)
    nbgrader(folder, "export")
    with (folder / "grades.csv").open() as file:
        return {row["student_id"]: float(row["score"]) for row in csv.DictReader(file)}


def test_a_fresh_lab_gets_nothing(scores):
    assert scores["fresh"] == 0


def test_a_solved_lab_gets_everything(scores):
    assert scores["solved"] == 6


def test_a_part_that_keeps_some_rules_gets_some_points(scores):
    assert scores["partly"] == 2 + round(4 * 7 / 11, 2)


@pytest.mark.parametrize("folder", ["labs", "solutions"])
def test_the_metadata_of_lab_01_is_what_nbgrader_reads(folder):
    from nbgrader.nbgraderformat import MetadataValidator

    MetadataValidator().validate_nb(nbformat.read(ROOT / folder / f"{NAME}.ipynb", as_version=4))
