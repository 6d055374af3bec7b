"""bench kernels: registers and spills of each kernel per GPU architecture, compiled here without a GPU; and
with one, achieved GB/s and TFLOP/s against the measured roof."""

from __future__ import annotations

import argparse
from typing import Any

from ..kernels import KERNELS

HELP = "the Triton kernels: compiled for GPUs that are not here, measured on the one that is"
SHORT = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kernel", choices=list(KERNELS), nargs="+", help="these only")
    parser.add_argument("--dtype", choices=list(SHORT), help="these numbers only")
    parser.add_argument(
        "--arch", type=int, nargs="+", metavar="75", help="compile for these only (75 is sm_75)"
    )
    parser.add_argument("--all", action="store_true", help="compile every configuration in use: minutes")
    parser.add_argument("--measured-only", action="store_true", help="compile nothing ahead of time")


def run(args: argparse.Namespace) -> dict[str, Any]:
    from ..bench import ahead_of_time, kernels

    result: dict[str, Any] = {"ahead_of_time": []}
    if not args.measured_only:
        dtypes = (SHORT[args.dtype],) if args.dtype else tuple(SHORT.values())
        result["ahead_of_time"] = ahead_of_time.rows(args.arch, dtypes, args.kernel, args.all)
    result |= kernels.measure_here(args.kernel, args.dtype)
    if not args.json:
        if result["ahead_of_time"]:
            print(ahead_of_time.table(result["ahead_of_time"]) + "\n")
        print(kernels.measured_table(result))
    return result
