"""bench scheduler: schedule() and update() on this machine, without a model."""

from __future__ import annotations

import argparse
from typing import Any

HELP = "schedule() + update() without a model"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, default=300, metavar="int", help="steps measured per row")
    parser.add_argument("--prefix-cache", choices=["hash", "radix"], default="hash")


def run(args: argparse.Namespace) -> dict[str, Any]:
    from ..bench import scheduler

    if args.steps < 2:
        raise ValueError(f"steps is {args.steps}; at least 2 are needed for a mean and a P99")
    result = scheduler.run(args.steps, args.prefix_cache, progress=not args.json)
    if not args.json:
        print(scheduler.table(result))
    return result
