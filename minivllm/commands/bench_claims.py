"""bench claims: run the claims of the course on this machine, and hold each against theory."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from .common import add_model_argument

HELP = "the claims C1 to C7, measured against what theory expects"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", nargs="*", metavar="C1 … C7", help="which claims; all if none is named")
    parser.add_argument(
        "--repetitions", type=int, default=3, metavar="int", help="how often each variant is run (3)"
    )
    add_model_argument(parser)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """With `--json` verdicts are in the output; without, a claim that fails makes the exit code 1."""
    from ..bench import claims
    from ..llm import LLM

    make_llm = partial(LLM, args.model, device="cpu", dtype="float32", skip_tokenizer_init=True)
    result = claims.run(make_llm, [name.upper() for name in args.ids], args.repetitions)
    if not args.json:
        print(claims.table(result["claims"]))
        if any(claim["verdict"] == "fail" for claim in result["claims"]):
            raise SystemExit(1)
    return result
