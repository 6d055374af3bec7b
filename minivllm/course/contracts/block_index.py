"""6.2 `BlockIndex(block_size)`: `match(tokens, salt)`, `insert(tokens, blocks, salt)`, `remove(block)`.

A call that is refused changes nothing. Blocks are numbers; which ones is the caller's business.
"""

from __future__ import annotations

from .expect import same
from .prefix_story import Told, Truth, some_tokens
from .rules import Rules

rules = Rules()


def _index(part, size: int = 2, tokens=(1, 2, 3, 4, 5, 6), blocks=(7, 8, 9), salt=None) -> Told:
    told = Told(part(size), f"BlockIndex({size})")
    told.do("insert", list(tokens), list(blocks), *([] if salt is None else [salt]))
    return told


@rules.add("Nothing is cached yet: no blocks, 0 tokens.")
def an_empty_index_finds_nothing(part, rng):
    for tokens in ([1, 2, 3, 4], [1], []):
        Told(part(2), "BlockIndex(2)").matches([], 2, tokens)


@rules.add("Look up one name after the other; match counts tokens, whole blocks of them.")
def what_was_inserted_is_found(part, rng):
    _index(part).matches([7, 8, 9], 2, [1, 2, 3, 4, 5, 6, 7])
    _index(part).matches([7, 8, 9], 2, [1, 2, 3, 4, 5, 6, 7, 8, 9])
    _index(part, 3, range(6), (0, 1)).matches([0, 1], 3, [*range(6), 6, 7])


@rules.add("Stop at the first name that is not there. What lies behind a gap cannot be used.")
def a_match_ends_at_the_first_difference(part, rng):
    _index(part).matches([7], 2, [1, 2, 9, 4, 5, 6, 7])
    _index(part).matches([7, 8], 2, [1, 2, 3, 4, 5, 9, 7])
    _index(part).matches([], 2, [9, 2, 3, 4, 5, 6, 7])
    told = _index(part, 2, (1, 2, 3, 4), (7, 8))
    told.matches([], 2, [3, 4, 5])
    told.matches([], 2, [9, 9, 3, 4, 5])


@rules.add("The last token must be computed, or there are no logits: match at most len(tokens) − 1 tokens.")
def a_match_is_never_the_whole_prompt(part, rng):
    _index(part).matches([7, 8], 2, [1, 2, 3, 4, 5, 6])
    _index(part).matches([7], 2, [1, 2, 3, 4])
    _index(part).matches([], 2, [1, 2])
    _index(part, 1, (1, 2, 3), (7, 8, 9)).matches([7, 8], 1, [1, 2, 3])
    _index(part).matches([7, 8], 2, [1, 2, 3, 4, 5])


@rules.add("Give the salt to block_hashes, in match and in insert.")
def salts_never_share(part, rng):
    told = _index(part, salt="a")
    told.matches([], 2, [1, 2, 3, 4, 5], "b")
    told.matches([], 2, [1, 2, 3, 4, 5])
    told.matches([7, 8], 2, [1, 2, 3, 4, 5], "a")
    told.expect([20], "insert", [1, 2], [20], "b")
    told.matches([20], 2, [1, 2, 3, 4, 5], "b")
    told.matches([7, 8], 2, [1, 2, 3, 4, 5], "a")


@rules.add("Return one block for each of `blocks`: itself, if its name was not there before.")
def new_content_keeps_the_callers_blocks(part, rng):
    told = Told(part(2), "BlockIndex(2)")
    told.expect([7, 8], "insert", [1, 2, 3, 4, 5, 6], [7, 8])
    told.expect([7, 8, 9], "insert", [1, 2, 3, 4, 5, 6], [7, 8, 9])
    told.expect([], "insert", [1, 2, 3, 4], [])
    told.matches([7, 8, 9], 2, [1, 2, 3, 4, 5, 6, 0])


@rules.add("A name that is there keeps its block, and insert returns that one: others are using it.")
def what_is_cached_already_keeps_its_block(part, rng):
    told = _index(part)
    told.expect([7, 8, 22], "insert", [1, 2, 3, 4, 8, 8], [20, 21, 22])
    told.matches([7, 8, 22], 2, [1, 2, 3, 4, 8, 8, 0])
    told.matches([7, 8, 9], 2, [1, 2, 3, 4, 5, 6, 0])


@rules.add("Only the blocks that are given are computed; the tokens may go on.")
def only_the_given_blocks_are_cached(part, rng):
    told = _index(part, 2, (1, 2, 3, 4, 5), (7,))
    told.matches([7], 2, [1, 2, 3, 4, 5])


@rules.add("A block that is not full has no name. Compare the two numbers before you change anything.")
def more_blocks_than_full_ones_are_refused(part, rng):
    told = Told(part(2), "BlockIndex(2)")
    told.refuses("insert", [1, 2, 3], [7, 8])
    told.refuses("insert", [1], [7])
    told.matches([], 2, [1, 2, 3, 4])
    told.expect([5], "insert", [1, 2, 3], [5])


@rules.add("remove takes out the block's own name only; match stops there, though its neighbours stay.")
def a_removed_block_is_not_found(part, rng):
    told = _index(part)
    told.do("remove", 8)
    told.matches([7], 2, [1, 2, 3, 4, 5, 6, 0])
    told.expect([7, 20, 9], "insert", [1, 2, 3, 4, 5, 6], [7, 20, 21])
    told.matches([7, 20, 9], 2, [1, 2, 3, 4, 5, 6, 0])


@rules.add("After remove the number may come again, with other tokens.")
def a_removed_block_can_hold_something_else(part, rng):
    told = _index(part)
    for block in (9, 8):
        told.do("remove", block)
    told.expect([8], "insert", [5, 5, 6], [8])
    told.matches([8], 2, [5, 5, 6])
    told.matches([7], 2, [1, 2, 3, 4, 5])
    told.do("remove", 8)
    told.matches([], 2, [5, 5, 6])
    told.matches([7], 2, [1, 2, 3, 4, 5])


@rules.add("remove looks up by block. One that was never kept stands for no name, so nothing happens.")
def a_block_that_is_not_cached_can_be_removed(part, rng):
    told = _index(part)
    told.do("insert", [1, 2, 3, 4], [20, 21])
    for block in (20, 21, 99):
        told.do("remove", block)
    told.matches([7, 8, 9], 2, [1, 2, 3, 4, 5, 6, 0])


@rules.add("Make new lists: the caller may change what it gave or got.")
def lists_belong_to_the_caller(part, rng):
    index, blocks, tokens = part(2), [7, 8], [1, 2, 3, 4, 5]
    kept = index.insert(tokens, blocks, None)
    same("the caller's blocks after insert", blocks, [7, 8])
    kept.clear()
    blocks[0] = 99
    index.match(tokens, None)[0].append(5)
    same("the caller's tokens after match", tokens, [1, 2, 3, 4, 5])
    Told(index, "insert, match, the caller changes its lists").matches([7, 8], 2, [1, 2, 3, 4, 5])


@rules.add("Make the dictionaries in __init__, on self.")
def two_indexes_share_nothing(part, rng):
    _index(part)
    Told(part(2), "another BlockIndex(2)").matches([], 2, [1, 2, 3, 4])


@rules.add("Play the calls through by hand, with a dictionary from whole prefix to block beside them.")
def any_order_of_calls_holds(part, rng):
    for size in (1, 2, 3):
        told, truth, next_block = Told(part(size), f"BlockIndex({size})"), Truth(size), 0
        for _ in range(70):
            tokens, salt = some_tokens(rng, size), rng.choice([None, "a"])
            kind = rng.random()
            if kind < 0.4:
                told.matches(truth.match(tokens, salt), size, tokens, salt)
            elif kind < 0.8:
                blocks = list(range(next_block, next_block + rng.randint(0, len(tokens) // size)))
                next_block += len(blocks)
                told.expect(truth.insert(tokens, blocks, salt), "insert", tokens, blocks, salt)
            elif truth.block_of:
                block = rng.choice(sorted(truth.block_of.values()))
                truth.block_of = {prefix: b for prefix, b in truth.block_of.items() if b != block}
                told.do("remove", block)
