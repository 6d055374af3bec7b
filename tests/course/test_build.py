"""One source, two notebooks: what is cut out, what is marked, and when they are out of step."""

import nbformat
import pytest

from minivllm.course import build

SOURCE = '''# %% [markdown]
# # A lab

# %%
### BEGIN SOLUTION
guess = 3
### END SOLUTION
print(guess)

# %% tags=["solve:1.1"]
def attention_one_step(q, k, v):
    """Shapes."""
    ### BEGIN SOLUTION
    for head in q:
        print(head)
    return q
    ### END SOLUTION


# %% tags=["check:1.1"]
print("check")
### BEGIN HIDDEN TESTS
print("hidden")
### END HIDDEN TESTS
'''


def test_a_student_gets_a_stub_where_the_solution_was():
    cells = build.student_notebook(SOURCE).cells
    assert cells[2].source.endswith('"""Shapes."""\n    ' + build.STUB)
    assert cells[1].source == "guess = None  # your prediction\nprint(guess)"
    assert cells[3].source == 'print("check")'


def test_a_solution_keeps_everything_but_the_markers():
    cells = build.solution_notebook(SOURCE).cells
    assert "for head in q:" in cells[2].source and "guess = 3" in cells[1].source
    assert not any("###" in cell.source for cell in cells)


def test_cells_carry_nbgraders_metadata():
    solve, check = (cell.metadata["nbgrader"] for cell in build.student_notebook(SOURCE).cells[2:])
    assert solve == {
        "grade": False,
        "grade_id": "solve-1-1",
        "locked": False,
        "schema_version": 3,
        "solution": True,
        "task": False,
    }
    assert check["grade"] and check["locked"] and check["points"] == 2 and check["grade_id"] == "check-1-1"


def test_cells_have_the_same_ids_each_time_and_none_twice():
    first, second = ([cell.id for cell in build.student_notebook(SOURCE).cells] for _ in range(2))
    assert first == second and len(set(first)) == len(first)


@pytest.fixture
def built(tmp_path):
    lab, solution = tmp_path / "labs" / "a.ipynb", tmp_path / "solutions" / "a.ipynb"
    build.write(build.student_notebook(SOURCE), lab)
    notebook = build.solution_notebook(SOURCE)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.execution_count = 1
    build.write(notebook, solution)
    return lab, solution


def change(path, what):
    notebook = nbformat.read(path, as_version=4)
    what(notebook.cells)
    nbformat.write(notebook, path)


def test_notebooks_just_built_are_in_step(built):
    assert build.out_of_step(SOURCE, *built) == []


def test_every_kind_of_drift_is_named(built):
    lab, solution = built
    assert "not what its source" in build.out_of_step(SOURCE.replace("A lab", "Another"), lab, solution)[0]
    change(solution, lambda cells: cells[1].update(execution_count=None))
    assert "has not been executed" in build.out_of_step(SOURCE, lab, solution)[0]
    change(lab, lambda cells: cells[1].update(execution_count=3))
    assert "has outputs" in build.out_of_step(SOURCE, lab, solution)[0]
    change(lab, lambda cells: cells[2].metadata.clear())
    assert "not what its source" in build.out_of_step(SOURCE, lab, solution)[0]
    lab.unlink()
    assert "is missing" in build.out_of_step(SOURCE, lab, solution)[0]
