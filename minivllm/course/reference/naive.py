"""Generation with and without a KV cache, as short as it can be said. The reference of lab 01.

A model is here anything called as `model(token_ids, positions, attend)` that returns the logits
[vocab_size] after the last token; in every layer it calls `attend(layer, q, k, v)` with the new tokens'
queries, keys and values, and gets back what attention makes of them. Where earlier keys and values come
from is up to `attend`: that is the whole difference between the two functions.
"""

from __future__ import annotations

import torch

from ...attention.dense import causal_attention


def attention_one_step(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """One query over its whole context. q: [num_heads, head_dim]; k, v: [context_len, num_kv_heads,
    head_dim] → [num_heads, head_dim]. Head h reads KV head h // (num_heads // num_kv_heads)."""
    num_heads, head_dim = q.shape
    num_kv_heads = k.shape[1]
    grouped = q.reshape(num_kv_heads, num_heads // num_kv_heads, head_dim)
    scores = torch.einsum("ngd,tnd->ngt", grouped, k) * head_dim**-0.5
    return torch.einsum("ngt,tnd->ngd", scores.softmax(-1), v).reshape(num_heads, head_dim)


def generate_recompute(model, prompt: list[int], n: int) -> list[int]:
    """n greedy tokens after the prompt, the whole sequence computed anew for each of them."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + n:
        logits = model(tokens, list(range(len(tokens))), lambda layer, q, k, v: causal_attention(q, k, v))
        tokens.append(int(logits.argmax()))
    return tokens[len(prompt) :]


def generate_cached(model, prompt: list[int], n: int, cache) -> list[int]:
    """n greedy tokens after the prompt; every token is computed once. `cache` is empty, and has the
    `append` and `view` of `ContiguousKVCache`."""

    def attend(layer, q, k, v):
        cache.append(layer, k, v)
        return causal_attention(q, *cache.view(layer))

    output: list[int] = []
    new, start = list(prompt), 0
    while len(output) < n:
        logits = model(new, list(range(start, start + len(new))), attend)
        start += len(new)
        new = [int(logits.argmax())]
        output += new
    return output


def batched_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    """One query for each of a batch of requests whose caches lie in one padded tensor.

    q: [num_seqs, num_heads, head_dim]; k, v: [num_seqs, max_len, num_kv_heads, head_dim], of which
    request i fills the first lengths[i] slots and anything may be in the others; → q's shape."""
    num_seqs, num_heads, head_dim = q.shape
    num_kv_heads = k.shape[2]
    padding = torch.arange(k.shape[1])[None, :] >= torch.tensor(lengths)[:, None]
    grouped = q.reshape(num_seqs, num_kv_heads, num_heads // num_kv_heads, head_dim)
    scores = torch.einsum("sngd,stnd->sngt", grouped, k) * head_dim**-0.5
    weights = scores.masked_fill(padding[:, None, None, :], float("-inf")).softmax(-1)
    v = v.masked_fill(padding[:, :, None, None], 0)  # a weight of 0 does not silence NaN: 0 · NaN is NaN
    return torch.einsum("sngt,stnd->sngd", weights, v).reshape(q.shape)
