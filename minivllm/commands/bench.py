"""bench: measure parts of the engine on this machine."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any

HELP = "measure parts of the engine on this machine"
BENCHMARKS = ("scheduler", "kernels", "claims")  # each has a module bench_NAME here


def add_arguments(parser: argparse.ArgumentParser) -> None:
    subparsers = parser.add_subparsers(dest="what", required=True)
    for name in BENCHMARKS:
        command = import_module(f".bench_{name}", __package__)
        subparser = subparsers.add_parser(name, help=command.HELP, description=command.__doc__)
        # After the benchmark's name as well as before it; unsaid here, it does not undo what was said there.
        subparser.add_argument("--json", action="store_true", default=argparse.SUPPRESS)
        command.add_arguments(subparser)
        subparser.set_defaults(run_benchmark=command.run)


def run(args: argparse.Namespace) -> dict[str, Any]:
    return args.run_benchmark(args)
