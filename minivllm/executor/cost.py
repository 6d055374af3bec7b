"""What a forward costs before it is run: FLOPs, bytes, and from them the least time it can take.

A forward reads every weight once, whoever is in the batch, and computes two FLOPs for each weight and
token. Attention is each request's own: keys and values of its whole context are read, and a query meets
every key it may see. That difference is what makes decode another program than prefill. Counted is what
grows: matrix products, weights, keys and values. Not counted are norms, rotary, softmax and activations.

A model is anything with the sizes of a `ModelConfig`; dtype_bytes may be a fraction, 0.5 for 4 bits.
No torch here: these numbers size a deployment, and drive a simulated one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..model.config import ModelConfig
from .hardware import Hardware


@dataclass(frozen=True)
class Cost:
    """FLOPs, and bytes moved to or from the main memory; the roofline (Williams et al., 2009) of both.
    Costs of forwards that run one after the other do not add up here: add their seconds."""

    flops: float
    num_bytes: float

    def arithmetic_intensity(self) -> float:
        """FLOPs a byte."""
        return self.flops / self.num_bytes

    def is_compute_bound(self, gpu: Hardware) -> bool:
        """Whether computing takes at least as long as moving the bytes."""
        return self.flops / gpu.flops >= self.num_bytes / gpu.bandwidth

    def seconds(self, gpu: Hardware) -> float:
        """The least time: computing and moving overlap perfectly, and the longer one is left."""
        return max(self.flops / gpu.flops, self.num_bytes / gpu.bandwidth)


def forward_cost(
    config: ModelConfig,
    chunks: Iterable[tuple[int, int]],
    weight_dtype_bytes: float = 2,
    kv_dtype_bytes: float = 2,
) -> Cost:
    """Cost of one step over any mixture of prompt chunks and decodes, each (num_tokens, context_len):
    new tokens, and all tokens whose keys the last of them sees, itself included.

    The output layer is counted for one row of each chunk, as if each of them sampled. `ValueError` for
    a chunk with no token, or with more of them than its context has."""
    tokens = rows = pairs = cached = 0
    for num_tokens, context_len in chunks:
        pairs += attention_pairs(num_tokens, context_len)
        tokens += num_tokens
        cached += num_tokens + context_len  # written, and read
        rows += 1
    return _cost(config, tokens, rows, pairs, cached, weight_dtype_bytes, kv_dtype_bytes)


def flops_and_bytes(
    config: ModelConfig, num_tokens: int, context_len: int, dtype_bytes: float, batch: int = 1
) -> tuple[float, float]:
    """`forward_cost` for `batch` requests that are all alike, as a pair. Lab 00 builds it."""
    pairs = batch * attention_pairs(num_tokens, context_len)
    cached = batch * (num_tokens + context_len)
    cost = _cost(config, batch * num_tokens, batch, pairs, cached, dtype_bytes, dtype_bytes)
    return cost.flops, cost.num_bytes


def _cost(
    config, tokens: int, rows: int, pairs: int, cached: int, weight_dtype_bytes, kv_dtype_bytes
) -> Cost:
    layers, head = matrix_weights(config)
    attention = 4 * config.num_layers * config.num_heads * config.head_dim * pairs
    flops = 2 * layers * tokens + 2 * head * rows + attention
    num_bytes = (layers + head) * weight_dtype_bytes + cached * kv_bytes_per_token(config, kv_dtype_bytes)
    return Cost(flops, num_bytes)


def matrix_weights(config: ModelConfig) -> tuple[int, int]:
    """Weights that tokens are multiplied with: (those of all layers, those of the output layer)."""
    hidden, q_size = config.hidden_size, config.num_heads * config.head_dim
    attention = hidden * (q_size + 2 * config.num_kv_heads * config.head_dim) + q_size * hidden
    mlp = 3 * hidden * config.intermediate_size
    return config.num_layers * (attention + mlp), config.vocab_size * hidden


def attention_pairs(num_tokens: int, context_len: int) -> int:
    """Causal pairs of a query and a key, for the last num_tokens of context_len tokens."""
    if not 1 <= num_tokens <= context_len:
        raise ValueError(
            f"num_tokens is {num_tokens}, context_len is {context_len}; "
            "new tokens are at least 1 and count in the context"
        )
    return num_tokens * (context_len - num_tokens) + num_tokens * (num_tokens + 1) // 2


def kv_bytes_per_token(config: ModelConfig, dtype_bytes: float) -> float:
    """Bytes of keys and values that one token leaves in all layers."""
    return 2 * config.num_layers * config.num_kv_heads * config.head_dim * dtype_bytes


def max_concurrent_requests(
    gpu_bytes: float, weight_bytes: float, config: ModelConfig, seq_len: int, dtype_bytes: float = 2
) -> int:
    """Requests of seq_len tokens whose keys and values fit beside the weights, all at full length;
    0 if the weights alone do not fit. No byte is set aside for activations: subtract that yourself."""
    left = gpu_bytes - weight_bytes
    return max(0, int(left // (seq_len * kv_bytes_per_token(config, dtype_bytes))))


def ttft_and_itl_floor(
    config: ModelConfig, gpu: Hardware, prompt_len: int, batch: int
) -> tuple[float, float]:
    """Seconds below which no engine gets, with 2-byte numbers: (time to first token of one prompt on an
    idle machine, inter-token latency when `batch` requests of that prompt length begin to decode)."""
    prefill = forward_cost(config, [(prompt_len, prompt_len)])
    decode = forward_cost(config, [(1, prompt_len + 1)] * batch)
    return prefill.seconds(gpu), decode.seconds(gpu)
