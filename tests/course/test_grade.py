"""Grading: every submission gets the points it must, none disturbs another, and none gets out."""

import csv
import json
from importlib import import_module
from pathlib import Path

import pytest

from minivllm.__main__ import main as minivllm
from minivllm.course.catalogue import of_lab
from minivllm.course.grade.mark import Settings
from minivllm.course.grade.process import Limits
from minivllm.course.grade.run import mark_all

from .wrong_submissions import SUBMISSIONS

ROOT = Path(__file__).parents[2]
LIMITS = Limits(call_cpu_s=1.0, part_cpu_s=2.0, call_wall_s=5.0, part_wall_s=6.0)
# What must be enforced for an attack to fail; elsewhere the grader says that it is not.
NEEDS = {
    "kills its parent": "signals",
    "writes outside": "writes",
    "reads the parent's memory": "reading",
    "reads the solutions": "reading",
}


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


def need_enforcement(graded, name):
    missing = " ".join(what for mark in graded["as it is"].marks.values() for what in mark.missing)
    if name in NEEDS and NEEDS[name] in missing:
        pytest.skip(f"not enforced on this machine: {missing}")


@pytest.mark.parametrize("name", SUBMISSIONS)
def test_a_submission_gets_the_points_that_it_must(name, graded):
    need_enforcement(graded, name)
    for exercise in of_lab(1):
        mark, broken = graded[name].marks[exercise.id], SUBMISSIONS[name][1].get(exercise.id, 0)
        num_rules = len(import_module(f"minivllm.course.contracts.{exercise.contract}").rules)
        if broken == "some":
            assert 0 <= mark.points <= mark.max_points
            continue
        passed = 0 if broken == "all" else num_rules - broken
        assert mark.points == round(exercise.points * passed / num_rules, 2), mark
        assert mark.message


def test_nothing_was_written_or_deleted_outside_a_scratch_folder(graded):
    need_enforcement(graded, "writes outside")
    outside = graded["folder"] / "outside"
    assert [path.name for path in outside.iterdir()] == ["kept"]
    assert not Path("/tmp/minivllm-stolen").exists()
    assert all(path.read_bytes() == before for path, before in graded["before"].items())


def test_no_process_is_left_behind(graded):
    for path in Path("/proc").glob("[0-9]*/comm") if Path("/proc/self/comm").exists() else ():
        try:
            assert path.read_text().strip() != "vllmleftover"
        except (FileNotFoundError, ProcessLookupError):
            continue


def test_what_the_clock_stopped_is_said_to_be_late_and_the_rest_is_not(graded):
    late = {name for name in SUBMISSIONS if any(mark.late for mark in graded[name].marks.values())}
    assert "sleeps" in late and "infinite loop" not in late


def test_feedback_names_the_rule_and_the_students_line_but_no_input_or_expected_value(graded):
    message = graded["off by one"].marks["1.3"].message
    assert "first broken: it can be filled to the last slot. it raised ValueError at the line" in message
    assert graded["leak"].marks["1.3"].message == (
        "9 of 11 rules; first broken: clear makes room for the next request. "
        "clear sets all lengths to 0; the next request starts in slot 0."
    )


@pytest.mark.parametrize(
    "name, words",
    [
        ("infinite loop", "no answer after 1 s of computing"),
        ("sleeps", "no answer after 5 s"),
        ("sys.exit", "its process ended instead of answering"),
        ("deleted cells", "no cell defines ContiguousKVCache"),
        ("syntax error", "the cell that defines generate_cached is no Python: line "),
        ("edited outputs", "not implemented yet"),
        ("invalid JSON", "not a notebook: "),
        ("empty file", "not a notebook: the file is empty"),
        ("forwards to minivllm", "not your own: it forwards to minivllm.attention.contiguous"),
        ("calls the spec", "not your own: it calls spec_generate_cached"),
    ],
)
def test_a_message_says_what_was_wrong(name, words, graded):
    assert any(words in mark.message for mark in graded[name].marks.values())


@pytest.fixture(scope="module")
def by_command(tmp_path_factory):
    """(what `grade --json` printed, rows of its CSV) for the fresh and the solved lab 01."""
    folder = tmp_path_factory.mktemp("by_command")
    for kind in ("labs", "solutions"):
        (folder / kind).mkdir()
        text = (ROOT / kind / "01_naive_kv_cache.ipynb").read_text(encoding="utf-8")
        (folder / kind / "01_naive_kv_cache.ipynb").write_text(text, encoding="utf-8")
    return folder


def test_json_and_csv_say_the_same(by_command, capsys):
    table = by_command / "points.csv"
    assert minivllm(["grade", str(by_command), "--json", "--jobs", "1", "--csv", str(table)]) == 0
    fresh, solved = json.loads(capsys.readouterr().out)["notebooks"]
    assert set(fresh) == {"notebook", "points", "max_points", "exercises"}
    assert set(fresh["exercises"][0]) == {"id", "points", "max_points", "message"}
    assert (fresh["points"], solved["points"], solved["max_points"]) == (0, 12, 12)
    assert [exercise["id"] for exercise in solved["exercises"]] == [e.id for e in of_lab(1)]
    with table.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["points"]) for row in rows] == [0] * 6 + [2, 2, 4, 3, 1, 12]


def test_another_seed_and_the_chain_of_own_parts_change_nothing_for_a_right_solution(by_command, capsys):
    path = by_command / "solutions"
    assert minivllm(["grade", str(path), "--json", "--seed", "77", "--together", "--jobs", "1"]) == 0
    (solved,) = json.loads(capsys.readouterr().out)["notebooks"]
    assert [exercise["points_together"] for exercise in solved["exercises"]] == [2, 2, 4, 3, 1]


@pytest.mark.parametrize(
    "argv, words",
    [(["nothing.ipynb"], "there is no file nothing.ipynb"), ([".", "--jobs", "0"], "jobs is 0")],
)
def test_bad_input_is_one_line(argv, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert minivllm(["grade", *argv]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


@pytest.fixture(scope="module")
def chained(tmp_path_factory):
    """{fault: {exercise id: mark}} of lab 02 with a fault in 2.2, on which 2.5 is built; graded together."""
    folder = tmp_path_factory.mktemp("chained")
    text = (ROOT / "solutions" / "02_paging.ipynb").read_text(encoding="utf-8")
    faults = {
        "double free": ("not self.taken.issuperset(blocks)", "False"),
        "leak": ("self.free_blocks.extend(blocks)", "self.free_blocks.extend(blocks[1:])"),
    }
    for fault, (old, new) in faults.items():
        assert old in text
        (folder / fault).mkdir()
        (folder / fault / "02_paging.ipynb").write_text(text.replace(old, new), encoding="utf-8")
    paths = [folder / fault / "02_paging.ipynb" for fault in faults]
    papers = mark_all(paths, jobs=2, settings=Settings(together=True))
    return {fault: paper.marks for fault, paper in zip(faults, papers, strict=True)}


@pytest.mark.parametrize("fault", ["double free", "leak"])
def test_nobody_pays_twice_for_one_fault_unless_marked_together(fault, chained):
    pool, shared = chained[fault]["2.2"], chained[fault]["2.5"]
    assert 0 < pool.points < pool.max_points and pool.together == pool.points
    assert shared.points == shared.max_points
    if fault == "leak":
        assert shared.together < shared.points
