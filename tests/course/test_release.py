"""A release holds what students need to start, and no solution."""

import json
import zipfile
from pathlib import Path

import pytest

from minivllm.course import release
from minivllm.course.catalogue import LABS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    release.main(["--root", str(ROOT), "--to", str(folder)])
    return folder / "minivllm-labs"


def test_it_holds_the_labs_a_wheel_and_how_to_begin(released):
    assert {path.stem for path in (released / "labs").iterdir()} == set(LABS.values())
    wheel = next(released.glob("*.whl")).name
    assert wheel in (released / "README.md").read_text()
    assert {path.name for path in released.iterdir()} == {
        "labs",
        "LICENSE",
        "README.md",
        "requirements.txt",
        wheel,
    }


def test_the_labs_are_stubs_without_outputs(released):
    for path in (released / "labs").iterdir():
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        assert not any(cell.get("outputs") for cell in cells)
        solve = [c for c in cells if any(t.startswith("solve:") for t in c["metadata"].get("tags", []))]
        assert solve and all("course.NotImplementedYet" in "".join(cell["source"]) for cell in solve)


def test_the_wheel_holds_the_package_and_nothing_that_was_left_out(released):
    names = zipfile.ZipFile(next(released.glob("*.whl"))).namelist()
    assert "minivllm/course/grade/mark.py" in names
    assert not [name for name in names if name.split("/")[0] in ("labs", "solutions", "tests")]
    assert not [name for name in names if name.endswith(".ipynb")]
