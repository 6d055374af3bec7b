"""Other implementations of attention, on the same numbers: torch's always, the others where installed.

torch's scaled_dot_product_attention knows no block table, so it gets keys and values laid out side by side:
it reads the same bytes without looking anything up. FlashAttention (Dao et al., 2022) pages by 256 tokens
at least, FlashInfer (Ye et al., 2024) by any number. Each is set up once; only its call is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import util

import torch
import torch.nn.functional as F

FLASH_PAGE = 256


def attention(q, k_cache, v_cache, tables, num_tokens: int, context: int) -> dict[str, Callable]:
    """{name: function of nothing → like q}, for requests that all have `num_tokens` new tokens and a context
    of `context`. q: [num_seqs · num_tokens, num_heads, head_dim]; caches: [num_blocks, block_size,
    num_kv_heads, head_dim]; tables: [num_seqs, blocks of a request]."""
    num_seqs = len(tables)
    queries = q.view(num_seqs, num_tokens, *q.shape[1:])
    k, v = (cache[tables].flatten(1, 2)[:, :context] for cache in (k_cache, v_cache))
    peers = {"torch SDPA": _sdpa(queries, k, v)}
    if util.find_spec("flash_attn"):
        peers["FlashAttention"] = _flash_attention(queries, k, v)
    if util.find_spec("flashinfer") and num_tokens == 1:
        peers["FlashInfer"] = _flashinfer(q, k_cache, v_cache, tables, context)
    return peers


def _sdpa(queries, k, v) -> Callable:
    num_seqs, num_tokens, num_heads, head_dim = queries.shape
    context, num_kv_heads = k.shape[1:3]
    keys, values = (x.transpose(1, 2).contiguous() for x in (k, v))
    if num_tokens == 1:  # the heads of a group are rows of one product, as in our kernel
        rows = queries.view(num_seqs, num_kv_heads, num_heads // num_kv_heads, head_dim)
        return lambda: F.scaled_dot_product_attention(rows, keys, values).view(-1, num_heads, head_dim)
    columns = queries.transpose(1, 2)
    mask = None
    if num_tokens < context:
        mask = torch.ones(num_tokens, context, dtype=torch.bool, device=k.device).tril(context - num_tokens)

    def run():
        out = F.scaled_dot_product_attention(
            columns, keys, values, attn_mask=mask, is_causal=mask is None, enable_gqa=True
        )
        return out.transpose(1, 2).reshape(-1, num_heads, head_dim)

    return run


def _flash_attention(queries, k, v) -> Callable:
    from flash_attn import flash_attn_with_kvcache

    num_seqs, context = k.shape[:2]
    pages = -(-context // FLASH_PAGE)
    tables = torch.randperm(num_seqs * pages, dtype=torch.int32, device=k.device).view(num_seqs, pages)
    caches = []
    for x in (k, v):
        padded = F.pad(x, (0, 0, 0, 0, 0, pages * FLASH_PAGE - context))
        cache = torch.empty(num_seqs * pages, FLASH_PAGE, *x.shape[2:], dtype=x.dtype, device=x.device)
        cache[tables.flatten().long()] = padded.reshape(num_seqs * pages, FLASH_PAGE, *x.shape[2:])
        caches.append(cache)
    contexts = torch.full((num_seqs,), context, dtype=torch.int32, device=k.device)
    return lambda: flash_attn_with_kvcache(
        queries, *caches, cache_seqlens=contexts, block_table=tables, causal=True
    ).flatten(0, 1)


def _flashinfer(q, k_cache, v_cache, tables, context: int) -> Callable:
    import flashinfer

    num_seqs, per_seq = tables.shape
    block_size, num_kv_heads, head_dim = k_cache.shape[1:]
    workspace = torch.empty(128 << 20, dtype=torch.uint8, device=q.device)
    decode = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD")
    starts = torch.arange(num_seqs + 1, dtype=torch.int32, device=q.device) * per_seq
    last = torch.full((num_seqs,), context - (per_seq - 1) * block_size, dtype=torch.int32, device=q.device)
    decode.plan(
        starts, tables.flatten().int(), last, q.shape[1], num_kv_heads, head_dim, block_size,
        q_data_type=q.dtype, kv_data_type=k_cache.dtype,
    )  # fmt: skip
    return lambda: decode.run(q, (k_cache, v_cache))
