"""What an 8-bit KV cache costs in accuracy, on a real model and a real text.

`python -m minivllm.bench.kv_cache_accuracy` runs the text through the model once for each `kv_cache_dtype`,
in fp32 but for the cache, and compares with the unrounded cache: each layer's attention output for the same
queries, keys and values, and the most probable next token after every token of the text, when all layers
read the rounded cache. The text is a chapter of Python's own documentation, which comes with Python.
"""

from __future__ import annotations

import argparse
import json
import sys
from pydoc_data.topics import topics

import torch

from ..attention.base import AttentionMeta
from ..attention.quantized import QuantizedBackend
from ..kernels.cache_formats import head_bytes
from ..model.fetch import DEFAULT_MODEL, resolve
from ..model.loader import load_model
from ..model.tokenizer import Tokenizer

TEXT = topics["exceptions"] + topics["execmodel"]
BLOCK_SIZE = 16


@torch.inference_mode()
def measure(model, token_ids: list[int], kv_cache_dtype: str) -> dict:
    """{"kv_cache_dtype", "head_bytes" (of one head of one token, beside fp16's 2 · head_dim), "num_tokens",
    "max_error", "mean_error" (of attention outputs: largest |Δ| over largest |output| in the worst layer;
    mean |Δ| over mean |output|, the mean of all layers), "same_top_token" (share of positions)}."""
    n = len(token_ids)
    num_blocks = -(-n // BLOCK_SIZE)
    slots = torch.arange(n)
    meta = AttentionMeta(
        torch.tensor([0, n]), torch.tensor([n]), torch.tensor([n]), torch.arange(num_blocks)[None], n, n
    )
    backends = []
    for name in ("auto", kv_cache_dtype):
        backend = QuantizedBackend(model.config, BLOCK_SIZE, model.dtype, model.device, kv_cache_dtype=name)
        backend.allocate(num_blocks)
        backends.append(backend)
    exact, rounded = backends
    errors: list[tuple[float, float]] = []

    def compared(layer, q, k, v):
        outputs = []
        for backend in backends:
            backend.write(layer, k, v, slots)
            outputs.append(backend.attend(layer, q, meta))
        size, difference = outputs[0].abs(), (outputs[1] - outputs[0]).abs()
        errors.append((float(difference.max() / size.max()), float(difference.mean() / size.mean())))
        return outputs[0]

    def only_rounded(layer, q, k, v):
        rounded.write(layer, k, v, slots)
        return rounded.attend(layer, q, meta)

    tokens = torch.tensor(token_ids)
    top = [model.logits(model.hidden(tokens, slots, a)).argmax(-1) for a in (compared, only_rounded)]
    largest, mean = zip(*errors, strict=True)
    return {
        "kv_cache_dtype": kv_cache_dtype,
        "head_bytes": head_bytes(kv_cache_dtype, model.config.head_dim, torch.float16),
        "num_tokens": n,
        "max_error": max(largest),
        "mean_error": sum(mean) / len(mean),
        "same_top_token": float((top[0] == top[1]).float().mean()),
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Compare 8-bit KV caches with an unrounded one.")
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--num-tokens", type=int, default=1024)
    parser.add_argument("--json", action="store_true", help="one JSON object, in place of the table")
    options = parser.parse_args(argv)
    folder = resolve(options.model)
    model = load_model(folder)
    token_ids = Tokenizer(folder).encode(TEXT)[: options.num_tokens]
    rows = [measure(model, token_ids, name) for name in ("fp8", "int8")]
    if options.json:
        print(json.dumps({"model": options.model, "rows": rows}))
        return 0
    print(f"{options.model}, {len(token_ids)} tokens; attention outputs against an unrounded cache")
    for row in rows:
        print(
            f"{row['kv_cache_dtype']:<5} {row['head_bytes']} bytes a head and token   largest error "
            f"{row['max_error']:.3%}   mean error {row['mean_error']:.3%}   same top token "
            f"{row['same_top_token']:.1%}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
