"""What a reader meets in a notebook: checks, parts, predictions, progress, and nothing that raises."""

import importlib
import sys

import pytest

from minivllm.course import NotImplementedYet, open
from minivllm.course.catalogue import find
from minivllm.course.workspace import Workspace

from .wrong_parts import RIGHT, WRONG


@pytest.fixture
def lab(tmp_path, monkeypatch):
    monkeypatch.setenv("MINIVLLM_WORKSPACE", str(tmp_path / "my_engine"))
    return open(1)


@pytest.fixture
def define(tmp_path, monkeypatch):
    """Write a part to a module of its own and import it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    made = []

    def write(exercise_id, source):
        name = f"reader_{tmp_path.name}_{len(made)}".replace("-", "_")
        (tmp_path / f"{name}.py").write_text(source)
        importlib.invalidate_caches()
        made.append(name)
        return getattr(importlib.import_module(name), find(exercise_id).name)

    yield write
    for name in made:
        sys.modules.pop(name, None)


def wrong(fault):
    return next(w[3] for w in WRONG if w[1] == fault)


def test_an_unknown_lab_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="there is no lab 99; the labs are 0, 1, 2"):
        open(99)


def test_a_part_that_passes_is_kept_and_used(lab, define, capsys):
    lab.check(define("1.3", RIGHT["1.3"]))
    assert capsys.readouterr().out == "✓ 1.3 ContiguousKVCache: 11 of 11\n"
    mine = open(1).part("1.3")  # as after a restart of the kernel
    assert capsys.readouterr().out == "1.3 ContiguousKVCache: yours\n"
    assert mine.__module__ == "my_engine.ex1_3_contiguous_kv_cache"


def test_until_it_passes_the_reference_stands_in_by_name(lab, define, capsys):
    assert lab.part("1.3") is find("1.3").load_reference()
    assert "the reference (yours is not done yet)" in capsys.readouterr().out
    lab.check(define("1.3", wrong("no limit")))
    assert lab.part("1.3") is find("1.3").load_reference()
    assert "the reference (yours does not pass yet)" in capsys.readouterr().out


def test_a_later_failure_keeps_the_version_that_passed(lab, define, capsys):
    lab.check(define("1.1", RIGHT["1.1"]))
    lab.check(define("1.1", wrong("not scaled")))
    assert lab.part("1.1").__module__.startswith("my_engine.")
    assert "1.1 attention_one_step: yours, the version that passed" in capsys.readouterr().out


def test_a_stub_is_not_implemented_yet(lab, define, capsys):
    head = "from minivllm import course\ndef generate_recompute(model, prompt, n):\n"
    source = f"{head}    raise course.NotImplementedYet\n"
    lab.check(define("1.2", source))
    assert capsys.readouterr().out == "✗ 1.2 not implemented yet\n"


def test_minivllms_own_part_is_no_answer(lab, capsys):
    lab.check(lab.reference("1.3"))
    assert "✗ 1.3 this is minivllm's own ContiguousKVCache" in capsys.readouterr().out


@pytest.mark.parametrize("thing", [3, "ContiguousKVCache", None, lambda q, k, v: q, print])
def test_something_else_is_answered_with_the_names_of_the_exercises(lab, thing, capsys):
    lab.check(thing)
    assert "✗ not checked: lab.check takes attention_one_step, generate_recompute" in capsys.readouterr().out


def test_a_saved_part_that_no_longer_loads_is_named_and_replaced(lab, define, capsys):
    lab.check(define("1.1", RIGHT["1.1"]))
    Workspace().path(find("1.1")).write_text("import nothing_of_that_name\n")
    assert lab.part("1.1") is find("1.1").load_reference()
    assert "ex1_1_attention_one_step.py does not load" in capsys.readouterr().out


def test_a_prediction_outlives_the_kernel(lab, capsys):
    lab.predict("1.2", [1, 2.5])
    open(1).compare("1.2", 3)
    assert capsys.readouterr().out == "1.2: you predict [1, 2.5]\n1.2: you predicted [1, 2.5]; it is 3\n"


@pytest.mark.parametrize("value", [None, [None, 3]])
def test_no_prediction_is_no_error(lab, value, capsys):
    lab.predict("1.2", value)
    lab.compare("1.2", 3)
    out = capsys.readouterr().out
    assert "no prediction yet" in out and "you made no prediction; it is 3" in out


def test_progress_shows_each_exercise_and_what_is_yours(lab, define, capsys):
    lab.check(define("1.3", RIGHT["1.3"]))
    lab.check(define("1.1", wrong("not scaled")))
    capsys.readouterr()
    lab.progress()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("✗ 1.1 attention_one_step") and "of 9 rules" in lines[0]
    assert lines[1].startswith("· 1.2") and lines[2].startswith("✓ 1.3")
    assert lines[-1] == "1 of 5 parts are yours, 4 of 12 points"


def test_the_engine_takes_the_readers_cache(lab, define, capsys, monkeypatch):
    lab.check(define("1.3", RIGHT["1.3"]))
    capsys.readouterr()
    made = {}
    monkeypatch.setattr(
        "minivllm.llm.LLM", lambda model, parts, **settings: made.update(parts=parts, **settings)
    )
    lab.engine(attention_backend="contiguous")
    assert made["parts"].replaced() == ["kv_cache"] and made["attention_backend"] == "contiguous"
    assert capsys.readouterr().out == "engine: kv_cache is yours (1.3 ContiguousKVCache)\n"


def test_the_stub_marker_is_an_exception_of_the_course():
    assert issubclass(NotImplementedYet, Exception)
