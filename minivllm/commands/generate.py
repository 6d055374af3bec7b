"""generate: answer one or several prompts. A model with a chat template gets each prompt as a user's
message, since an instruction-tuned model has little to say to a bare text; --raw continues the text
as it stands."""

from __future__ import annotations

import argparse
from typing import Any

from .common import (
    add_engine_arguments,
    add_sampling_arguments,
    make_llm,
    make_sampling_params,
    outputs_as_dicts,
)

HELP = "answer one or several prompts"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prompt", action="append", required=True, help="may be given several times")
    parser.add_argument(
        "--raw", action="store_true", help="continue the text itself, without the chat template"
    )
    add_engine_arguments(parser)
    add_sampling_arguments(parser, max_tokens=64)


def run(args: argparse.Namespace) -> dict[str, Any]:
    params = make_sampling_params(args)
    llm = make_llm(args)
    for prompt in args.prompt:
        if not prompt:
            raise ValueError("the prompt is empty; give it at least 1 character")
    if args.raw or not llm.tokenizer.has_chat_template:
        outputs = llm.generate(args.prompt, params, use_tqdm=not args.json)
    else:
        chats = [[{"role": "user", "content": prompt}] for prompt in args.prompt]
        outputs = llm.chat(chats, params, use_tqdm=not args.json)
    if not args.json:
        for prompt, output in zip(args.prompt, outputs, strict=True):
            print(f"{prompt}\n→ {output.outputs[0].text.strip()}\n")
    results = outputs_as_dicts(outputs)
    for prompt, result in zip(args.prompt, results, strict=True):
        result["prompt"] = prompt
    return {"outputs": results, "stats": llm.stats()}
