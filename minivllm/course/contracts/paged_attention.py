"""2.4 `paged_attention(q, k_cache, v_cache, block_tables, context_lens, query_lens)`.

q: [num_tokens, num_heads, head_dim], the requests' new tokens one after the other, query_lens[i] of them
for request i; k_cache, v_cache: [num_blocks, block_size, num_kv_heads, head_dim]; block_tables: [num_seqs,
max_blocks] padded with anything valid; context_lens counts the new tokens, too.
"""

from __future__ import annotations

import torch

from .expect import close, random_tensor
from .rules import Broken, Rules
from .tiny_model import attention_by_heads

rules = Rules()
NAN = float("nan")


class Batch:
    """A ragged batch in a paged cache; every slot that no token fills holds `garbage`."""

    def __init__(self, rng, requests, block_size=4, heads=2, kv_heads=2, dim=8, garbage=0.0, width=0):
        contexts = [context for context, _ in requests]
        self.queries = [n for _, n in requests]
        counts = [-(-context // block_size) for context in contexts]
        num_blocks = sum(counts) + 3
        ids = rng.sample(range(num_blocks), sum(counts))
        shape = (num_blocks, block_size, kv_heads, dim)
        self.k_cache, self.v_cache = torch.full(shape, garbage), torch.full(shape, garbage)
        self.q = random_tensor(rng, sum(self.queries), heads, dim)
        tables, rows, first = [], [], 0
        for (context, n), count in zip(requests, counts, strict=True):
            table, ids = ids[:count], ids[count:]
            tables.append(table)
            k, v = random_tensor(rng, context, kv_heads, dim), random_tensor(rng, context, kv_heads, dim)
            for p in range(context):
                self.k_cache[table[p // block_size], p % block_size] = k[p]
                self.v_cache[table[p // block_size], p % block_size] = v[p]
            for i in range(n):
                seen = context - n + i + 1
                rows.append(attention_by_heads(self.q[first + i], k[:seen], v[:seen]))
            first += n
        self.want = torch.stack(rows)
        width = max(width, *counts)
        self.block_tables = torch.tensor([table + [0] * (width - len(table)) for table in tables])
        self.context_lens, self.query_lens = torch.tensor(contexts), torch.tensor(self.queries)
        self.called = (
            f"paged_attention(…, block_tables={self.block_tables.tolist()}, context_lens={contexts}, "
            f"query_lens={self.queries}), block_size {block_size}"
        )

    @property
    def arguments(self) -> list[torch.Tensor]:
        return [self.q, self.k_cache, self.v_cache, self.block_tables, self.context_lens, self.query_lens]


def _check(part, batch: Batch, note: str = "") -> None:
    close(note + batch.called, part(*batch.arguments), batch.want)


@rules.add("One request whose context fills its blocks: the keys are those blocks, laid side by side.")
def one_token_over_full_blocks(part, rng):
    for context in (4, 12):
        _check(part, Batch(rng, [(context, 1)]))


@rules.add("Blocks in the table's order, then cut the gathered keys and values at context_len.")
def the_last_block_may_be_part_full(part, rng):
    for context in (1, 3, 6, 9):
        _check(part, Batch(rng, [(context, 1)]))


@rules.add("Take block_size from k_cache.shape[1]. It need not be a power of two.")
def any_block_size_works(part, rng):
    for size in (1, 3, 16):
        for context in (2, 7):
            _check(part, Batch(rng, [(context, 1)], block_size=size))


@rules.add("The new tokens are the last of the context, and causal: causal_attention(q, k, v) is just that.")
def a_whole_prompt_is_causal(part, rng):
    for length in (2, 4, 9):
        _check(part, Batch(rng, [(length, length)]))


@rules.add("A chunk sees the cached context before it: all keys up to context_len, but only its own queries.")
def a_chunk_sees_what_came_before(part, rng):
    for context, n in ((9, 4), (8, 2), (7, 6)):
        _check(part, Batch(rng, [(context, n)]))


@rules.add("Request i has its own row of the table, and the next query_lens[i] rows of q.")
def requests_do_not_see_each_other(part, rng):
    _check(part, Batch(rng, [(5, 1), (11, 1), (2, 1)]))
    _check(part, Batch(rng, [(6, 3), (4, 4), (9, 2)]))


@rules.add("Chunks and single tokens come in any order; count the rows of q as you go.")
def chunks_and_single_tokens_mix(part, rng):
    _check(part, Batch(rng, [(7, 1), (5, 5), (12, 1), (10, 3), (1, 1)]))
    _check(part, Batch(rng, [(3, 3), (1, 1), (8, 1)], block_size=3))


@rules.add("Query head h reads KV head h // (num_heads // num_kv_heads), as in lab 01.")
def grouped_heads_share_a_kv_head(part, rng):
    for heads, kv_heads in ((6, 2), (9, 3), (5, 1), (3, 3)):
        _check(part, Batch(rng, [(6, 1), (5, 3)], heads=heads, kv_heads=kv_heads))


@rules.add("Tables are padded with 0 up to the longest; only the first blocks of a row are the request's.")
def the_padding_of_tables_is_not_read(part, rng):
    _check(part, Batch(rng, [(2, 1), (15, 1), (6, 2)], width=7, garbage=50.0), "old data in unused slots: ")


@rules.add("Unused slots may hold NaN, and 0 · NaN is NaN: cut such slots off, or fill them in your copy.")
def not_even_nan_gets_through(part, rng):
    for size in (3, 4):
        for requests in ([(5, 1), (2, 1)], [(7, 3)], [(3, 3), (10, 1), (7, 2)]):
            _check(part, Batch(rng, requests, size, garbage=NAN, width=6), "NaN in unused slots: ")


@rules.add("Two tables may name the same block: a shared prefix. Read it for both.")
def a_block_may_be_shared(part, rng):
    batch = Batch(rng, [(6, 1), (7, 2)], garbage=NAN)
    batch.block_tables[1, 0] = batch.block_tables[0, 0]
    first = int(batch.block_tables[0, 0])
    table = batch.block_tables[1]
    k, v = (cache[table].flatten(0, 1)[:7] for cache in (batch.k_cache, batch.v_cache))
    for row in (1, 2):
        batch.want[row] = attention_by_heads(batch.q[row], k[: 5 + row], v[: 5 + row])
    _check(part, batch, f"block {first} in both tables: ")


@rules.add("The cache belongs to everybody: write into none of what you were given.")
def the_cache_is_left_alone(part, rng):
    batch = Batch(rng, [(6, 2), (5, 1), (9, 1)], garbage=7.0)
    copies = [x.clone() for x in batch.arguments]
    part(*batch.arguments)
    names = ("q", "k_cache", "v_cache", "block_tables", "context_lens", "query_lens")
    for name, now, before in zip(names, batch.arguments, copies, strict=True):
        if not torch.equal(now, before):
            raise Broken(batch.called, f"{name} changed", f"{name} as it was")


@rules.add("Make the output like q: torch.empty_like(q), or concatenate the requests' results.")
def the_dtype_is_kept(part, rng):
    batch = Batch(rng, [(6, 2), (5, 1)])
    q, k, v = (x.to(torch.bfloat16) for x in batch.arguments[:3])
    got = part(q, k, v, *batch.arguments[3:])
    close(f"bfloat16: {batch.called}", got, batch.want.to(torch.bfloat16), tolerance=0.1)


@rules.add("Take a batch of two requests and compare request by request.")
def any_ragged_batch_is_right(part, rng):
    for _ in range(12):
        requests = []
        for _ in range(rng.randint(1, 5)):
            context = rng.randint(1, 20)
            requests.append((context, rng.choice([1, 1, rng.randint(1, context)])))
        size, (heads, kv_heads) = rng.choice([1, 2, 3, 8]), rng.choice([(4, 2), (3, 1), (6, 3), (2, 2)])
        _check(part, Batch(rng, requests, size, heads, kv_heads, garbage=NAN), "NaN in unused slots: ")
