"""How good the kernels are: what the compiler made of them, and on a GPU how near they come to the roof.

Ahead of time, on any machine: registers, shared memory and spilled bytes of each kernel for each
architecture. On a GPU also: achieved bytes/s and FLOP/s against the measured roofs of that GPU, beside other
implementations on the same numbers, whose results are compared before anything is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tqdm import tqdm

from .kernel_cases import Case, cases
from .kernel_work import Roofs
from .timer import CudaTimer, Timer, copy_bandwidth, matmul_peak


def measure_all(
    device: torch.device,
    dtype: torch.dtype,
    kernels: dict[str, Callable],
    timer: Timer,
    roofs: Roofs,
    chosen: list[Case],
    free_bytes: int,
) -> list[dict[str, Any]]:
    """One row a case. A case that needs more than `free_bytes` is a row with "skipped" and no figures."""
    rows = []
    for case in tqdm(chosen, desc="measuring kernels", unit="row"):
        row = {"kernel": case.kernel, "dtype": str(dtype).removeprefix("torch."), **case.shape}
        if case.memory > free_bytes:
            gib = 1024**3
            needed, free = case.memory / gib, free_bytes / gib
            rows.append({**row, "skipped": f"takes {needed:.1f} GiB, {free:.1f} GiB are free"})
            continue
        rows.append({**row, **_measure(case, device, dtype, kernels, timer, roofs)})
    return rows


def _measure(case: Case, device, dtype, kernels, timer: Timer, roofs: Roofs) -> dict[str, Any]:
    actions = case.make(device, dtype, kernels)
    ours = actions.pop("minivllm")
    expected = ours().double()
    row = roofs.achieved(case.work, timer(ours)) | {"peers": {}}
    for name, action in actions.items():
        try:
            difference = (action().double() - expected).abs().max() / expected.abs().max()
            peer = roofs.achieved(case.work, timer(action)) | {"difference": difference.item()}
        except Exception as error:  # another project's fault must not cost the other rows
            peer = {"error": f"{type(error).__name__}: {error}"[:200]}
        row["peers"][name] = peer
    return row


def measure_here(chosen: list[str] | None = None, dtype: str | None = None) -> dict[str, Any]:
    """{"measured": rows, "roofs": …}, each None where there is no GPU. `chosen`: names of kernels."""
    if not torch.cuda.is_available():
        return {"measured": None, "roofs": None}
    from ..executor.device import Gpu, auto_dtype
    from ..kernels import load

    device = torch.device("cuda")
    torch_dtype = getattr(torch, dtype) if dtype else auto_dtype(Gpu(device).capability)
    timer = CudaTimer(device)
    roofs = Roofs(copy_bandwidth(device, timer), matmul_peak(device, torch_dtype, timer))
    wanted = [case for case in cases(torch_dtype.itemsize) if chosen is None or case.kernel in chosen]
    free = torch.cuda.mem_get_info(device)[0]
    with torch.inference_mode():
        rows = measure_all(device, torch_dtype, load(), timer, roofs, wanted, free)
    return {
        "measured": rows,
        "roofs": {
            "device": torch.cuda.get_device_name(device),
            "copy_gb_per_s": roofs.bandwidth / 1e9,
            "matmul_tflop_per_s": roofs.flops / 1e12,
        },
    }


def measured_table(result: dict[str, Any]) -> str:
    """The measured rows for people; says "not measured" where there was no GPU."""
    if result["measured"] is None:
        return "kernels on a GPU: not measured (no CUDA device here)"
    roofs = result["roofs"]
    lines = [
        f"{roofs['device']}: copy {roofs['copy_gb_per_s']:,.0f} GB/s, "
        f"matrix product {roofs['matmul_tflop_per_s']:,.0f} TFLOP/s",
        f"{'kernel':<14} {'shape':<24} {'ms':>8} {'GB/s':>7} {'TFLOP/s':>8} {'% of roof':>9}  peers, ms",
    ]
    for row in result["measured"]:
        shape = " × ".join(
            f"{row[k]:,}" for k in ("num_tokens", "num_seqs", "query_len", "context_len") if k in row
        )
        start = f"{row['kernel']:<14} {shape:<24}"
        if "skipped" in row:
            lines.append(f"{start} skipped: {row['skipped']}")
            continue
        peers = ", ".join(
            f"{name} {peer['ms']:.3f}" if "ms" in peer else f"{name} failed"
            for name, peer in row["peers"].items()
        )
        lines.append(
            f"{start} {row['ms']:>8.3f} {row['gb_per_s']:>7,.0f} {row['tflop_per_s']:>8.1f} "
            f"{row['percent_of_roof']:>8.0f}%  {peers}"
        )
    return "\n".join(lines)
