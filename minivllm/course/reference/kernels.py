"""What lab 03 needs in torch alone: the combination of two partial softmaxes, and a stand-in for each
kernel where there is no triton.

A partial result (m, l, acc) covers some of the keys: m is the largest score, l the sum of exp(score − m),
acc the sum of exp(score − m) · value. Whatever is split can be put together again, so attention may
be computed in any pieces, in any order. (Online softmax: Milakov and Gimelshein, 2018.)
"""

from __future__ import annotations

import torch

from ...attention.paged import paged_attention

Partial = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def combine_partials(a: Partial, b: Partial) -> Partial:
    """(m, l, acc) of all keys from those of two parts of them. m, l: any shape; acc: that and one more
    dimension. A part without keys is (−inf, 0, 0)."""
    (m_a, l_a, acc_a), (m_b, l_b, acc_b) = a, b
    m = torch.maximum(m_a, m_b)
    base = m.masked_fill(m == float("-inf"), 0)  # −inf − −inf would be NaN
    scale_a, scale_b = (m_a - base).exp(), (m_b - base).exp()
    acc = acc_a * scale_a[..., None] + acc_b * scale_b[..., None]
    return m, l_a * scale_a + l_b * scale_b, acc


def store_kv(k, v, k_cache, v_cache, slot_mapping) -> None:
    """Like `kernels.store_kv.store_kv`."""
    k_cache.flatten(0, 1).index_copy_(0, slot_mapping, k)
    v_cache.flatten(0, 1).index_copy_(0, slot_mapping, v)


def rms_norm(x, weight, eps, residual=None):
    """Like `kernels.rms_norm.rms_norm`."""
    added = x if residual is None else x + residual
    scale = torch.rsqrt(added.float().square().mean(-1, keepdim=True) + eps)
    return (added.float() * scale).to(x.dtype) * weight, added


def paged_decode(q, k_cache, v_cache, block_tables, context_lens, max_context_len, split=None):
    """Like `kernels.paged_decode.paged_decode`."""
    return paged_attention(q, k_cache, v_cache, block_tables, context_lens, torch.ones_like(context_lens))


def paged_prefill(
    q, k_cache, v_cache, block_tables, query_start, query_lens, context_lens, max_query_len, max_context_len
):
    """Like `kernels.paged_prefill.paged_prefill`."""
    return paged_attention(q, k_cache, v_cache, block_tables, context_lens, query_lens)
