"""3.5 `paged_decode_split(q, k_cache, v_cache, block_tables, context_lens, max_context_len, split)`.

The same as 3.4, whatever the split: a multiple of 16 and a power of two, tokens that one program reads.
"""

from __future__ import annotations

import torch

from .paged_batch import KernelBatch, check, left_alone, scores_far_from_zero
from .rules import Rules

rules = Rules()
NAME = "paged_decode_split"


def _run(part, rng, contexts, split=16, note="", **sizes) -> None:
    batch = KernelBatch(rng, [(context, 1) for context in contexts], **sizes)
    check(part, NAME, batch, batch.decode(split), f"split {split}: {note}")


@rules.add("With one split this is exercise 3.4, cut in two: partial results, then the reduction.")
def a_context_within_one_split_is_whole(part, rng):
    for context in (16, 9, 1):
        _run(part, rng, [context], heads=1, dim=16)


@rules.add("Program (seq, kv_head, split) begins at token split · SPLIT. The reduction loads all splits.")
def two_splits_make_the_whole(part, rng):
    for context in (32, 20):
        _run(part, rng, [context], heads=1, dim=16)


@rules.add("num_splits need not be a power of two: mask the reduction's loads, m with −inf.")
def any_number_of_splits_works(part, rng):
    _run(part, rng, [70], heads=1, block_size=8)


@rules.add("Inside a split there may be several tiles, as in 3.4.")
def a_split_may_hold_several_tiles(part, rng):
    _run(part, rng, [50], 32, heads=1, block_size=8)


@rules.add("Subtract the largest m of all splits before exp, in the reduction as well.")
def scores_far_from_zero_are_right(part, rng):
    batch = KernelBatch(rng, [(40, 1)], heads=1, dim=16)
    scores_far_from_zero(part, NAME, batch, lambda: batch.decode(16))


@rules.add("A short request leaves splits without tokens: store m = −inf, l = 0, acc = 0 for them.")
def a_short_request_beside_a_long_one_has_empty_splits(part, rng):
    _run(part, rng, [33, 16, 1])


@rules.add("A partial result has one m and one l for each query head, in the order seq, head, split.")
def heads_and_groups_keep_their_places(part, rng):
    for heads, kv_heads in ((4, 2), (3, 1), (3, 3)):
        _run(part, rng, [20], heads=heads, kv_heads=kv_heads)
    _run(part, rng, [20, 5, 17], heads=4, kv_heads=2)


@rules.add("acc has HEAD_DIM columns of DIM_PAD, in both kernels.")
def any_head_dim_works(part, rng):
    for dim in (5, 20):
        _run(part, rng, [18], heads=2, dim=dim)


@rules.add("Look the slot up for position split · SPLIT + offset, in blocks of any size.")
def any_block_size_works(part, rng):
    for size in (1, 3):
        _run(part, rng, [21], heads=1, block_size=size)


@rules.add("max_context_len decides how many splits there are; context_lens how many hold something.")
def max_context_len_may_be_generous(part, rng):
    batch = KernelBatch(rng, [(18, 1), (3, 1)])
    check(part, NAME, batch, [*batch.decode()[:-1], 70, 16], "max_context_len 70, split 16: ")


@rules.add("Partial results are float32; out has q's dtype.")
def the_dtype_is_kept(part, rng):
    batch = KernelBatch(rng, [(20, 1)]).to(torch.float16)
    check(part, NAME, batch, batch.decode(16), "float16: ", 5e-3)


@rules.add("Store into the partial results and into out only.")
def the_cache_is_left_alone(part, rng):
    batch = KernelBatch(rng, [(18, 1)], garbage=7.0)
    left_alone(part, NAME, batch, batch.decode(16))


@rules.add("Compare with 3.4 on the same batch.")
def any_ragged_batch_is_right(part, rng):
    for _ in range(2):
        contexts = [rng.randint(1, 70) for _ in range(rng.randint(1, 2))]
        heads, kv_heads = rng.choice([(2, 1), (4, 2), (3, 1)])
        _run(part, rng, contexts, rng.choice([16, 32, 64]), heads=heads, kv_heads=kv_heads, block_size=5)
