"""2.3 `BlockTable(block_size)`: `blocks`, `num_tokens`, `blocks_needed(n)`, `append_tokens(n, new_blocks)`,
`slot_mapping(start, n)`, `fork()`.

The slot of position p is blocks[p // block_size] · block_size + p % block_size.
"""

from __future__ import annotations

from .expect import refuses, same
from .rules import Rules

rules = Rules()


def _table(part, block_size: int, num_tokens: int, blocks: list[int]):
    table = part(block_size)
    table.append_tokens(num_tokens, list(blocks))
    return table


def _slots(blocks: list[int], block_size: int, start: int, n: int) -> list[int]:
    slots = [block * block_size + offset for block in blocks for offset in range(block_size)]
    return slots[start : start + n]


def _holds(called: str, table, num_tokens: int, blocks: list[int]) -> None:
    same(f"{called}: num_tokens", table.num_tokens, num_tokens)
    same(f"{called}: blocks", list(table.blocks), blocks)


@rules.add("Blocks are taken for tokens: n tokens in a new table need n / block_size, rounded up.")
def a_new_table_needs_whole_blocks(part, rng):
    for size in (1, 3, 16):
        for n in (0, 1, size, size + 1, 5 * size):
            got = part(size).blocks_needed(n)
            same(f"BlockTable({size}).blocks_needed({n})", got, (n + size - 1) // size)


@rules.add("append_tokens puts new_blocks behind the others and adds n to num_tokens.")
def a_table_grows_by_tokens_and_blocks(part, rng):
    table = part(4)
    _holds("BlockTable(4)", table, 0, [])
    table.append_tokens(6, [7, 2])
    _holds("append_tokens(6, [7, 2])", table, 6, [7, 2])
    table.append_tokens(5, [9])
    _holds("append_tokens(6, [7, 2]), append_tokens(5, [9])", table, 11, [7, 2, 9])


@rules.add("A block in part full has room: count all blocks for num_tokens + n, less those there are.")
def the_last_block_is_filled_first(part, rng):
    for size, tokens in ((4, 6), (3, 3), (16, 17), (1, 2)):
        held = list(range(-(-tokens // size)))
        table = _table(part, size, tokens, held)
        room = len(held) * size - tokens
        wanted = {0: 0, room: 0, room + 1: 1, room + size: 1, room + size + 1: 2}
        for n, want in wanted.items():
            called = f"BlockTable({size}) with {tokens} tokens: blocks_needed({n})"
            same(called, table.blocks_needed(n), want)
        table.append_tokens(room, [])
        called = f"BlockTable({size}) with {tokens} tokens: append_tokens({room}, [])"
        _holds(called, table, tokens + room, held)


@rules.add("Position p is in block p // block_size of the table, at offset p % block_size.")
def slots_follow_the_table(part, rng):
    table = _table(part, 4, 10, [5, 0, 3])
    for start, n in ((0, 10), (0, 1), (9, 1), (4, 4), (3, 6), (8, 2)):
        called = f"block_size 4, blocks [5, 0, 3], 10 tokens: slot_mapping({start}, {n})"
        same(called, table.slot_mapping(start, n), _slots([5, 0, 3], 4, start, n))


@rules.add("Use the table's own block_size, not 16.")
def any_block_size_works(part, rng):
    for size in (1, 3, 5, 16):
        blocks = rng.sample(range(100), 4)
        table = _table(part, size, 4 * size, blocks)
        called = f"block_size {size}, blocks {blocks}: slot_mapping(0, {4 * size})"
        same(called, table.slot_mapping(0, 4 * size), _slots(blocks, size, 0, 4 * size))


@rules.add("No position, no slot: an empty list.")
def no_positions_have_no_slots(part, rng):
    same("BlockTable(4).slot_mapping(0, 0)", part(4).slot_mapping(0, 0), [])
    same("6 tokens: slot_mapping(6, 0)", _table(part, 4, 6, [1, 2]).slot_mapping(6, 0), [])


@rules.add("Exactly blocks_needed(n) blocks, no more: memory is taken at the last moment. ValueError.")
def a_wrong_number_of_blocks_is_refused(part, rng):
    for n, blocks in ((3, []), (3, [8, 9]), (2, [8]), (7, [8]), (0, [8])):
        table = _table(part, 4, 6, [5, 1])
        called = f"block_size 4, 6 tokens: append_tokens({n}, {blocks})"
        refuses(called, lambda t=table, a=(n, blocks): t.append_tokens(*a))
        _holds(f"{called} refused", table, 6, [5, 1])


@rules.add("Compare start + n with num_tokens, not with the slots of the blocks: those may be unwritten.")
def positions_without_a_token_are_refused(part, rng):
    table = _table(part, 4, 6, [5, 1])
    for start, n in ((0, 7), (6, 1), (7, 0), (5, 3), (-1, 1), (-2, 3)):
        called = f"block_size 4, 6 tokens: slot_mapping({start}, {n})"
        refuses(called, lambda a=(start, n): table.slot_mapping(*a))


@rules.add("blocks_needed only asks; nothing is taken and nothing changes.")
def asking_changes_nothing(part, rng):
    table = _table(part, 4, 6, [5, 1])
    for n in (0, 3, 50):
        table.blocks_needed(n)
        table.slot_mapping(0, 6)
    _holds("6 tokens, blocks_needed(50)", table, 6, [5, 1])


@rules.add("Copy the ids into your own list (extend does); the caller goes on using the list it gave.")
def the_callers_list_stays_the_callers(part, rng):
    table, given = part(4), [5]
    table.append_tokens(2, given)
    given.append(77)
    _holds("append_tokens(2, given), then given.append(77)", table, 2, [5])
    table.append_tokens(3, [6])
    same("given, after append_tokens(3, [6])", given, [5, 77])


@rules.add("fork gives a second table with a list of its own: list(self.blocks).")
def a_fork_starts_equal_and_goes_its_own_way(part, rng):
    table = _table(part, 4, 6, [5, 1])
    child = table.fork()
    _holds("6 tokens in [5, 1]: fork()", child, 6, [5, 1])
    same("fork().slot_mapping(3, 3)", child.slot_mapping(3, 3), [23, 4, 5])
    child.append_tokens(3, [8])
    _holds("the parent, after the fork grew", table, 6, [5, 1])
    table.append_tokens(7, [2, 3])
    _holds("the fork, after the parent grew", child, 9, [5, 1, 8])


@rules.add("Make the list in __init__, on self.")
def two_tables_share_nothing(part, rng):
    first, second = part(2), part(2)
    first.append_tokens(3, [4, 5])
    _holds("another table", second, 0, [])


@rules.add("Play the calls through by hand, with a list of all slots beside them.")
def any_growth_is_followed(part, rng):
    for _ in range(12):
        size = rng.choice([1, 2, 3, 4, 16])
        table, held, tokens = part(size), [], 0
        for _ in range(12):
            n = rng.randint(0, 7)
            needed = -(-(tokens + n) // size) - len(held)
            called = f"block_size {size}, {tokens} tokens in {held}: "
            same(f"{called}blocks_needed({n})", table.blocks_needed(n), needed)
            new = rng.sample(range(200), needed)
            table.append_tokens(n, list(new))
            tokens, held = tokens + n, held + new
            _holds(f"{called}append_tokens({n}, {new})", table, tokens, held)
            start = rng.randint(0, tokens)
            some = rng.randint(0, tokens - start)
            called = f"block_size {size}, {tokens} tokens in {held}: slot_mapping({start}, {some})"
            same(called, table.slot_mapping(start, some), _slots(held, size, start, some))
