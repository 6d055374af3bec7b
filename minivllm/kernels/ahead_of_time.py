"""Compile every kernel for GPUs that are not here, and read what the result needs.

Triton compiles for a named architecture without a device; `cuobjdump`, which comes with triton, then tells
registers, shared memory and spills of the machine code. So a laptop can prove that the kernels
compile for the GPUs that people use, and that no configuration spills registers to memory. In a process
that interprets kernels nothing can be compiled; `report` then runs itself in a child.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import interpreting

ARCHITECTURES = (75, 80, 90)  # T4; A100; H100 and H200
# bf16 came with sm_80: on sm_75 it is emulated, and the engine takes fp16 there (dtype="auto").
FIRST_WITH_BF16 = 80
HEAD_DIMS = (64, 80, 96, 128, 256)
GROUPS = (1, 3, 8)
DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


@dataclass(frozen=True)
class Case:
    """One kernel with the constants that it is compiled for. `types` has the type of each argument that
    is no constant."""

    kernel: str
    module: str
    function: str
    dtype: str
    types: dict[str, str]
    constants: dict[str, Any]
    detail: str = ""
    num_warps: int = 4


def cases(dtypes: tuple[str, ...] = ("fp32", "fp16", "bf16")) -> list[Case]:
    """Every kernel in every configuration in use."""
    found = []
    for dtype in dtypes:
        x, index = f"*{dtype}", "*i64"
        size = 576
        found.append(
            Case("store_kv", "store_kv", "store_kv_kernel", dtype,
                 {"k": x, "v": x, "k_cache": x, "v_cache": x, "slot_mapping": index,
                  "k_stride": "i32", "v_stride": "i32", "cache_stride": "i32"},
                 {"ROW": 192, "ROW_PAD": 256})
        )  # fmt: skip
        for has_residual in (False, True):
            found.append(
                Case("rms_norm", "rms_norm", "rms_norm_kernel", dtype,
                     {"x": x, "residual": x, "weight": x, "out": x, "added": x, "x_stride": "i32",
                      "eps": "fp32"},
                     {"SIZE": size, "PAD": 1024, "HAS_RESIDUAL": has_residual}, f"residual {has_residual}")
            )  # fmt: skip
        found.append(
            Case("silu_mul", "silu_mul", "silu_mul_kernel", dtype, {"gate_up": x, "out": x},
                 {"SIZE": 1536, "PIECE": 1024})
        )  # fmt: skip
        for head_dim in HEAD_DIMS:
            found += _cases_of_head_dim(dtype, head_dim)
    return found


def _cases_of_head_dim(dtype: str, head_dim: int) -> list[Case]:
    import torch

    from .paged_decode import LEAST_ROWS, SPLIT, dot_dtype, num_warps, tile_size
    from .paged_prefill import QUERY_TILE

    x, index = f"*{dtype}", "*i64"
    pad = 1 << (head_dim - 1).bit_length()
    torch_dtype = getattr(torch, DTYPES[dtype])
    common = {
        "BLOCK_SIZE": 16,
        "NUM_KV_HEADS": 3,
        "HEAD_DIM": head_dim,
        "DIM_PAD": pad,
        "TILE": tile_size(pad),
        "DOT": dot_dtype(torch_dtype),
    }
    found = [
        Case("rotary", "rotary", "rotary_kernel", dtype,
             {"x": x, "cos": x, "sin": x, "out": x, "x_stride": "i32"},
             {"NUM_HEADS": 9, "HALF": head_dim // 2, "HEADS_PAD": 16, "PAD": pad // 2},
             f"head_dim {head_dim}")
    ]  # fmt: skip
    for group in GROUPS:
        detail = f"head_dim {head_dim}, group {group}"
        for out in {dtype, "fp32"}:
            found.append(
                Case("paged_decode", "paged_decode", "paged_decode_kernel", dtype,
                     {"q": x, "k_cache": x, "v_cache": x, "block_tables": index, "context_lens": index,
                      "out": f"*{out}", "lse": "*fp32", "scale": "fp32", "q_stride": "i32",
                      "table_stride": "i32",
                      "num_splits": "i32"},
                     {**common, "GROUP": group, "ROWS": LEAST_ROWS, "SPLIT": SPLIT}, detail, num_warps(pad))
            )  # fmt: skip
        found.append(
            Case("paged_prefill", "paged_prefill", "paged_prefill_kernel", dtype,
                 {"q": x, "k_cache": x, "v_cache": x, "block_tables": index, "query_start": index,
                  "query_lens": index, "context_lens": index, "out": x, "scale": "fp32", "q_stride": "i32",
                  "table_stride": "i32", "max_context_len": "i32"},
                 {**common, "GROUP": group, "QUERY_TILE": QUERY_TILE}, detail, num_warps(pad))
        )  # fmt: skip
    found.append(
        Case("combine_splits", "paged_decode", "combine_splits_kernel", dtype,
             {"partial": "*fp32", "lse": "*fp32", "context_lens": index, "out": x, "num_splits": "i32"},
             {"NUM_HEADS": 9, "HEAD_DIM": head_dim, "DIM_PAD": pad, "SPLIT": SPLIT}, f"head_dim {head_dim}")
    )  # fmt: skip
    return found


def compile_case(case: Case, arch: int) -> dict[str, Any]:
    """One row of the report: {"kernel", "arch", "dtype", "detail", "registers", "shared_bytes", "spills"
    (bytes of stack and local memory a thread)}."""
    from importlib import import_module

    function = getattr(import_module(f"minivllm.kernels.{case.module}"), case.function)
    compiled = compile_function(function, case.types, case.constants, arch, case.num_warps)
    usage = resource_usage(compiled.asm["cubin"])
    return {"kernel": case.kernel, "arch": f"sm_{arch}", "dtype": case.dtype, "detail": case.detail, **usage}


def compile_function(
    function: Any, types: dict[str, str], constants: dict[str, Any], arch: int, num_warps: int = 4
) -> Any:
    """Compile a `triton.jit` function for sm_`arch`; its `.asm` has "ptx" and "cubin"."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = {name: types.get(name, "constexpr") for name in function.arg_names}
    source = ASTSource(function, signature, constants)
    return triton.compile(source, target=GPUTarget("cuda", arch, 32), options={"num_warps": num_warps})


def resource_usage(cubin: bytes) -> dict[str, int]:
    """Registers a thread, shared memory a program, and spilled bytes a thread."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        run = subprocess.run([str(tool), "-res-usage", file.name], capture_output=True, text=True, check=True)
    found = {key: int(value) for key, value in re.findall(r"(REG|STACK|SHARED|LOCAL):(\d+)", run.stdout)}
    return {
        "registers": found["REG"],
        "shared_bytes": found["SHARED"],
        "spills": found["STACK"] + found["LOCAL"],
    }


def report(
    architectures: tuple[int, ...] = ARCHITECTURES, dtypes: tuple[str, ...] = tuple(DTYPES)
) -> list[dict]:
    """All rows, bf16 left out where the architecture has none."""
    if interpreting():
        module = "minivllm.kernels.ahead_of_time"
        command = [sys.executable, "-m", module, ",".join(map(str, architectures)), ",".join(dtypes)]
        environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
        run = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        return json.loads(run.stdout)
    return [
        compile_case(case, arch)
        for arch in architectures
        for case in cases(dtypes)
        if case.dtype != "bf16" or arch >= FIRST_WITH_BF16
    ]


if __name__ == "__main__":
    print(json.dumps(report(tuple(map(int, sys.argv[1].split(","))), tuple(sys.argv[2].split(",")))))
