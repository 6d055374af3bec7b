"""Options that several commands share: which model, how the engine is set, how tokens are sampled."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ..config import DEFAULT_MODEL

# Command-line options that are passed to `LLM` where they are given: name, type.
_ENGINE_OPTIONS: dict[str, type] = {
    "dtype": str,
    "device": str,
    "seed": int,
    "max_model_len": int,
    "block_size": int,
    "num_gpu_blocks_override": int,
    "gpu_memory_utilization": float,
    "max_num_seqs": int,
    "max_num_batched_tokens": int,
    "scheduler": str,
    "attention_backend": str,
    "kv_cache_dtype": str,
}
_SAMPLING_OPTIONS: dict[str, type] = {
    "temperature": float,
    "top_p": float,
    "top_k": int,
    "min_p": float,
    "min_tokens": int,
    "repetition_penalty": float,
    "presence_penalty": float,
    "frequency_penalty": float,
}


def add_model_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        default=DEFAULT_MODEL,
        help=f"{DEFAULT_MODEL} (default), a folder in Hugging Face format, or a Hub name",
    )


def add_engine_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    group = parser.add_argument_group("engine (names as in EngineConfig)")
    for name, kind in _ENGINE_OPTIONS.items():
        group.add_argument(_flag(name), type=kind, default=None, metavar=kind.__name__)


def add_sampling_arguments(parser: argparse.ArgumentParser, max_tokens: int) -> None:
    group = parser.add_argument_group("sampling (names as in SamplingParams)")
    group.add_argument("--max-tokens", type=int, default=max_tokens, metavar="int")
    group.add_argument(
        "--sampling-seed", type=int, default=None, metavar="int", help="SamplingParams(seed=…)"
    )
    group.add_argument(
        "--stop", action="append", default=None, metavar="text", help="may be given several times"
    )
    group.add_argument("--ignore-eos", action="store_true")
    for name, kind in _SAMPLING_OPTIONS.items():
        group.add_argument(_flag(name), type=kind, default=None, metavar=kind.__name__)


def make_llm(args: argparse.Namespace) -> Any:
    from ..llm import LLM

    return LLM(args.model, **_given(args, _ENGINE_OPTIONS))


def make_sampling_params(args: argparse.Namespace) -> Any:
    from ..sampling import SamplingParams

    return SamplingParams(
        max_tokens=args.max_tokens,
        seed=args.sampling_seed,
        stop=args.stop,
        ignore_eos=args.ignore_eos,
        **_given(args, _SAMPLING_OPTIONS),
    )


def outputs_as_dicts(outputs: list) -> list[dict[str, Any]]:
    return [
        {
            "prompt": output.prompt,
            "text": completion.text,
            "token_ids": completion.token_ids,
            "finish_reason": completion.finish_reason,
        }
        for output in outputs
        for completion in output.outputs
    ]


def print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, ensure_ascii=False))


def _given(args: argparse.Namespace, options: dict[str, type]) -> dict[str, Any]:
    return {name: getattr(args, name) for name in options if getattr(args, name) is not None}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
