"""Each wrong submission of labs 02 and later loses points where it must, with words that name the mistake."""

import json

import pytest

from minivllm.course.catalogue import LABS, of_lab
from minivllm.course.grade.mark import Settings
from minivllm.course.grade.run import mark_all

from .faults import BY_LAB
from .test_grade import LIMITS, ROOT
from .wrong_submissions import cell_of, text_of

LEAST = 5


@pytest.fixture(scope="module")
def papers(tmp_path_factory):
    """{(lab, fault): marked paper}, all graded in one run."""
    folder, paths = tmp_path_factory.mktemp("faults"), {}
    for lab, faults in BY_LAB.items():
        solution = (ROOT / "solutions" / f"{LABS[lab]}.ipynb").read_text(encoding="utf-8")
        for name, (exercise_id, old, new, _) in faults.items():
            notebook = json.loads(solution)
            cell = cell_of(notebook, exercise_id)
            assert text_of(cell).count(old) == 1, (lab, name, old)
            cell["source"] = text_of(cell).replace(old, new)
            path = paths[lab, name] = folder / f"{lab}" / name.replace(" ", "_") / f"{LABS[lab]}.ipynb"
            path.parent.mkdir(parents=True)
            path.write_text(json.dumps(notebook), encoding="utf-8")
    papers = mark_all(list(paths.values()), jobs=2, settings=Settings(limits=LIMITS))
    return dict(zip(paths, papers, strict=True))


@pytest.mark.parametrize("lab, name", [(lab, name) for lab, faults in BY_LAB.items() for name in faults])
def test_a_fault_costs_its_exercise_and_is_named(lab, name, papers):
    exercise_id, _, _, words = BY_LAB[lab][name]
    for exercise in of_lab(lab):
        mark = papers[lab, name].marks[exercise.id]
        if exercise.id != exercise_id:
            assert mark.points == mark.max_points, mark
        else:
            assert mark.points < mark.max_points and words in mark.message, mark


@pytest.mark.parametrize("lab", [number for number in LABS if number >= 2])
def test_every_lab_has_its_wrong_submissions(lab):
    assert len(BY_LAB.get(lab, {})) >= LEAST
