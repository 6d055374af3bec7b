"""The invariants of KV bookkeeping, written out; tests call them after every step."""

from __future__ import annotations

from collections import Counter
from typing import Any


def check_manager(kv: Any) -> None:
    """Raise `AssertionError` unless a block's references are exactly its tables, the copies that read
    it in this step, and the prefix cache; and free and used blocks add up."""
    check_pool = getattr(kv.pool, "check", None)
    if check_pool is not None:
        check_pool()
    kv.swap.check()
    users: Counter[int] = Counter()
    for request_id, table in kv.tables.items():
        assert len(set(table.blocks)) == len(table.blocks), f"{request_id} holds a block twice"
        capacity = len(table.blocks) * kv.block_size
        assert table.num_tokens <= capacity, f"{request_id}: {table.num_tokens} tokens in {capacity} slots"
        users.update(table.blocks)
    for blocks in kv._held:
        users.update(blocks)
    cached = set()
    if kv.prefix_cache is not None:
        kv.prefix_cache.check()
        cached = set(kv.prefix_cache.cached_blocks())
        for block in cached:
            assert kv.prefix_cache.users(block) == users[block], (
                f"block {block}: {users[block]} users, the cache counts {kv.prefix_cache.users(block)}"
            )
    for block in range(kv.num_blocks):
        expected = users[block] + (block in cached)
        assert kv.pool.ref_count(block) == expected, (
            f"block {block} should have {expected} references, it has {kv.pool.ref_count(block)}"
        )
    assert len(users) + kv.num_free_blocks == kv.num_blocks, "free and used blocks do not add up"
    assert not set(kv.tables) & set(kv.swap.tables), "a request has blocks on the device and on the host"
