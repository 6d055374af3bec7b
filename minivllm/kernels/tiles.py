"""How much one program of an attention kernel takes at a time: as much as registers hold, and no more.

A tile of context is in registers at once, its keys and then its values, beside the rows of queries and the
running result. A larger tile has more bytes on their way from memory and fewer rounds; one too large makes
the compiler spill registers to memory, which costs more than it brings. `python -m
minivllm.kernels.ahead_of_time` is the judge of that: with these constants nothing spills.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from . import interpreting

# Triton compiles the products of older GPUs, and those of fp32 on all, to scalar multiplications.
FIRST_WITH_TENSOR_CORES = 80
# A product on tensor cores has at least 16 rows; smaller groups of query heads are padded to it.
LEAST_ROWS = 16


@dataclass(frozen=True)
class Tiling:
    """rows: queries of a program; tile: tokens of context in a round; dot: type of the factors of products;
    num_stages: rounds under way at once, where a GPU can copy behind the program's back; maxnreg: registers
    a thread may have. Without the last, the assembler may spill a few bytes to fit more programs on a GPU."""

    rows: int
    tile: int
    dot: tl.dtype
    num_warps: int
    num_stages: int = 3
    maxnreg: int | None = None

    @property
    def options(self) -> dict[str, int]:
        """What triton takes at a launch beside the kernel's own arguments."""
        return {"num_warps": self.num_warps, "num_stages": self.num_stages, "maxnreg": self.maxnreg}


def decode_tiling(dtype: torch.dtype, dim_pad: int, group: int, is_8_bit: bool, arch: int) -> Tiling:
    """dtype: of the queries; dim_pad: head_dim, rounded up to a power of two; group: query heads of a KV
    head; is_8_bit: whether the cache is; arch: 80 for sm_80."""
    rows, is_wide = triton.next_power_of_2(group), dim_pad > 128
    if not has_tensor_cores(dtype, arch):
        return _scalar(rows, is_8_bit, num_warps=16 if is_wide else 4)
    rows = max(LEAST_ROWS, rows)
    # Numbers of 8 bits take registers twice, as they are stored and as they are multiplied.
    if is_8_bit:
        return Tiling(rows, 4096 // max(dim_pad, 64), factor(dtype), num_warps=8)
    return Tiling(rows, 32 if is_wide else 64, factor(dtype), num_warps=4)


def prefill_tiling(dtype: torch.dtype, dim_pad: int, is_8_bit: bool, arch: int) -> Tiling:
    """As `decode_tiling`, for tiles of queries: the more of them, the less often a key is read."""
    if not has_tensor_cores(dtype, arch):
        return _scalar(16, is_8_bit, num_warps=16 if dim_pad > 128 else 8)
    is_wide = dim_pad > 128
    num_warps = 8 if is_wide or is_8_bit else 4
    rows = 32 if is_wide and is_8_bit else 64
    return Tiling(rows, 32, factor(dtype), num_warps, maxnreg=_most_registers(num_warps))


def _scalar(rows: int, is_8_bit: bool, num_warps: int) -> Tiling:
    # 8-bit rounds under way at once, widened to fp32 one by one, are what spills soonest.
    num_stages = 1 if is_8_bit else 3
    return Tiling(rows, 16, tl.float32, num_warps, num_stages, maxnreg=_most_registers(num_warps))


def _most_registers(num_warps: int) -> int:
    """What a thread can have at all: 255, and a multiprocessor has 65,536 for the 32 threads of each warp."""
    return min(255, 65536 // (32 * num_warps))


def has_tensor_cores(dtype: torch.dtype, arch: int) -> bool:
    return dtype != torch.float32 and arch >= FIRST_WITH_TENSOR_CORES


def factor(dtype: torch.dtype) -> tl.dtype:
    """Type of the factors on tensor cores: that of the tensors. The interpreter multiplies the bit patterns
    of bf16 as if they were numbers, so there they are widened first."""
    if dtype == torch.bfloat16:
        return tl.float32 if interpreting() else tl.bfloat16
    return tl.float16


def architecture(device: torch.device) -> int:
    """90 for sm_90. In the interpreter, as on GPUs with tensor cores."""
    if device.type != "cuda":
        return FIRST_WITH_TENSOR_CORES
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor
