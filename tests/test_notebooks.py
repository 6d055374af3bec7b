"""The stored notebooks: in step with their source, small, and runnable by somebody who has done nothing."""

import os
import re
from pathlib import Path

import nbformat
import pytest

from minivllm.course import build
from minivllm.course.catalogue import LABS, of_lab

ROOT = Path(__file__).parents[1]


def text_of(cell):
    return "".join(output.get("text", "") for output in cell.get("outputs", []))


def cells_of(folder, name):
    return nbformat.read(ROOT / folder / f"{name}.ipynb", as_version=4).cells


def test_labs_and_solutions_are_what_their_sources_give(capsys):
    assert build.main(["--check", "--root", str(ROOT)]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("number", LABS)
def test_a_fresh_lab_runs_top_to_bottom_and_says_what_is_not_done(number, tmp_path, monkeypatch):
    from nbclient import NotebookClient

    monkeypatch.setenv("MINIVLLM_WORKSPACE", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    # Two OpenMP threads on two cores that are busy with something else wait for each other endlessly.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(ROOT / "labs" / f"{LABS[number]}.ipynb", as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(ROOT / "labs")}}).execute()
    said = "".join(text_of(cell) for cell in notebook.cells)
    for exercise in of_lab(number):
        assert f"✗ {exercise.id} not implemented yet" in said
    assert f"0 of {len(of_lab(number))} parts are yours" in said
    assert "False" not in said


@pytest.mark.parametrize("number", LABS)
def test_a_solution_passes_every_check(number):
    said = "".join(text_of(cell) for cell in cells_of("solutions", LABS[number]))
    for exercise in of_lab(number):
        assert f"✓ {exercise.title}: " in said
    assert "✗" not in said and "False" not in said


@pytest.mark.parametrize("name", LABS.values())
def test_every_exercise_has_a_stub_a_check_and_three_hints(name):
    cells = cells_of("labs", name)
    for exercise in of_lab(int(name[:2])):
        solve = next(
            i for i, cell in enumerate(cells) if f"solve:{exercise.id}" in cell.metadata.get("tags", [])
        )
        assert build.STUB in cells[solve].source
        assert cells[solve + 1].source == f"lab.check({exercise.name})"
        assert cells[solve + 2].source.count("<summary>Hint") == 3


@pytest.mark.parametrize("folder", ["labs", "solutions"])
@pytest.mark.parametrize("name", LABS.values())
def test_notebooks_are_small_and_their_text_cells_short(folder, name):
    assert (ROOT / folder / f"{name}.ipynb").stat().st_size < 500_000
    for cell in cells_of(folder, name):
        if cell.cell_type == "markdown":
            assert len(cell.source.split()) <= 120, cell.source[:60]


@pytest.mark.parametrize("name", LABS.values())
def test_pictures_have_words_and_are_not_compared(name):
    for cell in cells_of("solutions", name):
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                assert output.metadata["image/png"]["alt"]
                assert "nbval-ignore-output" in cell.metadata.tags


@pytest.mark.parametrize("name", LABS.values())
def test_links_of_a_lab_lead_to_files(name):
    for cell in cells_of("labs", name):
        for target in re.findall(r"\]\((\.\./[^)]+)\)", cell.source if cell.cell_type == "markdown" else ""):
            assert (ROOT / "labs" / target).exists(), target
