"""Causal attention of new tokens over one request's whole context: the formula, in one place.

The queries are the last tokens of the context: query i of n may see all keys but the last n − 1 − i.
Grouped-query attention (Ainslie et al., 2023): query head h reads KV head h // (num_heads /
num_kv_heads), so the heads of a group are folded together instead of repeating keys and values.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F


def causal_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """q: [num_queries, num_heads, head_dim]; k, v: [context_len, num_kv_heads, head_dim], the
    queries' own keys and values last → [num_queries, num_heads, head_dim]."""
    num_queries, num_heads, head_dim = q.shape
    context_len, num_kv_heads, _ = k.shape
    k, v = k.transpose(0, 1), v.transpose(0, 1)
    if num_queries == 1:
        grouped = q.view(num_kv_heads, num_heads // num_kv_heads, head_dim)
        return F.scaled_dot_product_attention(grouped[None], k[None], v[None])[0].reshape(q.shape)
    if num_queries == context_len:
        mask, causal = None, True
    else:
        mask, causal = causal_mask(num_queries, context_len, q.device), False
    out = F.scaled_dot_product_attention(
        q.transpose(0, 1)[None], k[None], v[None], attn_mask=mask, is_causal=causal, enable_gqa=True
    )
    return out[0].transpose(0, 1)


def causal_mask(num_queries: int, context_len: int, device: torch.device) -> torch.Tensor:
    """bool [num_queries, context_len], True where the query may look."""
    ones = torch.ones(num_queries, context_len, dtype=torch.bool, device=device)
    return ones.tril(context_len - num_queries)
