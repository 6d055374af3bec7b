"""Every kernel in every configuration in use, as the ahead-of-time report compiles them.

The attention kernels in all dtypes, head dims, sizes of a group of query heads and cache formats; the
others at the widths of a small and of a large model. Arguments are typed as a launch types them: tensors
begin at a multiple of 16 bytes and rows have a multiple of 16 elements, so that 16 bytes load at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from random import Random
from typing import Any

import torch
import triton

from .cache_formats import FORMATS, LEAST_SCALE
from .paged_decode import SPLIT
from .rms_norm import num_warps as norm_warps
from .rotary import num_warps as rotary_warps
from .silu_mul import PIECE
from .tiles import decode_tiling, prefill_tiling

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
# bf16 came with sm_80: on sm_75 it is emulated, and the engine takes fp16 there (dtype="auto").
FIRST_WITH_BF16 = 80
HEAD_DIMS = (64, 80, 96, 128, 256)
GROUPS = (1, 3, 8)
# (hidden_size, intermediate_size, num_heads, num_kv_heads) of SmolLM2-135M and of an 8B model
WIDTHS = ((576, 1536, 9, 3), (4096, 14336, 32, 8))
NUM_KV_HEADS = 8
INDEX, WIDE, STORED = "*i64", "*fp32", "*i8"


@dataclass(frozen=True)
class Case:
    """One kernel with the constants that it is compiled for. `types` has the type of each argument that
    is no constant; `features` are what it is a case of, in words."""

    kernel: str
    module: str
    function: str
    dtype: str
    types: dict[str, str]
    constants: dict[str, Any]
    features: dict[str, Any] = field(default_factory=dict)
    options: dict[str, int | None] = field(default_factory=dict)

    @property
    def detail(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.features.items())


def cases(arch: int, dtypes: tuple[str, ...] = tuple(DTYPES)) -> list[Case]:
    """All of them for sm_`arch`: those with bf16 only where there is bf16."""
    found = []
    for dtype in dtypes:
        if dtype != "bf16" or arch >= FIRST_WITH_BF16:
            for widths in WIDTHS:
                found += _elementwise(dtype, *widths)
            for head_dim in HEAD_DIMS:
                found += _of_head_dim(dtype, head_dim)
                for group, cache in product(GROUPS, FORMATS):
                    found += _attention(arch, dtype, head_dim, group, cache, block_size=16)
            for block_size, cache in product((1, 3, 256), FORMATS):
                found += _attention(arch, dtype, max(HEAD_DIMS), max(GROUPS), cache, block_size)
    return found


def selection(arch: int, dtypes: tuple[str, ...] = tuple(DTYPES)) -> list[Case]:
    """A part of `cases` in which each kernel meets each of its dtypes, head dims, groups, formats, block
    sizes and widths, and the largest attention tiles all: what a test can afford to compile."""
    every = cases(arch, dtypes)
    Random(0).shuffle(every)
    seen: set[tuple] = set()
    chosen = []
    for case in every:
        features = {(case.kernel, name, v) for name, v in {"dtype": case.dtype, **case.features}.items()}
        is_largest = case.kernel == "paged_prefill" and case.features.items() >= {
            ("head_dim", max(HEAD_DIMS)), ("group", max(GROUPS)), ("block_size", 16)
        }  # fmt: skip
        if is_largest or features - seen:
            seen |= features
            chosen.append(case)
    return chosen


def _elementwise(dtype: str, hidden: int, inner: int, num_heads: int, num_kv_heads: int) -> Iterator[Case]:
    x, size = f"*{dtype}", {"hidden_size": hidden}
    row = num_kv_heads * 64
    yield Case(
        "store_kv", "store_kv", "store_kv_kernel", dtype,
        {"k": x, "v": x, "k_cache": x, "v_cache": x, "slot_mapping": INDEX, "k_stride": "i32",
         "v_stride": "i32", "cache_stride": "i32"},
        {"ROW": row, "ROW_PAD": triton.next_power_of_2(row)}, size,
    )  # fmt: skip
    pad = triton.next_power_of_2(hidden)
    for has_residual in (False, True):
        yield Case(
            "rms_norm", "rms_norm", "rms_norm_kernel", dtype,
            {"x": x, "residual": x, "weight": x, "out": x, "added": x, "x_stride": "i32", "eps": "fp32"},
            {"SIZE": hidden, "PAD": pad, "HAS_RESIDUAL": has_residual},
            {**size, "residual": has_residual}, {"num_warps": norm_warps(pad)},
        )  # fmt: skip
    yield Case(
        "silu_mul", "silu_mul", "silu_mul_kernel", dtype, {"gate_up": x, "out": x},
        {"SIZE": inner, "PIECE": PIECE}, size,
    )  # fmt: skip


def _of_head_dim(dtype: str, head_dim: int) -> Iterator[Case]:
    x, pad = f"*{dtype}", triton.next_power_of_2(head_dim)
    for _, _, num_heads, num_kv_heads in WIDTHS:
        features = {"head_dim": head_dim, "num_heads": num_heads}
        rotated, half_pad = num_heads + num_kv_heads, pad // 2
        heads_pad = triton.next_power_of_2(rotated)
        yield Case(
            "rotary", "rotary", "rotary_kernel", dtype,
            {"x": x, "cos": x, "sin": x, "out": x, "x_stride": "i32"},
            {"NUM_HEADS": rotated, "HALF": head_dim // 2, "HEADS_PAD": heads_pad, "PAD": half_pad},
            features, {"num_warps": rotary_warps(heads_pad * half_pad)},
        )  # fmt: skip
        yield Case(
            "combine_splits", "paged_decode", "combine_splits_kernel", dtype,
            {"partial": WIDE, "lse": WIDE, "context_lens": INDEX, "out": x, "num_splits": "i32"},
            {"NUM_HEADS": num_heads, "HEAD_DIM": head_dim, "DIM_PAD": pad, "SPLIT": SPLIT}, features,
        )  # fmt: skip
        for cache in ("fp8", "int8"):
            yield Case(
                "store_quantized", "quantized", "store_quantized_kernel", dtype,
                {"k": x, "v": x, "k_cache": STORED, "v_cache": STORED, "slot_mapping": INDEX,
                 "k_scale": WIDE, "v_scale": WIDE, "k_stride": "i32", "v_stride": "i32"},
                {"NUM_HEADS": num_kv_heads, "HEAD_DIM": head_dim,
                 "HEADS_PAD": triton.next_power_of_2(num_kv_heads), "DIM_PAD": pad,
                 "LARGEST": FORMATS[cache].largest, "LEAST_SCALE": LEAST_SCALE, "FORMAT": cache},
                {**features, "cache": cache},
            )  # fmt: skip


def _attention(
    arch: int, dtype: str, head_dim: int, group: int, cache: str, block_size: int
) -> Iterator[Case]:
    x, pad, form = f"*{dtype}", triton.next_power_of_2(head_dim), FORMATS[cache]
    stored = STORED if cache else x
    types = {"q": x, "k_cache": stored, "v_cache": stored, "block_tables": INDEX, "context_lens": INDEX,
             "scale": "fp32", "q_stride": "i32", "table_stride": "i32"}  # fmt: skip
    constants = {"BLOCK_SIZE": block_size, "NUM_KV_HEADS": NUM_KV_HEADS, "GROUP": group, "HEAD_DIM": head_dim,
                 "DIM_PAD": pad, "FORMAT": cache, "LARGEST": form.largest, "UNIT": form.unit}  # fmt: skip
    if cache:
        types |= {"k_scale": WIDE, "v_scale": WIDE}
    else:
        constants |= {"k_scale": None, "v_scale": None}
    features = {"head_dim": head_dim, "group": group, "cache": cache or dtype, "block_size": block_size}
    tiling = decode_tiling(DTYPES[dtype], pad, group, bool(cache), arch)
    tile = {"ROWS": tiling.rows, "TILE": tiling.tile, "DOT": tiling.dot}
    for out in dict.fromkeys((dtype, "fp32")):  # a split of several leaves fp32
        yield Case(
            "paged_decode", "paged_decode", "paged_decode_kernel", dtype,
            {**types, "out": f"*{out}", "lse": WIDE, "num_splits": "i32"},
            {**constants, **tile, "SPLIT": SPLIT}, {**features, "out": out}, tiling.options,
        )  # fmt: skip
    tiling = prefill_tiling(DTYPES[dtype], pad, bool(cache), arch)
    yield Case(
        "paged_prefill", "paged_prefill", "paged_prefill_kernel", dtype,
        {**types, "query_start": INDEX, "query_lens": INDEX, "out": x, "out_stride": "i32"},
        {**constants, "ROWS": tiling.rows, "TILE": tiling.tile, "DOT": tiling.dot}, features,
        tiling.options,
    )  # fmt: skip
