"""The compiler's report on a reader's kernels: from the source alone, for GPUs that are not here."""

import importlib.util
from pathlib import Path

import pytest

from minivllm.course.catalogue import LABS, find
from minivllm.course.compile_report import compile_report, table
from minivllm.course.grade.submission import Submission
from minivllm.course.workspace import Workspace

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton has no wheel for this system"
)
SOLUTION = Path(__file__).parents[2] / "solutions" / f"{LABS[3]}.ipynb"


@pytest.fixture
def saved(tmp_path):
    """Save the solution's part, edited, and load it."""

    def save(exercise_id, old="", new=""):
        workspace, exercise = Workspace(tmp_path), find(exercise_id)
        workspace.keep(exercise, Submission(SOLUTION).module_text(exercise).replace(old, new))
        return workspace.load(exercise)

    return save


@pytest.mark.parametrize(
    "exercise_id, kernels",
    [
        ("3.1", {"store_kv_kernel"}),
        ("3.2", {"rms_norm_kernel"}),
        ("3.4", {"paged_decode_kernel"}),
        ("3.5", {"split_kernel", "reduce_kernel"}),
        ("3.6", {"paged_prefill_kernel"}),
    ],
)
def test_the_solutions_kernels_compile_for_old_and_new_without_spills(saved, exercise_id, kernels):
    rows = compile_report(saved(exercise_id), architectures=(75, 90))
    assert {(row.kernel, row.arch) for row in rows} == {
        (kernel, arch) for kernel in kernels for arch in ("sm_75", "sm_90")
    }
    for row in rows:
        assert row.spills == 0 and 0 < row.registers <= 255 and row.count("ld.global") > 0
        assert row.kernel in table(rows) and f".entry {row.kernel}" in row.ptx


def test_a_row_is_loaded_two_halves_at_a_time_as_a_launch_would(saved):
    (row,) = compile_report(saved("3.1"), architectures=(90,))
    assert row.count("ld.global") == 3  # the slot, a row of k, a row of v
    assert row.count("st.global") == 2


@pytest.mark.parametrize("exercise_id", ["3.1", "3.4"])
def test_the_reference_is_reported_too(exercise_id):
    part = find(exercise_id).load_reference()
    assert all(row.spills == 0 for row in compile_report(part, architectures=(80,)))


def test_what_does_not_compile_is_an_error_in_the_compilers_words(saved):
    part = saved("3.1", "tl.arange(0, ROW_PAD)", "tl.arange(0, ROW)")
    with pytest.raises(ValueError, match="store_kv does not compile: .*power of 2"):
        compile_report(part, architectures=(90,))
