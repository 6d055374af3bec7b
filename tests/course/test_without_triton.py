"""Where triton has no wheel: lab 03 says so, runs through, and is not graded as 0."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from minivllm.course.catalogue import LABS, of_lab

ROOT = Path(__file__).parents[2]
HERE = """
from minivllm import course
from minivllm.course.triton_here import HERE, tl, triton
assert not HERE
lab = course.open(3)
@triton.jit
def kernel(x, SIZE: tl.constexpr): ...
def store_kv(k, v, k_cache, v_cache, slot_mapping): ...
lab.check(store_kv)
lab.part("3.4")
lab.progress()
try:
    kernel[(1,)](0)
except RuntimeError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Of a Python to which triton is not installed: importing it fails, and nothing finds it."""
    folder = tmp_path_factory.mktemp("no_triton")
    (folder / "sitecustomize.py").write_text("import sys\nsys.modules['triton'] = None\n")
    paths = os.pathsep.join([str(folder), str(ROOT)])
    workspace = str(folder / "my_engine")
    return {**os.environ, "PYTHONPATH": paths, "MINIVLLM_WORKSPACE": workspace, "OMP_NUM_THREADS": "1"}


def run(environment, *command):
    done = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_a_check_says_so_and_parts_are_torch(environment):
    lines = run(environment, "-c", HERE).splitlines()
    missing = "triton is not installed (it has no wheel for every system)"
    assert lines[0] == f"- 3.1 not checked here: {missing}; it costs no points"
    assert lines[1] == f"3.4 paged_decode: a stand-in in torch ({missing})"
    assert lines[2].startswith("- 3.1 store_kv") and lines[2].endswith("not here")
    assert lines[-2] == "0 of 1 parts are yours, 0 of 2 points"
    assert lines[-1] == "triton is not installed on this system, so no kernel can be launched"


def test_a_solution_is_graded_on_what_can_be_checked(environment):
    path = f"solutions/{LABS[3]}.ipynb"
    said = json.loads(run(environment, "-m", "minivllm", "grade", path, "--json", "--jobs", "1"))
    (notebook,) = said["notebooks"]
    assert (notebook["points"], notebook["max_points"]) == (2, 2)
    for exercise, mark in zip(of_lab(3), notebook["exercises"], strict=True):
        if exercise.needs:
            assert mark["max_points"] == 0 and mark["message"].startswith("not graded here: triton")


def test_the_fresh_lab_runs_top_to_bottom(environment, tmp_path):
    script = (
        "import nbformat; from nbclient import NotebookClient\n"
        f"notebook = nbformat.read('labs/{LABS[3]}.ipynb', as_version=4)\n"
        "NotebookClient(notebook, timeout=200, resources={'metadata': {'path': 'labs'}}).execute()\n"
        "for cell in notebook.cells:\n"
        "    print(*[output.get('text', '') for output in cell.get('outputs', [])], sep='')\n"
    )
    said = run(environment, "-c", script)
    assert "- 3.1 not checked here" in said and "✗ 3.3 not implemented yet" in said
    assert "same tokens as paged attention in torch: True" in said and "False" not in said
