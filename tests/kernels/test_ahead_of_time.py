"""Every kernel compiles for the GPUs in use, without one, and nothing spills.

Here a selection; `python -m minivllm.kernels.ahead_of_time` compiles every configuration.
"""

import importlib.util
from dataclasses import replace

import pytest

if importlib.util.find_spec("triton") is None:
    pytest.skip("triton has no wheel for this system", allow_module_level=True)

from minivllm.kernels import KERNELS, ahead_of_time
from minivllm.kernels.configurations import GROUPS, HEAD_DIMS, cases, selection

ARCHITECTURES = ahead_of_time.ARCHITECTURES
ATTENTION = ("paged_decode", "paged_prefill")


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_kernels_compile_without_spills(arch):
    rows = ahead_of_time.report((arch,), whole=False)
    assert {row["kernel"] for row in rows} >= KERNELS.keys() and all(row["registers"] for row in rows)
    assert not ahead_of_time.faults(rows)


def test_a_spill_is_seen():
    """A tile that no 32 threads hold, so that a table without spills says something."""
    case = next(c for c in cases(75, ("fp32",)) if c.kernel == "paged_prefill" and "128" in c.detail)
    case = replace(case, constants={**case.constants, "TILE": 32}, options={"num_warps": 1})
    row = ahead_of_time.compile_case(case, 75)
    assert row["spills"] > 0 and ahead_of_time.faults([row]) == [row]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_table_has_every_configuration_in_use(arch):
    every = cases(arch)
    for kernel in ATTENTION:
        for dtype in ("fp32", "fp16") if arch < 80 else ("fp32", "fp16", "bf16"):
            found = {
                (c.features["head_dim"], c.features["group"], c.features["cache"])
                for c in every
                if c.kernel == kernel and c.dtype == dtype and c.features["block_size"] == 16
            }
            caches = (dtype, "fp8", "int8")
            assert found == {(d, g, cache) for d in HEAD_DIMS for g in GROUPS for cache in caches}


def test_bf16_is_left_out_by_rule_where_no_gpu_has_it():
    assert not [c for c in cases(75) if c.dtype == "bf16"]
    assert [c for c in cases(80) if c.dtype == "bf16"]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_selection_meets_every_feature_of_every_kernel(arch):
    def features(chosen):
        return {(c.kernel, c.dtype) for c in chosen} | {
            (c.kernel, name, value) for c in chosen for name, value in c.features.items()
        }

    assert features(selection(arch)) == features(cases(arch))
    assert len(selection(arch)) < len(cases(arch)) / 4
