"""fetch: bring a model into the local cache, so that everything else works without a network."""

from __future__ import annotations

import argparse
from typing import Any

from .common import add_model_argument

HELP = "get a model into the local cache"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)


def run(args: argparse.Namespace) -> dict[str, Any]:
    from ..model.fetch import fetch

    path = fetch(args.model)
    num_bytes = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    if not args.json:
        print(f"{args.model} is in {path} ({num_bytes / 1024**2:.0f} MiB)")
    return {"model": args.model, "path": str(path), "bytes": num_bytes}
