"""The text of a part is found among the cells that ran, with what it needs and no more."""

import ast
import sys

import pytest

from minivllm.course.catalogue import find
from minivllm.course.source import SourceNotFound, module_text, stubs_in

from .wrong_parts import RIGHT

IMPORTS = "import torch\nfrom minivllm.attention.dense import causal_attention\nfrom minivllm import course\n"


@pytest.fixture
def kernel():
    from IPython.core.interactiveshell import InteractiveShell

    main = sys.modules["__main__"]
    shell = InteractiveShell.instance()

    def run(*cells):
        for cell in cells:
            shell.run_cell(cell, store_history=False)  # as under nbval
        return shell.user_ns

    yield run
    InteractiveShell.clear_instance()
    sys.modules["__main__"] = main


def text_of(namespace, exercise_id):
    exercise = find(exercise_id)
    return module_text(namespace[exercise.name], exercise)[0]


def test_a_class_typed_in_a_cell_is_found_and_its_module_runs(kernel):
    text = text_of(kernel(IMPORTS, RIGHT["1.3"]), "1.3")
    namespace = {}
    exec(text, namespace)
    assert namespace["ContiguousKVCache"](1, 4, 1, 2).max_len == 4


def test_the_newest_definition_counts(kernel):
    text = text_of(kernel(RIGHT["1.3"], RIGHT["1.3"].replace("too long", "newest")), "1.3")
    assert "newest" in text and "too long" not in text


def test_a_helper_is_taken_as_it_is_now_though_its_cell_is_old(kernel):
    part = "def attention_one_step(q, k, v):\n    return helper()"
    namespace = kernel(
        "def helper():\n    return 1", "def helper():\n    return 2", part, "def helper():\n    return 1"
    )
    assert "return 1" in text_of(namespace, "1.1")


def test_imports_helpers_and_constants_of_other_cells_come_along(kernel):
    namespace = kernel(
        "import math, torch as t",
        "SCALE = 0.5",
        "def helper(x):\n    return math.sqrt(x) * SCALE",
        "def attention_one_step(q, k, v):\n    return helper(t.tensor(4.0))",
    )
    text = text_of(namespace, "1.1")
    for piece in ("import math\n", "import torch as t\n", "SCALE = 0.5", "def helper(x):"):
        assert piece in text
    namespace = {}
    exec(text, namespace)
    assert namespace["attention_one_step"](0, 0, 0) == 1.0


def test_nothing_of_the_notebook_is_run_again(kernel):
    namespace = kernel(
        "import torch",
        "model = dict(big=1)",
        "torch.manual_seed(0)",
        "def generate_recompute(model, prompt, n):\n    return [model] + list(prompt)\nprint('side effect')",
    )
    text = text_of(namespace, "1.2")
    assert "big" not in text and "side effect" not in text and "manual_seed" not in text


def test_a_spec_is_replaced_by_something_that_raises(kernel):
    namespace = kernel(
        "def spec_attention(q, k, v):\n    return q",
        "alias = spec_attention",
        "def attention_one_step(q, k, v):\n    return spec_attention(q, k, v)",
    )
    text = text_of(namespace, "1.1")
    assert 'spec_attention = forbidden("spec_attention")' in text and "return q\n" not in text


def test_an_earlier_exercise_is_taken_from_the_workspace(kernel):
    namespace = kernel(
        IMPORTS,
        "attention_one_step = None",
        "def generate_cached(model, prompt, n, cache):\n    return attention_one_step",
    )
    assert 'attention_one_step = part("1.1")' in text_of(namespace, "1.4")


def test_decorators_magics_and_broken_cells_do_not_disturb(kernel):
    namespace = kernel(
        "import functools",
        "%precision 3\ndef identity(f):\n    return f",
        "@identity\ndef attention_one_step(q, k, v):\n    return q",
        "this is no python",
    )
    text = text_of(namespace, "1.1")
    assert "@identity\ndef attention_one_step" in text and "precision" not in text
    ast.parse(text)


@pytest.mark.parametrize("magic", ["%%time", "%%capture", "%%capture out\n%%time", "\n%%time"])
def test_a_cell_that_begins_with_a_cell_magic_is_found_and_read_without_it(kernel, magic):
    part = "def attention_one_step(q, k, v):\n    %matplotlib inline\n    return helper(q)"
    old = part.replace("helper(q)", "q").replace("%matplotlib inline", "pass")
    namespace = kernel(old, f"{magic}\ndef helper(q):\n    return 2 * q", f"{magic}\n{part}")
    text = text_of(namespace, "1.1")
    assert "return helper(q)" in text and "return 2 * q" in text and "%" not in text
    ast.parse(text)


def test_a_cell_in_another_language_is_not_read(kernel):
    namespace = kernel("%%html\ndef attention_one_step(q, k, v):\n    return q")
    assert "attention_one_step" not in namespace
    with pytest.raises(SourceNotFound):
        module_text(lambda q: q, find("1.1"))


def test_a_part_of_a_plain_file_is_found_there(tmp_path, monkeypatch):
    (tmp_path / "my_part.py").write_text(RIGHT["1.3"] + "\nprint('not again')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import my_part

    text = text_of(vars(my_part), "1.3")
    assert "class ContiguousKVCache" in text and "not again" not in text


def test_without_a_cell_that_defines_it_the_reader_is_told(kernel):
    namespace = kernel("exec('def attention_one_step(q, k, v): return q')")
    with pytest.raises(SourceNotFound, match="run the cell that defines attention_one_step"):
        text_of(namespace, "1.1")


def test_only_a_function_that_begins_with_the_stub_is_surely_a_stub():
    source = (
        "class A:\n"
        "    def stub(self):\n        '''text'''\n        raise course.NotImplementedYet\n"
        "    def half(self):\n        x = 1\n        raise course.NotImplementedYet\n"
    )
    assert stubs_in(ast.parse(source).body[0]) == ["stub"]


def test_a_class_without_methods_is_found_too(kernel):
    namespace = kernel("class Base:\n    max_len = 3", "class ContiguousKVCache(Base):\n    pass")
    assert "class Base" in text_of(namespace, "1.3")
