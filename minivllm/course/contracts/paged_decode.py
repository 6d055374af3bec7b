"""3.4 `paged_decode(q, k_cache, v_cache, block_tables, context_lens, max_context_len)`: one query a request.

q: [num_seqs, num_heads, head_dim], each request's heads in one piece; k_cache, v_cache: [num_blocks,
block_size, num_kv_heads, head_dim]; block_tables: [num_seqs, max_blocks], padded with 0; no context is longer
than max_context_len → like q.
"""

from __future__ import annotations

import torch

from .expect import close, random_tensor
from .paged_batch import KernelBatch, call, check, expected, left_alone, scores_far_from_zero
from .rules import Rules

rules = Rules()
NAME = "paged_decode"


def _run(part, rng, contexts, note="", **sizes) -> None:
    batch = KernelBatch(rng, [(context, 1) for context in contexts], **sizes)
    check(part, NAME, batch, batch.decode(), note)


@rules.add("One tile: load 16 slots' keys, scores = queries · keys, softmax over them, weights · values.")
def one_head_over_sixteen_tokens(part, rng):
    _run(part, rng, [16], heads=1, block_size=16, dim=16)


@rules.add("Positions from context_len on hold anything. Mask loads, and give them −inf for a score.")
def a_context_may_end_inside_a_block(part, rng):
    for context in (1, 5, 11):
        _run(part, rng, [context], heads=1, dim=16)


@rules.add("Token p is in slot table[p // BLOCK_SIZE] · BLOCK_SIZE + p % BLOCK_SIZE.")
def blocks_are_found_through_the_table(part, rng):
    for size in (1, 3, 8):
        _run(part, rng, [14], heads=1, dim=16, block_size=size)


@rules.add("The second tile brings a new m: shrink total (l) and acc by exp(m − new m) before you add.")
def a_context_longer_than_a_tile_is_whole(part, rng):
    for context in (17, 32, 45):
        batch = KernelBatch(rng, [(context, 1)], heads=1, dim=16, block_size=16)
        last = batch.block_tables[0, (context - 1) // 16], (context - 1) % 16
        batch.k_cache[last] = batch.q[0]  # the last key has the largest score
        want = expected(batch)
        close(call(NAME, batch), part(*batch.decode()), want)


@rules.add("Subtract the largest score so far before exp; mask the scores before you look for it.")
def scores_far_from_zero_are_right(part, rng):
    batch = KernelBatch(rng, [(20, 1)], heads=1, dim=16)
    scores_far_from_zero(part, NAME, batch, batch.decode)


@rules.add("Scores are divided by √head_dim; the wrapper passes scale.")
def scores_are_scaled(part, rng):
    for dim in (4, 32):
        _run(part, rng, [9], heads=1, dim=dim)


@rules.add("tl.arange needs DIM_PAD columns. Those from HEAD_DIM on are masked, in q, keys, values and out.")
def any_head_dim_works(part, rng):
    for dim in (20, 5):
        _run(part, rng, [7], heads=2, kv_heads=2, dim=dim)


@rules.add("Program (seq, kv_head) reads KV head kv_head and writes its query heads, GROUP of them.")
def kv_heads_do_not_mix(part, rng):
    _run(part, rng, [6], heads=2, kv_heads=2)
    _run(part, rng, [19], heads=3, kv_heads=3)


@rules.add(
    "Query heads kv_head · GROUP … kv_head · GROUP + GROUP − 1 share a KV head; rows behind are padding."
)
def a_group_of_query_heads_shares_a_kv_head(part, rng):
    for heads, kv_heads in ((2, 1), (6, 2), (5, 1), (20, 1)):
        _run(part, rng, [6], heads=heads, kv_heads=kv_heads)


@rules.add("Each request has its own row of q, of the table, and its own context_len.")
def requests_do_not_see_each_other(part, rng):
    _run(part, rng, [5, 18, 1])
    _run(part, rng, [33, 2], heads=2, kv_heads=2)


@rules.add("A token that is not there must not be loaded: 0 · NaN is NaN. Mask the values as well.")
def not_even_nan_gets_through(part, rng):
    for context in (3, 18):
        _run(part, rng, [context, 1], block_size=8, width=6, note="NaN in unused slots: ")


@rules.add("Rows of q are q_stride apart; the rows of the table, table_stride.")
def rows_may_lie_apart(part, rng):
    batch = KernelBatch(rng, [(6, 1), (9, 1)], heads=2, kv_heads=2)
    wide = random_tensor(rng, 2, 6, 8)
    wide[:, 1:3] = batch.q
    batch.q = wide[:, 1:3]
    tables = torch.zeros(2, 9, dtype=torch.int64)
    tables[:, : batch.block_tables.shape[1]] = batch.block_tables
    batch.block_tables = tables[:, : batch.block_tables.shape[1]]
    check(part, NAME, batch, batch.decode(), "rows apart: ")


@rules.add("max_context_len bounds the loop and no more; the length of each request is context_lens[seq].")
def max_context_len_may_be_generous(part, rng):
    batch = KernelBatch(rng, [(6, 1), (3, 1)])
    arguments = [*batch.decode()[:-1], 40]
    check(part, NAME, batch, arguments, "max_context_len 40: ")


@rules.add("Convert to float32 to compute, and to out.dtype.element_ty to store.")
def the_dtype_is_kept(part, rng):
    for dtype, tolerance in ((torch.float16, 5e-3), (torch.bfloat16, 5e-2)):
        batch = KernelBatch(rng, [(9, 1), (18, 1)]).to(dtype)
        check(part, NAME, batch, batch.decode(), f"{dtype}: ", tolerance)


@rules.add("Store into out only.")
def the_cache_is_left_alone(part, rng):
    batch = KernelBatch(rng, [(6, 1), (9, 1)], garbage=7.0)
    left_alone(part, NAME, batch, batch.decode())


@rules.add("Take a batch of two requests and compare head by head.")
def any_ragged_batch_is_right(part, rng):
    for _ in range(4):
        contexts = [rng.randint(1, 40) for _ in range(rng.randint(1, 2))]
        heads, kv_heads = rng.choice([(2, 1), (4, 2), (3, 1)])
        sizes = dict(
            heads=heads, kv_heads=kv_heads, dim=rng.choice([8, 12]), block_size=rng.choice([2, 3, 16])
        )
        _run(part, rng, contexts, **sizes)
