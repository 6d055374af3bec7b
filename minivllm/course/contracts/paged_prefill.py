"""3.6 `paged_prefill(q, k_cache, v_cache, block_tables, query_start, query_lens, context_lens,
max_query_len, max_context_len)`: chunks over their paged context, causal.

q: [num_tokens, num_heads, head_dim]; request i's new tokens are rows query_start[i] …
query_start[i + 1] − 1, and the last query_lens[i] of its context_lens[i] tokens → like q.
"""

from __future__ import annotations

import torch

from .expect import random_tensor
from .paged_batch import KernelBatch, check, left_alone, scores_far_from_zero
from .rules import Rules

rules = Rules()
NAME = "paged_prefill"


def _run(part, rng, requests, note="", **sizes) -> None:
    batch = KernelBatch(rng, requests, **{"heads": 1, **sizes})
    check(part, NAME, batch, batch.prefill(), note)


@rules.add("One query and no causality to mind: exercise 3.4 for one head.")
def a_single_token_is_a_chunk_of_one(part, rng):
    for context in (1, 6, 18):
        _run(part, rng, [(context, 1)])


@rules.add("Query i may see the keys up to its own position, and no later one.")
def a_whole_prompt_is_causal(part, rng):
    for length in (2, 7, 16):
        _run(part, rng, [(length, length)])


@rules.add("A chunk's first query stands at context_len − query_len: it sees the cached tokens before it.")
def a_chunk_sees_its_cached_context(part, rng):
    for context, n in ((9, 4), (20, 3), (33, 5)):
        _run(part, rng, [(context, n)])


@rules.add(
    "Program (tile, seq, head) owns queries tile · QUERY_TILE … of the chunk; the last tile is not full."
)
def a_chunk_longer_than_a_tile_is_whole(part, rng):
    for context, n in ((17, 17), (40, 20), (34, 33)):
        _run(part, rng, [(context, n)], block_size=8)


@rules.add("Rows of request i begin at query_start[i]; a tile must write no row of the next request.")
def requests_do_not_see_each_other(part, rng):
    _run(part, rng, [(5, 3), (8, 8), (12, 2)])
    _run(part, rng, [(18, 17), (3, 1)])


@rules.add(
    "The grid is made for the longest chunk: a tile that begins behind a shorter one has nothing to do."
)
def short_and_long_chunks_mix(part, rng):
    _run(part, rng, [(4, 1), (20, 18), (2, 2)])


@rules.add("Head `head` reads KV head head // GROUP.")
def grouped_heads_share_a_kv_head(part, rng):
    for heads, kv_heads in ((2, 2), (4, 2), (3, 1)):
        _run(part, rng, [(6, 3)], heads=heads, kv_heads=kv_heads)


@rules.add("Mask what lies behind the context, in keys and values: 0 · NaN is NaN.")
def not_even_nan_gets_through(part, rng):
    for size in (3, 8):
        _run(part, rng, [(5, 2), (10, 4)], block_size=size, width=6, note="NaN in unused slots: ")


@rules.add("Subtract the largest score so far before exp; mask the scores before you look for it.")
def scores_far_from_zero_are_right(part, rng):
    batch = KernelBatch(rng, [(20, 3)], heads=1, dim=16)
    scores_far_from_zero(part, NAME, batch, batch.prefill)


@rules.add("Columns from HEAD_DIM on are padding; scores are divided by √head_dim.")
def any_head_dim_works(part, rng):
    for dim in (5, 20, 32):
        _run(part, rng, [(7, 4)], dim=dim)


@rules.add("Rows of q are q_stride apart, those of out num_heads · head_dim.")
def rows_may_lie_apart(part, rng):
    batch = KernelBatch(rng, [(6, 3), (4, 2)], heads=2)
    wide = random_tensor(rng, 5, 6, 8)
    wide[:, 2:4] = batch.q
    batch.q = wide[:, 2:4]
    check(part, NAME, batch, batch.prefill(), "rows apart: ")


@rules.add("Convert to float32 to compute, and to out.dtype.element_ty to store.")
def the_dtype_is_kept(part, rng):
    for dtype, tolerance in ((torch.float16, 5e-3), (torch.bfloat16, 5e-2)):
        batch = KernelBatch(rng, [(9, 4)]).to(dtype)
        check(part, NAME, batch, batch.prefill(), f"{dtype}: ", tolerance)


@rules.add("Store into out only.")
def the_cache_is_left_alone(part, rng):
    batch = KernelBatch(rng, [(6, 2), (5, 1)], garbage=7.0)
    left_alone(part, NAME, batch, batch.prefill())


@rules.add("Take one request of two tokens and compare query by query.")
def any_ragged_batch_is_right(part, rng):
    for _ in range(3):
        requests = []
        for _ in range(rng.randint(1, 2)):
            context = rng.randint(1, 40)
            requests.append((context, rng.randint(1, min(20, context))))
        heads, kv_heads = rng.choice([(2, 1), (2, 2), (3, 1)])
        _run(part, rng, requests, heads=heads, kv_heads=kv_heads, block_size=rng.choice([2, 5, 16]))
