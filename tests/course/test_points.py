"""Every lab as it is given out is worth nothing, and every solution all its points."""

import pytest

from minivllm.course.catalogue import LABS, of_lab
from minivllm.course.grade.mark import Settings
from minivllm.course.grade.run import mark_all

from .test_grade import ROOT


@pytest.fixture(scope="module")
def papers():
    """{(folder, lab): marked paper}"""
    paths = {
        (folder, lab): ROOT / folder / f"{name}.ipynb"
        for folder in ("labs", "solutions")
        for lab, name in LABS.items()
    }
    return dict(zip(paths, mark_all(list(paths.values()), jobs=2, settings=Settings()), strict=True))


@pytest.mark.parametrize("lab", LABS)
def test_a_fresh_lab_is_worth_nothing(lab, papers):
    assert {mark.id: mark.points for mark in papers["labs", lab].marks.values()} == dict.fromkeys(
        [exercise.id for exercise in of_lab(lab)], 0
    )


@pytest.mark.parametrize("lab", LABS)
def test_a_solution_is_worth_all_points(lab, papers):
    for mark in papers["solutions", lab].marks.values():
        assert mark.points == mark.max_points > 0, mark
