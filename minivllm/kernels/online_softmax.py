"""One tile of a paged context: find its keys, score them, and fold its values into the running result.

It is the step that decode and prefill share. The softmax is computed online: `largest` is the largest score
so far, `total` the sum of exp(score − largest), `acc` the weighted values; when a larger score comes, both
sums shrink by exp(old − new). A query row sees the keys up to its own position.
(Online softmax: Milakov and Gimelshein, 2018. FlashAttention: Dao et al., 2022.)
"""

from __future__ import annotations

import triton
import triton.language as tl

from .quantized import widen


@triton.jit
def attend_tile(
    queries, position, begin, end, acc, largest, total, table, k_cache, v_cache, k_scale, v_scale, kv_head,
    scale, BLOCK_SIZE: tl.constexpr, NUM_KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr,
    DIM_PAD: tl.constexpr, TILE: tl.constexpr, DOT: tl.constexpr, FORMAT: tl.constexpr,
    LARGEST: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """queries: [rows, DIM_PAD]; position: [rows]; keys begin … min(begin + TILE, end) of the context whose
    block table begins at `table` → (acc, largest, total)."""
    column = tl.arange(0, DIM_PAD)
    key = begin + tl.arange(0, TILE)
    is_key = key < end
    block = tl.load(table + key // BLOCK_SIZE, mask=is_key, other=0).to(tl.int64)
    head = (block * BLOCK_SIZE + key % BLOCK_SIZE) * NUM_KV_HEADS + kv_head
    at = head[:, None] * HEAD_DIM + column[None, :]
    is_loaded = is_key[:, None] & (column < HEAD_DIM)[None, :]
    keys = widen(tl.load(k_cache + at, mask=is_loaded, other=0), DOT, FORMAT)
    scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * scale
    if FORMAT != "":
        scores *= (tl.load(k_scale + head, mask=is_key, other=0.0) * UNIT)[None, :]
    is_visible = is_key[None, :] & (key[None, :] <= position[:, None])
    scores = tl.where(is_visible, scores, float("-inf"))
    new_largest = tl.maximum(largest, tl.max(scores, axis=1))
    weights = tl.exp(scores - new_largest[:, None])
    shrink = tl.exp(largest - new_largest)
    total = total * shrink + tl.sum(weights, axis=1)
    values = widen(tl.load(v_cache + at, mask=is_loaded, other=0), DOT, FORMAT)
    if FORMAT != "":
        # Times the largest number of the format, taken back at the end: weight · scale alone may be too
        # small for fp16.
        weights *= (tl.load(v_scale + head, mask=is_key, other=0.0) * LARGEST)[None, :]
    acc = acc * shrink[:, None] + tl.dot(weights.to(DOT), values, input_precision="ieee")
    return acc, new_largest, total
