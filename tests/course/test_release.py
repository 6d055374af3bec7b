"""A release holds what students need to start, and no solution."""

import json
import re
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


def test_no_link_of_a_released_lab_leads_out_of_the_release(released):
    texts = {path: path.read_text(encoding="utf-8") for path in (released / "labs").iterdir()}
    for path, text in texts.items():
        cells = ["".join(c["source"]) for c in json.loads(text)["cells"] if c["cell_type"] == "markdown"]
        prose = re.sub(r"```.*?```|`[^`]*`", "", "\n".join(cells), flags=re.S)
        for target in re.findall(r"\]\(([^)]+)\)", prose):
            assert ":" in target or target.startswith("#") or (path.parent / target).exists(), target
    assert "`minivllm/kv/blocks.py`" in texts[released / "labs" / f"{LABS[2]}.ipynb"]


def test_a_released_lab_installs_the_wheel_beside_it_where_the_package_is_missing(released):
    wheel = next(released.glob("*.whl")).name
    for path in (released / "labs").iterdir():
        code = [
            "".join(c["source"]) for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"
        ]
        assert f'"../{wheel}"' in code[0] and not any('"--editable"' in cell for cell in code)


@pytest.mark.parametrize(
    "link, plain",
    [
        ("[blocks.py](../minivllm/kv/blocks.py)", "`minivllm/kv/blocks.py`"),
        ("[`blocks.py`](../minivllm/kv/blocks.py)", "`minivllm/kv/blocks.py`"),
        ("[the pool](../minivllm/kv/blocks.py)", "the pool (`minivllm/kv/blocks.py`)"),
        ("[lab 02](02_paging.ipynb#x)", "[lab 02](02_paging.ipynb#x)"),
        ("[paper](https://example.org/a)", "[paper](https://example.org/a)"),
    ],
)
def test_a_link_becomes_the_name_of_the_file(link, plain):
    cells = [{"cell_type": kind, "source": [link]} for kind in ("markdown", "code")]
    done = release.for_students({"cells": cells}, "x.whl")["cells"]
    assert ["".join(cell["source"]) for cell in done] == [plain, link]
