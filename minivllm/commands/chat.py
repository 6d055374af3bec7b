"""chat: a conversation in the terminal, or one message with --message."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from .common import (
    add_engine_arguments,
    add_sampling_arguments,
    make_llm,
    make_sampling_params,
    outputs_as_dicts,
)

HELP = "talk to the model"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--message", help="say this, print the answer and end; without it, read lines")
    parser.add_argument("--system", help="system message")
    add_engine_arguments(parser)
    add_sampling_arguments(parser, max_tokens=256)


def run(args: argparse.Namespace) -> dict[str, Any]:
    params = make_sampling_params(args)
    if args.json and args.message is None:
        raise ValueError("--json prints one object, so it needs --message; without --json, lines are read")
    llm = make_llm(args)
    messages = [{"role": "system", "content": args.system}] if args.system else []
    answers = []
    for text in _lines(args.message):
        messages.append({"role": "user", "content": text})
        output = llm.chat(messages, params, use_tqdm=False)[0]
        answers.append(output)
        messages.append({"role": "assistant", "content": output.outputs[0].text})
        if not args.json:
            print(output.outputs[0].text.strip(), flush=True)
    return {"outputs": outputs_as_dicts(answers), "stats": llm.stats()}


def _lines(message: str | None):
    if message is not None:
        yield message
        return
    print("Write a line and press Enter; an empty line or Ctrl-D ends.", file=sys.stderr)
    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline().strip()
        if not line:
            return
        yield line
