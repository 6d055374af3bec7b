"""demo: eight questions at once through the engine, with a live bar, and what the engine did."""

from __future__ import annotations

import argparse
import time
from typing import Any

from .common import add_engine_arguments, make_llm, outputs_as_dicts

HELP = "watch the engine answer eight prompts at once"

QUESTIONS = [
    "What is the capital of France?",
    "Why is the sky blue? Answer in two sentences.",
    "Name three primary colours.",
    "Write a haiku about memory.",
    "What does a CPU cache do?",
    "Translate 'good morning' into Spanish.",
    "What is 7 times 8?",
    "Give one tip for learning to program.",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--max-tokens", type=int, default=48, metavar="int")
    add_engine_arguments(parser)


def run(args: argparse.Namespace) -> dict[str, Any]:
    from ..sampling import SamplingParams

    params = SamplingParams(temperature=0, max_tokens=args.max_tokens)
    llm = make_llm(args)
    start = time.perf_counter()
    conversations = [[{"role": "user", "content": question}] for question in QUESTIONS]
    outputs = llm.chat(conversations, params, use_tqdm=not args.json)
    elapsed = time.perf_counter() - start
    num_tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
    stats = llm.stats()
    if not args.json:
        for question, output in zip(QUESTIONS, outputs, strict=True):
            print(f"\n● {question}\n  {output.outputs[0].text.strip()}")
        print(
            f"\n{len(outputs)} answers, {num_tokens} tokens in {elapsed:.1f} s and {stats['num_steps']} "
            f"engine steps: {num_tokens / elapsed:.1f} tokens/s. "
            f"KV blocks free again: {stats['num_free_blocks']} of {stats['num_blocks']}."
        )
    return {"outputs": outputs_as_dicts(outputs), "stats": stats, "elapsed_s": elapsed}
