"""The kernel benchmark without a GPU: its arithmetic, its cases, its rows; and the ahead-of-time report."""

import json
import sys
from types import SimpleNamespace

import pytest
import torch

from minivllm.__main__ import main
from minivllm.bench import ahead_of_time, kernel_work
from minivllm.bench.kernel_cases import DECODE_SHAPES, cases
from minivllm.bench.kernel_work import Heads, Roofs, Work
from minivllm.bench.kernels import measure_all, measured_table
from minivllm.bench.timer import copy_bandwidth, matmul_peak
from minivllm.kernels import KERNELS

SMALL = Heads(num_heads=4, num_kv_heads=2, head_dim=8, hidden_size=16, intermediate_size=12)
CPU = torch.device("cpu")
triton = pytest.importorskip("triton", reason="triton has no wheel for this system")


def references():
    """The torch function beside each kernel, under the kernel's name."""
    from minivllm.kernels import paged_decode, paged_prefill, rms_norm, rotary, silu_mul, store_kv

    modules = (paged_decode, paged_prefill, rms_norm, rotary, silu_mul, store_kv)
    return {m.__name__.split(".")[-1]: getattr(m, m.__name__.split(".")[-1] + "_reference") for m in modules}


def small_cases():
    return list(
        cases(4, SMALL, decode_shapes=[(1, 5), (3, 33)], prefill_shapes=[(2, 4, 4), (2, 3, 20)], tokens=[6])
    )


def test_bytes_and_flops_of_paged_decode_at_the_shape_aimed_at():
    work = kernel_work.attention([(1, 4096)] * 64, Heads(), itemsize=2, block_size=16)
    keys_and_values = 2 * 64 * 4096 * 8 * 128 * 2  # 1 GiB
    queries_and_outputs = 2 * 64 * 32 * 128 * 2
    block_ids = 64 * 256 * 8
    assert work.num_bytes == keys_and_values + queries_and_outputs + block_ids
    assert work.flops == 4 * 64 * 4096 * 32 * 128  # two products, two FLOPs a pair and element
    eight_bit = kernel_work.attention([(1, 4096)] * 64, Heads(), 2, 16, kv_itemsize=1)
    assert eight_bit.num_bytes == work.num_bytes - keys_and_values // 2
    assert (64, 4096) in DECODE_SHAPES


def test_bytes_and_flops_of_the_others():
    assert kernel_work.attention([(3, 5)], SMALL, 4, 2) == Work(
        2 * 3 * 32 * 4 + 2 * 5 * 16 * 4 + 3 * 8, 4 * 32 * 12
    )
    assert kernel_work.store_kv(6, SMALL, 4) == Work(6 * (4 * 16 * 4 + 8), 0)
    assert kernel_work.rms_norm(6, SMALL, 4).num_bytes == 4 * 6 * 16 * 4 + 16 * 4
    assert kernel_work.rotary(6, SMALL, 4).num_bytes == 6 * (2 * 6 * 8 + 2 * 8) * 4
    assert kernel_work.silu_mul(6, SMALL, 4).num_bytes == 3 * 6 * 12 * 4


def test_a_time_is_held_against_the_nearer_roof():
    roofs = Roofs(bandwidth=100e9, flops=1e12)
    memory = roofs.achieved(Work(num_bytes=10**9, flops=10**9), seconds=0.02)
    assert memory["bound"] == "memory" and memory["percent_of_roof"] == pytest.approx(50)
    assert memory["ms"] == pytest.approx(20) and memory["gb_per_s"] == pytest.approx(50)
    compute = roofs.achieved(Work(num_bytes=10**6, flops=10**10), seconds=0.04)
    assert compute["bound"] == "compute" and compute["percent_of_roof"] == pytest.approx(25)
    assert compute["tflop_per_s"] == pytest.approx(0.25)


def test_the_roofs_count_bytes_both_ways_and_two_flops_a_pair():
    def timer(action):
        action()
        return 0.5

    assert copy_bandwidth(CPU, timer, size=1000) == 2 * 1000 / 0.5
    assert matmul_peak(CPU, torch.float32, timer, width=8) == 2 * 8**3 / 0.5


def test_every_implementation_of_a_case_computes_the_same():
    chosen = small_cases()
    assert {case.kernel for case in chosen} == set(KERNELS)
    for case in chosen:
        actions = case.make(CPU, torch.float32, references())
        assert list(actions)[0] == "minivllm" and len(actions) == 2
        ours, peer = (action() for action in actions.values())
        assert ours.shape == peer.shape and torch.allclose(ours, peer, atol=1e-5), case


def test_a_case_counts_the_memory_of_its_cache_and_the_peers():
    for case in small_cases():
        if case.kernel == "paged_decode":
            tokens = case.shape["num_seqs"] * case.shape["context_len"]
            assert case.memory >= 3 * 2 * tokens * 2 * 8 * 4


def test_rows_have_shape_speed_and_peers_and_what_does_not_fit_is_named():
    times = iter([0.001, 0.002] * 20)
    chosen = [case for case in small_cases() if case.kernel in ("paged_decode", "silu_mul")]
    roofs, free = Roofs(1e9, 1e12), max(case.memory for case in chosen) - 1
    rows = measure_all(CPU, torch.float32, references(), lambda action: next(times), roofs, chosen, free)
    assert [row["kernel"] for row in rows] == ["paged_decode", "paged_decode", "silu_mul"]
    first, skipped, last = rows
    assert (first["num_seqs"], first["context_len"], first["dtype"]) == (1, 5, "float32")
    assert first["ms"] == 1 and first["peers"]["torch SDPA"]["ms"] == 2
    assert first["gb_per_s"] == pytest.approx(chosen[0].work.num_bytes / 0.001 / 1e9)
    assert first["peers"]["torch SDPA"]["difference"] < 1e-5
    assert "GiB are free" in skipped["skipped"] and "ms" not in skipped
    assert last["num_tokens"] == 6
    result = {"measured": rows, "roofs": {"device": "a GPU", "copy_gb_per_s": 1, "matmul_tflop_per_s": 1}}
    assert "skipped" in measured_table(result) and "torch SDPA 2.000" in measured_table(result)


def test_a_peer_that_fails_costs_no_other_row(monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("no such architecture")

    monkeypatch.setattr("torch.nn.functional.scaled_dot_product_attention", broken)
    chosen = [case for case in small_cases() if case.kernel == "paged_decode"]
    rows = measure_all(CPU, torch.float32, references(), lambda action: 1.0, Roofs(1, 1), chosen, 10**9)
    assert all("no such architecture" in row["peers"]["torch SDPA"]["error"] for row in rows)
    assert all(row["ms"] == 1000 for row in rows)


def test_installed_peers_get_the_same_numbers_in_their_own_layout(monkeypatch):
    """Fakes with the signatures of the two packages, which compute from what they were given."""
    from minivllm.bench import kernel_peers

    def attend(q, k, v):
        group = q.shape[1] // k.shape[1]
        k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
        weights = (torch.einsum("qhd,thd->hqt", q, k) * q.shape[2] ** -0.5).softmax(-1)
        return torch.einsum("hqt,thd->qhd", weights, v)

    def flash_attn_with_kvcache(q, k_cache, v_cache, *, cache_seqlens, block_table, causal):
        assert causal and k_cache.shape[1] == 256 and block_table.dtype == cache_seqlens.dtype == torch.int32
        return torch.stack([
            attend(x, *(c[table.long()].flatten(0, 1)[:length] for c in (k_cache, v_cache)))
            for x, table, length in zip(q, block_table, cache_seqlens, strict=True)
        ])  # fmt: skip

    class Decode:
        def __init__(self, workspace, layout):
            assert layout == "NHD"

        def plan(self, starts, blocks, last, num_heads, num_kv_heads, head_dim, block_size, **dtypes):
            self.given = starts, blocks, last, block_size
            assert (num_heads, num_kv_heads, head_dim) == (4, 2, 8)

        def run(self, q, caches):
            starts, blocks, last, block_size = self.given
            out = []
            for i, x in enumerate(q):
                table = blocks[starts[i] : starts[i + 1]].long()
                length = (len(table) - 1) * block_size + int(last[i])
                out.append(attend(x[None], *(c[table].flatten(0, 1)[:length] for c in caches))[0])
            return torch.stack(out)

    flash_attn = SimpleNamespace(flash_attn_with_kvcache=flash_attn_with_kvcache)
    flashinfer = SimpleNamespace(BatchDecodeWithPagedKVCacheWrapper=Decode)
    monkeypatch.setitem(sys.modules, "flash_attn", flash_attn)
    monkeypatch.setitem(sys.modules, "flashinfer", flashinfer)
    monkeypatch.setattr(kernel_peers.util, "find_spec", lambda name: name)
    for case in small_cases():
        if case.kernel == "paged_decode":
            actions = case.make(CPU, torch.float32, references())
            assert list(actions) == ["minivllm", "torch SDPA", "FlashAttention", "FlashInfer"]
            results = [action() for action in actions.values()]
            for result in results[1:]:
                assert torch.allclose(results[0], result, atol=1e-5)


def test_json_has_the_ahead_of_time_rows_and_no_measured_ones_here(capsys):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU: its rows are tests/gpu's")
    argv = ["bench", "kernels", "--kernel", "silu_mul", "--arch", "90", "--dtype", "float16", "--json"]
    assert main(argv + ["--measured-only"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result == {"ahead_of_time": [], "measured": None, "roofs": None}


def test_rows_are_filtered_and_sorted_and_helpers_stay_with_their_kernel(monkeypatch, capsys):
    asked = []

    def report(architectures, dtypes, whole):
        asked.append((architectures, dtypes, whole))
        usage = {"registers": 32, "shared_bytes": 1024, "spills": 0, "detail": "", "dtype": dtypes[0]}
        names = ("silu_mul", "combine_splits", "paged_decode")
        return [{"kernel": name, "arch": f"sm_{architectures[0]}", **usage} for name in names]

    monkeypatch.setattr(ahead_of_time.ahead_of_time, "report", report)
    rows = ahead_of_time.rows([80, 90], ("fp16",), ["paged_decode"])
    assert asked == [((80,), ("fp16",), False), ((90,), ("fp16",), False)]
    assert [(row["kernel"], row["arch"]) for row in rows] == [
        ("combine_splits", "sm_80"), ("combine_splits", "sm_90"),
        ("paged_decode", "sm_80"), ("paged_decode", "sm_90"),
    ]  # fmt: skip
    assert "4 configurations, 0 of them spill" in ahead_of_time.table(rows)
    assert main(["bench", "kernels", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert len(result["ahead_of_time"]) == 3 * len(asked[2:]) == 3 * 9  # three GPUs, three dtypes
    assert set(result["ahead_of_time"][0]) >= {"kernel", "arch", "registers", "shared_bytes", "spills"}
    assert main(["bench", "kernels"]) == 0
    assert "27 configurations" in capsys.readouterr().out
    with pytest.raises(ValueError, match="arch is 70; the report knows 75, 80, 90"):
        ahead_of_time.rows([70])
