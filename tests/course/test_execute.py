"""Running whole notebooks: the run says where it stopped, costs nobody else anything, and gets nowhere."""

import json
import socket
from pathlib import Path

import pytest

from minivllm.course.grade.execute import RunLimits, canonical_cells, execute, in_words
from minivllm.course.grade.mark import Settings
from minivllm.course.grade.process import Limits, Nursery
from minivllm.course.grade.run import mark_all
from minivllm.course.grade.submission import Submission

from .wrong_submissions import SUBMISSIONS, cell_of

ROOT = Path(__file__).parents[2]
SOLUTION = (ROOT / "solutions" / "01_naive_kv_cache.ipynb").read_text(encoding="utf-8")
LIMITS = RunLimits(cell_cpu_s=10, cell_wall_s=60, notebook_cpu_s=30, notebook_wall_s=120)


def written(tmp_path, fault="as it is", ids=("1.1",), more=()):
    """Lab 01's solution with one of the wrong submissions' edits, cut down to its imports and the exercises
    `ids`, and with further cells at the end."""
    notebook = json.loads(SOLUTION)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    kept = code[:2] + [cell_of(notebook, id, kind) for id in ids for kind in ("solve", "check")]
    text = SUBMISSIONS[fault][0](notebook)
    notebook["cells"] = [cell for cell in notebook["cells"] if any(cell is k for k in kept)]
    notebook["cells"] += [{"cell_type": "code", "source": source, "metadata": {}} for source in more]
    path = tmp_path / "01_naive_kv_cache.ipynb"
    path.write_text(text if isinstance(text, str) else json.dumps(notebook), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def nursery():
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture(scope="module")
def missing(nursery, tmp_path_factory):
    """What this machine cannot enforce, in words."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        answer = nursery.start(tmp_path_factory.mktemp("scratch"), theirs, 5)
        nursery.end()
    return " ".join(answer["missing"])


def run(path, nursery, limits=LIMITS):
    return execute(Submission(path), 1, nursery, limits)


@pytest.mark.parametrize("fault", ["as it is", "edited checks", "unknown kernel", "cell magics"])
def test_what_the_student_did_to_checks_and_metadata_stops_nothing(fault, tmp_path, nursery):
    result = run(written(tmp_path, fault), nursery)
    assert result == {"cells_run": 4, "cells": 4, "stopped": None}
    assert in_words(result) == "4 of 4 code cells ran"


def test_a_check_in_the_run_finds_and_keeps_a_right_part(tmp_path, nursery):
    kept = "assert lab.workspace.noted('checks', '1.1')['state'] == 'passing', 'not checked'"
    assert run(written(tmp_path, more=[kept]), nursery)["stopped"] is None


@pytest.mark.parametrize(
    "fault, id, error, line",
    [
        ("raises when imported", "1.3", "ZeroDivisionError: ", "size = 1 // 0"),
        ("syntax error", "1.4", "SyntaxError: ", ""),
    ],
)
def test_the_first_cell_that_raises_is_named_with_the_students_line(
    fault, id, error, line, tmp_path, nursery
):
    result = run(written(tmp_path, fault, (id,), more=["never = 1"]), nursery)
    stopped = result["stopped"]
    assert (result["cells_run"], result["cells"], stopped["cell"]) == (2, 5, 3)
    assert stopped["error"].startswith(error) and line in stopped["line"]
    assert in_words(result).startswith("2 of 5 code cells ran; cell 3: ")


@pytest.mark.parametrize(
    "code, error",
    [
        ("while True: pass", "no end after 4 s of computing"),
        ("import time; time.sleep(100)", "no end after 8 s"),
        ("import ctypes; ctypes.string_at(0)", "its kernel ended"),
        ("import os; os._exit(0)", "its kernel ended"),
        ("import sys; sys.exit(0)", "SystemExit: 0"),
        ("print('x' * (80 << 20))", "no end after 8 s"),
        ("import torch\nhog = torch.ones(4 << 30)", "RuntimeError: "),
        ("open('{outside}', 'w')", "PermissionError: "),
        ("open('{root}/solutions/01_naive_kv_cache.ipynb').read()", "PermissionError: "),
        ("import socket\nsocket.create_connection(('127.0.0.1', {port}))", "PermissionError: "),
        (
            "import os, time\nif os.fork() == 0: time.sleep(100)\nraise ValueError('after')",
            "ValueError: after",
        ),
    ],
)
def test_a_cell_that_goes_too_far_is_stopped_and_named(code, error, tmp_path, nursery, missing):
    if error == "PermissionError: " and missing:
        pytest.skip(f"not enforced on this machine: {missing}")
    outside = tmp_path / "outside"
    outside.write_text("kept")
    with socket.create_server(("127.0.0.1", 0)) as server:
        places = {"outside": outside, "root": ROOT, "port": server.getsockname()[1]}
        for name, place in places.items():
            code = code.replace(f"{{{name}}}", str(place))
        wall = 8 if error == "no end after 8 s" else 60
        limits = RunLimits(cell_cpu_s=4, cell_wall_s=wall, notebook_cpu_s=30, notebook_wall_s=90)
        result = run(written(tmp_path, ids=(), more=[code]), nursery, limits)
    assert result["cells_run"] == 2 and result["stopped"]["error"].startswith(error), result
    assert outside.read_text() == "kept"
    assert run(written(tmp_path, ids=()), nursery)["stopped"] is None, "the next notebook runs as ever"


def test_checks_are_the_labs_own_again(tmp_path):
    def texts(fault, ids=("1.1", "1.3")):
        return canonical_cells(Submission(written(tmp_path, fault, ids)), 1)

    right = texts("as it is")
    assert right[3] == "lab.check(attention_one_step)" and right[5] == "lab.check(ContiguousKVCache)"
    assert texts("edited checks") == texts("deleted checks") == texts("lost metadata") == right
    notebook = json.loads(written(tmp_path).read_text())
    notebook["cells"].append(dict(cell_of(notebook, "1.1", "check"), source="print('copied')"))
    (tmp_path / "01_copied.ipynb").write_text(json.dumps(notebook))
    assert canonical_cells(Submission(tmp_path / "01_copied.ipynb"), 1) == right[:4]


def test_the_run_is_told_beside_the_points_and_changes_none(tmp_path):
    for name in ("right", "broken"):
        (tmp_path / name).mkdir()
    paths = [
        written(tmp_path / "right", more=["1 // 0"]),
        written(tmp_path / "broken", "invalid JSON"),
    ]
    settings = Settings(execute=True, run_limits=LIMITS, limits=Limits())
    right, broken = (paper.as_dict() for paper in mark_all(paths, 1, settings))
    assert right["points"] == 2 and right["execution"]["stopped"]["error"].startswith("ZeroDivisionError")
    assert broken["points"] == 0 and "execution" not in broken
