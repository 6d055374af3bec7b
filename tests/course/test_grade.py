"""Grading: every submission gets the points it must, none disturbs another, and none gets out."""

import json
import os
from importlib import import_module
from pathlib import Path

import pytest

from minivllm.course.catalogue import find, of_lab
from minivllm.course.grade.mark import Settings
from minivllm.course.grade.process import Limits
from minivllm.course.grade.run import mark_all

from .wrong_submissions import SUBMISSIONS

ROOT = Path(__file__).parents[2]
LIMITS = Limits(call_cpu_s=1.0, part_cpu_s=2.5, call_wall_s=4.0, part_wall_s=9.0)


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """{name: marked paper} of all wrong submissions, graded in one run."""
    folder = tmp_path_factory.mktemp("submitted")
    (folder / "outside").mkdir()
    (folder / "outside" / "kept").write_text("kept")
    solution = (ROOT / "solutions" / "01_naive_kv_cache.ipynb").read_text(encoding="utf-8")
    paths = {}
    for name, (edit, _) in SUBMISSIONS.items():
        notebook = json.loads(solution)
        path = paths[name] = folder / name / "01_naive_kv_cache.ipynb"
        path.parent.mkdir()
        written = edit(notebook)
        if isinstance(written, bytes):
            path.write_bytes(written)
            continue
        text = json.dumps(notebook) if written is None else written
        for place, real in {"outside": folder / "outside", "notebook": path, "root": ROOT}.items():
            text = text.replace(f"{{{place}}}", str(real))
        path.write_text(text, encoding="utf-8")
    before = {path: path.read_bytes() for path in paths.values()}
    papers = mark_all(list(paths.values()), jobs=2, settings=Settings(limits=LIMITS))
    graded = dict(zip(paths, papers, strict=True))
    graded["folder"], graded["before"] = folder, before
    return graded


@pytest.mark.parametrize("name", SUBMISSIONS)
def test_a_submission_gets_the_points_that_it_must(name, graded):
    for exercise in of_lab(1):
        mark, broken = graded[name].marks[exercise.id], SUBMISSIONS[name][1].get(exercise.id, 0)
        num_rules = len(import_module(f"minivllm.course.contracts.{exercise.contract}").rules)
        if broken == "some":
            assert 0 <= mark.points <= mark.max_points
            continue
        passed = 0 if broken == "all" else num_rules - broken
        assert mark.points == round(exercise.points * passed / num_rules, 2), mark
        assert mark.message
