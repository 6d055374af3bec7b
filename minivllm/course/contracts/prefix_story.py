"""What the contracts of lab 06 share: a slow model of a prefix cache, and calls that are told in order.

The model is a dictionary of whole prefixes. Every rule works out what must come back before it asks
the part.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from ...kv.prefix import Match
from ..grade.values import Remote
from .expect import same, show
from .rules import Broken


class Told:
    """A part under test, and what was called so far, for the messages."""

    LAST = 5

    def __init__(self, cache: Any, name: str) -> None:
        self.cache, self.name, self.calls = cache, name, []

    @property
    def story(self) -> str:
        skipped = ["…"] if len(self.calls) > self.LAST else []
        return f"{self.name}: {', '.join(skipped + self.calls[-self.LAST :])}"

    def do(self, method: str, *args: Any) -> Any:
        self.calls.append(f"{method}({', '.join(map(show, args))})")
        return getattr(self.cache, method)(*(list(a) if isinstance(a, list) else a for a in args))

    def expect(self, want: Any, method: str, *args: Any) -> None:
        got = self.do(method, *args)
        same(self.story, got, want)

    def reads(self, want: Any, attribute: str) -> None:
        got = getattr(self.cache, attribute)
        same(f"{self.story}; {attribute}", got, want)

    def found(self, tokens: list[int], salt: str | None = None) -> tuple[list[int], int, Any]:
        """What `match` gives, as a tuple; it must be a `Match`, which crosses to a grader as a tuple."""
        match = self.do("match", tokens, *([] if salt is None else [salt]))
        plain = type(match) is tuple and len(match) == 3 and isinstance(self.cache, Remote)
        if not plain and not isinstance(match, Match):
            raise Broken(self.story, show(match), "a Match(blocks, num_tokens)")
        return match[0], match[1], match[2]

    def matches(self, blocks: list[int], size: int, tokens: list[int], salt: str | None = None) -> None:
        """`match` must find exactly these blocks, and no partial one."""
        got = self.found(tokens, salt)
        same(f"{self.story}: blocks, num_tokens, partial", got, (blocks, len(blocks) * size, None))

    def refuses(self, method: str, *args: Any) -> None:
        try:
            got = self.do(method, *args)
        except ValueError:
            return
        except (KeyError, IndexError, StopIteration, RuntimeError) as error:
            raise Broken(self.story, f"{type(error).__name__}: {error}", "ValueError") from None
        raise Broken(self.story, "no exception" if got is None else show(got), "ValueError")


class Truth:
    """Which block holds which prefix, who uses it, and the unused ones, least recently used first."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.block_of: dict[tuple, int] = {}
        self.users: dict[int, int] = {}
        self.unused: list[int] = []

    def match(self, tokens: list[int], salt: str | None = None) -> list[int]:
        blocks = []
        for end in range(self.size, len(tokens), self.size):
            if (salt, *tokens[:end]) not in self.block_of:
                break
            blocks.append(self.block_of[(salt, *tokens[:end])])
        return blocks

    def insert(self, tokens: list[int], blocks: list[int], salt: str | None = None) -> list[int]:
        kept = []
        for i, block in enumerate(blocks):
            kept.append(self.block_of.setdefault((salt, *tokens[: (i + 1) * self.size]), block))
            if block not in self.users and kept[i] == block:
                self.users[block] = 1
            elif kept[i] != block:
                self.acquire([kept[i]])
        return kept

    def acquire(self, blocks: list[int]) -> None:
        for block in blocks:
            self.users[block] += 1
            if block in self.unused:
                self.unused.remove(block)

    def release(self, blocks: list[int]) -> None:
        for block in blocks:
            self.users[block] -= 1
            if self.users[block] == 0:
                self.unused.append(block)

    def forget(self, blocks: list[int]) -> None:
        for block in blocks:
            self.unused.remove(block)
            del self.users[block]
        self.block_of = {prefix: b for prefix, b in self.block_of.items() if b not in blocks}

    def partial(self, tokens: list[int], salt: str | None = None) -> dict[int, int]:
        """{block: how many of the next tokens it begins with}, of those that could follow the match."""
        start = len(self.match(tokens, salt)) * self.size
        rest, found = tokens[start:-1], {}
        for prefix, block in self.block_of.items():
            if len(prefix) == 1 + start + self.size and prefix[: 1 + start] == (salt, *tokens[:start]):
                k = 0
                while k < min(self.size, len(rest)) and prefix[1 + start + k] == rest[k]:
                    k += 1
                found[block] = k
        return found


def some_tokens(rng: random.Random, size: int, alphabet: int = 2) -> list[int]:
    """Up to five blocks of tokens, so few different ones that prompts begin alike."""
    return [rng.randint(1, alphabet) for _ in range(rng.randint(1, 5 * size))]


class Requests:
    """Random requests that begin, grow and end, on a part and on the model alike."""

    def __init__(self, told: Told, truth: Truth, rng: random.Random, tail_first: bool) -> None:
        self.told, self.truth, self.rng, self.tail_first = told, truth, rng, tail_first
        self.running: list[list[int]] = []
        self.next_block = 0

    def begin(self) -> None:
        """Match, use what is found, compute the rest into new blocks, and insert the full ones, a few at
        a time."""
        told, truth, rng, size = self.told, self.truth, self.rng, self.truth.size
        tokens, salt = some_tokens(rng, size), rng.choice([None, "a"])
        table = self._match(tokens, salt)
        told.do("acquire", table)
        truth.acquire(table)
        num_new = len(tokens) // size - len(table)
        table = [*table, *range(self.next_block, self.next_block + num_new)]
        self.next_block += num_new
        for end in sorted({rng.randint(0, len(table)), len(table)}):
            mine = table[:end]
            kept = truth.insert(tokens, mine, salt)
            told.expect(kept, "insert", tokens, mine, salt)
            table[:end] = kept
        self.running.append(table)

    def end(self) -> None:
        """Release a table, with a block at its end that was never full."""
        table = self.running.pop(self.rng.randrange(len(self.running)))
        self.truth.release(table[::-1] if self.tail_first else table)
        self.told.do("release", [*table, 10_000])

    def play(self, num_rounds: int, forget: Callable[[], None]) -> None:
        """Begin, end, or `forget` some unused blocks (there are some then), and compare after each."""
        for _ in range(num_rounds):
            kind = self.rng.random()
            if kind < 0.5:
                self.begin()
            elif kind < 0.8 and self.running:
                self.end()
            elif self.truth.unused:
                forget()
            self.compare()

    def compare(self) -> None:
        blocks = sorted(self.truth.users)
        for block in self.rng.sample(blocks, min(6, len(blocks))):
            self.told.expect(self.truth.users[block], "users", block)
            self.told.calls.pop()
        self.told.reads(len(self.truth.unused), "num_evictable")

    def _match(self, tokens: list[int], salt: str | None) -> list[int]:
        want = self.truth.match(tokens, salt)
        self.told.matches(want, self.truth.size, tokens, salt)
        return want
