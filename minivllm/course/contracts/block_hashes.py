"""6.1 `block_hashes(tokens, block_size, salt=None)` → a name, a str, for each full block.

Names are equal exactly when salts are equal and all tokens up to the block's end are. How a name is made
is the part's own business, as long as nobody can make two of them equal on purpose.
"""

from __future__ import annotations

from .expect import same, show
from .rules import Broken, Rules

rules = Rules()

BITS_128 = 22  # characters that hold 128 bits, if a character holds six


def names_of(part, tokens, block_size, salt=None) -> list[str]:
    """The names, which must be as many texts as there are full blocks."""
    called = _called(tokens, block_size, salt)
    names = part(list(tokens), block_size, salt)
    want = len(tokens) // block_size
    if not isinstance(names, list) or not all(type(name) is str for name in names):
        raise Broken(called, show(names), "a list of str; hexdigest() of a hash is one")
    if len(names) != want:
        raise Broken(called, f"{len(names)} names", f"{want}, one for each full block")
    return list(names)


def _called(tokens, block_size, salt=None) -> str:
    return f"block_hashes({show(tokens)}, {block_size}{'' if salt is None else f', {salt!r}'})"


def _different(a: str, b: str, called: str, hint: str = "") -> None:
    if a == b:
        raise Broken(called, "the same name", "two names", hint)


@rules.add("Only full blocks have a name: len(tokens) // block_size of them. The rest is still growing.")
def a_name_for_each_full_block(part, rng):
    for num_tokens, size in ((0, 4), (3, 4), (4, 4), (7, 4), (8, 4), (9, 3), (5, 1)):
        names_of(part, [rng.randrange(50_000) for _ in range(num_tokens)], size)


@rules.add("The same tokens have the same name, today and tomorrow: no counter, no random number, no id().")
def names_can_be_made_again(part, rng):
    tokens = [rng.randrange(50_000) for _ in range(11)]
    for salt in (None, "tenant"):
        first = names_of(part, tokens, 2, salt)
        names_of(part, [7, 7, 7, 7], 2)
        same(_called(tokens, 2, salt) + " once more", names_of(part, tokens, 2, salt), first)
    first = names_of(part, tokens, 2)
    same("a longer prompt: the names of the blocks it shares", names_of(part, [*tokens, 1], 2)[:5], first)


@rules.add("Hash all tokens of the block, not some of them.")
def every_token_of_a_block_counts(part, rng):
    tokens = [rng.randrange(50_000) for _ in range(8)]
    name = names_of(part, tokens, 8)[0]
    for i in range(8):
        other = [*tokens[:i], tokens[i] + 1, *tokens[i + 1 :]]
        _different(names_of(part, other, 8)[0], name, f"{show(tokens)} and {show(other)} as one block")
    swapped = [tokens[1] + 1, tokens[1], *tokens[2:]]
    turned = [tokens[1], tokens[1] + 1, *tokens[2:]]
    names = names_of(part, swapped, 8)[0], names_of(part, turned, 8)[0]
    _different(*names, f"{show(swapped)} and {show(turned)} as one block", "Their order counts, too.")


@rules.add("Put the name of the block before it, the parent, into the hash, too.")
def the_same_block_behind_another_prefix_has_another_name(part, rng):
    a, b, c, shared = ([rng.randrange(50_000) for _ in range(3)] for _ in range(4))
    for first, second in ((a, b), ([], a)):
        for middle in ([], c):
            names = [names_of(part, head + middle + shared, 3)[-1] for head in (first, second)]
            called = f"the last names of {show(first + middle + shared)} and {show(second + middle + shared)}"
            _different(*names, called)


@rules.add("Each name depends on the one before it: changing a token changes its block and all that follow.")
def a_changed_token_changes_what_follows_and_nothing_before(part, rng):
    tokens = [rng.randrange(50_000) for _ in range(12)]
    before = names_of(part, tokens, 2)
    for i in (0, 5, 11):
        other = [*tokens[:i], tokens[i] + 1, *tokens[i + 1 :]]
        agree = [a == b for a, b in zip(names_of(part, other, 2), before, strict=True)]
        called = f"names of {show(tokens)} and {show(other)} that agree, blocks of 2"
        same(called, agree, [block < i // 2 for block in range(6)])


@rules.add(
    "A sum, or an exclusive or, forgets the order: put the parent's name and the tokens into one hash."
)
def the_order_of_blocks_counts(part, rng):
    a, b = [rng.randrange(50_000) for _ in range(2)], [rng.randrange(50_000) for _ in range(2)]
    called = f"the last names of {show(a + b)} and {show(b + a)}, blocks of 2"
    _different(names_of(part, a + b, 2)[-1], names_of(part, b + a, 2)[-1], called)
    called = f"the first and the third name of {show(a + b + b + a + a)}, blocks of 2"
    names = names_of(part, a + b + b + a + a, 2)
    _different(names[0], names[2], called)
    if len(set(names)) != len(names):
        raise Broken(_called(a + b + b + a + a, 2), "the same name twice", "five different names")


@rules.add("Let the chain begin with the salt, so that it is in every name.")
def another_salt_is_another_name(part, rng):
    tokens = [rng.randrange(50_000) for _ in range(6)]
    salts = (None, "tenant a", "tenant b")
    names = [names_of(part, tokens, 2, salt) for salt in salts]
    for i in range(3):
        for first, second in ((0, 1), (0, 2), (1, 2)):
            called = f"name {i} of the same tokens with salts {salts[first]!r} and {salts[second]!r}"
            _different(names[first][i], names[second][i], called)


@rules.add("Write tokens with something between them: 1, 23 and 12, 3 are not the same.")
def neighbouring_tokens_do_not_run_together(part, rng):
    pairs = [([1, 23], [12, 3]), ([256, 1], [1, 256]), ([0, 1], [1, 0]), ([65536, 0], [0, 0])]
    pairs += [([1, 2, 3, 45], [1, 2, 34, 5]), ([11, 1, 1, 1], [1, 11, 1, 1])]
    for first, second in pairs:
        names = names_of(part, first, len(first))[0], names_of(part, second, len(first))[0]
        _different(*names, f"{first} and {second} as one block")


@rules.add("Put something between salt and tokens that tells where one ends: a salt may hold digits.")
def a_salt_is_no_token(part, rng):
    cases = [("1", [23, 4], "12", [3, 4]), ("1", [2, 3], "1,2", [3, 3]), ("[1, ", [2, 3], "[", [1, 2])]
    for salt, tokens, other_salt, other_tokens in cases:
        names = [names_of(part, tokens, 2, salt), names_of(part, other_tokens, 2, other_salt)]
        called = f"salt {salt!r} with {tokens} and salt {other_salt!r} with {other_tokens}"
        _different(names[0][0], names[1][0], called)


@rules.add("Python's hash() of a whole number is the number modulo 2**61 − 1. Take hashlib.sha256.")
def names_cannot_be_made_to_collide(part, rng):
    a = rng.randrange(50_000)
    b = a + 2**61 - 1
    called = f"[{a}, 5] and [{b}, 5] as one block"
    _different(names_of(part, [a, 5], 2)[0], names_of(part, [b, 5], 2)[0], called)
    name = names_of(part, [a, 5], 2)[0]
    if len(name) < BITS_128:
        raise Broken(_called([a, 5], 2), f"a name of {len(name)} characters", f"{BITS_128} or more: 128 bits")


@rules.add("A name is short however long the prompt; it must not be the prefix itself.")
def names_do_not_grow(part, rng):
    tokens = [rng.randrange(50_000) for _ in range(400)]
    lengths = [len(name) for name in names_of(part, tokens, 4)]
    if max(lengths) > 128:
        raise Broken(_called(tokens, 4), f"a name of {max(lengths)} characters", "at most 128")


@rules.add("Look at each token once: hash a block with its parent's name, not the whole prefix again.")
def a_long_prompt_is_named_quickly(part, rng):
    tokens = [rng.randrange(50_000) for _ in range(40_000)]
    names = names_of(part, tokens, 1)
    same("different names of 40,000 blocks", len(set(names)), len(tokens))


@rules.add("Read the caller's tokens, do not change them.")
def tokens_stay_as_they_are(part, rng):
    tokens = [rng.randrange(50_000) for _ in range(9)]
    before = list(tokens)
    part(tokens, 2, "salt")
    same("the caller's tokens afterwards", tokens, before)


@rules.add("Compare with the spec: names agree exactly where salts and whole prefixes do.")
def names_are_equal_exactly_when_prefixes_are(part, rng):
    for size in (1, 2, 3):
        name_of, prefix_of = {}, {}
        for _ in range(40):
            tokens = [rng.randint(0, 1) for _ in range(rng.randint(0, 4 * size))]
            salt = rng.choice([None, "a", "b"])
            prefixes = [(salt, *tokens[: (i + 1) * size]) for i in range(len(tokens) // size)]
            for prefix, name in zip(prefixes, names_of(part, tokens, size, salt), strict=True):
                called = f"names of {show(prefix[1:])} with salt {salt!r}, blocks of {size}"
                same(called, name, name_of.setdefault(prefix, name))
                other = prefix_of.setdefault(name, prefix)
                if other != prefix:
                    raise Broken(called, f"the name of {show(other[1:])}, salt {other[0]!r}", "its own name")
