"""`python -m minivllm COMMAND`. Bad input is one line on standard error and exit code 2."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from .commands.common import print_json

COMMANDS = ("fetch", "generate", "chat", "demo", "bench", "grade", "trace")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m minivllm", description="A small LLM inference engine.")
    subparsers = parser.add_subparsers(dest="command", required=True)
    for name in COMMANDS:
        command = import_module(f".commands.{name}", __package__)
        subparser = subparsers.add_parser(name, help=command.HELP, description=command.__doc__)
        subparser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
    args = parser.parse_args(argv)
    try:
        result = args.run(args)
    except ValueError as error:
        print(f"minivllm {args.command}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"minivllm {args.command}: interrupted", file=sys.stderr)
        return 130
    if args.json:
        print_json(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
