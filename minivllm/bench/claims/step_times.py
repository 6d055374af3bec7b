"""How long a step takes, from its shape: the link between counted steps and seconds.

Steps of simple shapes are timed in the same run as a claim: n requests that decode, at the shortest and
the longest context; n prompt tokens alone; a piece of a prompt whose beginning is cached. Every other
step lies between two ends that follow from these, since more work never takes less time, and two steps
in one never take longer than one after the other. Each shape is timed several times: the low end has the
fastest, the high end what nine in ten do not exceed. (The idea is that of a roofline, Williams et al.,
2009, with measured points instead of data sheets.)
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random
from statistics import mean
from typing import Any

from ...executor.cost import forward_cost
from ..workloads import Job, Lengths, make_jobs, random_tokens
from .figure import Range, total
from .measure import percentile
from .play import Run, play

Step = Sequence[tuple[int, int]]  # (new tokens, tokens in the context) of each request served
DECODES_TIMED = 4
MOST_PROMPTS = 24
CACHED_CONTEXT = 1024
CACHED_PIECES = (16, 64, 128, 384, 640)


class StepTimes:
    """Times what `steps` need, on an engine that `engine()` makes ready; call `sweep` a few times, then ask.
    Pieces of prompts with cached context are timed if one occurs in `steps`."""

    def __init__(self, machine: Any, engine: Any, steps: Iterable[Step]) -> None:
        steps, decodes, prompts, contexts, self._has_cached = list(steps), [], [], [], False
        for step in steps:
            rows, tokens = _split(step)
            if rows:
                decodes.append(len(rows))
                contexts += rows
            if tokens:
                num_new = sum(n for n, _ in tokens)
                prompts += [num_new, num_new + len(rows)]
                self._has_cached |= any(n < context for n, context in tokens)
        if self._has_cached:
            # Pieces are compared with as many tokens and nothing cached, and a prompt with its halves.
            prompts += [*CACHED_PIECES, CACHED_CONTEXT, CACHED_CONTEXT // 2]
        self._machine, self._engine = machine, engine
        self._rows = _most_frequent(decodes, 5)
        self._contexts = sorted({min(contexts), max(contexts)}) if contexts else []
        self._prompts = _grid(prompts)
        longest = max(n for step in steps for n, _ in step) + max(decodes, default=0)
        self._longest = max(longest, CACHED_CONTEXT) if self._has_cached else longest
        self._samples: dict[tuple[str, int, int], list[float]] = {}
        self._seed = 1_000_000  # prompts that no other job begins with

    def sweep(self) -> None:
        """Time every shape once (decodes: a few steps of each)."""
        engine = self._engine()
        vocab_size = engine.model_config.vocab_size
        for context in self._contexts:
            for rows in self._rows:
                prompt = max(1, context - DECODES_TIMED)
                jobs = make_jobs([(prompt, DECODES_TIMED + 1)] * rows, vocab_size, seed=context)
                run = self._play(engine, jobs)
                served = [step.num_scheduled_tokens.values() for step in run.steps]
                pure = [s for s, n in zip(run.seconds, served, strict=True) if list(n) == [1] * rows]
                self._note("decode", rows, context, pure[-DECODES_TIMED:])
        for tokens in self._prompts:
            self._seed += 1
            jobs = make_jobs(_pieces(tokens, self._longest), vocab_size, seed=self._seed)
            self._note("prompt", tokens, 0, self._play(engine, jobs).seconds)
        if self._has_cached:
            self._sweep_cached(engine, vocab_size)

    def _sweep_cached(self, engine: Any, vocab_size: int) -> None:
        self._seed += 1
        rng = Random(self._seed)
        base = random_tokens(rng, CACHED_CONTEXT, vocab_size)
        self._play(engine, [Job(base, 1)])
        for tokens in CACHED_PIECES:
            piece = base[: CACHED_CONTEXT - tokens] + random_tokens(rng, tokens, vocab_size)
            self._note("cached", tokens, 0, self._play(engine, [Job(piece, 1)]).seconds)

    def step(self, chunks: Step) -> Range:
        """Seconds of one step: both ends.

        - Decodes: between the timed numbers of requests below and above. The context counts as the mean of
          the batch at the low end and as the longest, to which a batch is padded, at the high end.

        - With prompt tokens beside them: at least as long as the decodes alone, and as a prompt of as many
          tokens; at most as long as both parts one after the other (the weights are read twice then).

        - Earlier tokens that a piece of a prompt attends to: at the low end at the price of their counted
          FLOPs at the best rate of any prompt; at the high end every pair, the masked ones too, costs what
          it did in the timed pieces next in size, whichever is dearer.
        """
        rows, prompts = _split(chunks)
        if not prompts:
            return self._decodes(rows)
        num_new = sum(n for n, _ in prompts)
        low, high = self._prompt(num_new + len(rows)).low, self._prompt(num_new).high
        for n, context in prompts:
            if n < context:
                low += n * (context - n) * self._cheapest_pair()
                high += n * context * self._dearest_pair(n) - n * n / 2 * self._causal_pair()
        if rows:
            decodes = self._decodes(rows)
            low, high = max(low, decodes.low), high + decodes.high
        return Range(low, high)

    def run(self, steps: Iterable[Step]) -> Range:
        """Seconds of all these steps."""
        return total(self.step(step) for step in steps)

    def _decodes(self, contexts: list[int]) -> Range:
        n = len(contexts)
        return Range(self._decode(n, mean(contexts)).low, self._decode(n, max(contexts)).high)

    def _decode(self, rows: int, context: float) -> Range:
        below = max((n for n in self._rows if n <= rows), default=self._rows[0])
        above = min((n for n in self._rows if n >= rows), default=self._rows[-1])
        low = [self._timed("decode", below, c).low for c in self._contexts]
        high = [self._timed("decode", above, c).high for c in self._contexts]
        return Range(*(_interpolate(self._contexts, ends, context) for ends in (low, high)))

    def _prompt(self, tokens: int) -> Range:
        timed = [self._timed("prompt", n) for n in self._prompts]
        return Range(*(_interpolate(self._prompts, [t[end] for t in timed], tokens) for end in (0, 1)))

    def _cheapest_pair(self) -> float:
        """Seconds for a query and a key, all layers and heads, at the best FLOP/s of any prompt."""
        config = self._model_config
        rates = [forward_cost(config, [(n, n)]).flops / self._timed("prompt", n).low for n in self._prompts]
        return 4 * config.num_layers * config.num_heads * config.head_dim / max(rates)

    def _causal_pair(self) -> float:
        """Seconds a visible pair in a prompt alone, at least: what a prompt takes more than its halves do."""
        whole, half = self._timed("prompt", CACHED_CONTEXT), self._timed("prompt", CACHED_CONTEXT // 2)
        return max(self._cheapest_pair(), (whole.low - 2 * half.high) / (CACHED_CONTEXT / 2) ** 2)

    def _dearest_pair(self, tokens: int) -> float:
        """Seconds a pair, visible or masked, in the timed pieces next in size: the larger price."""
        after = min(bisect_left(CACHED_PIECES, tokens), len(CACHED_PIECES) - 1)
        return max(self._pair_in(n) for n in CACHED_PIECES[max(0, after - 1) : after + 1])

    def _pair_in(self, tokens: int) -> float:
        extra = self._timed("cached", tokens).high - self._timed("prompt", tokens).low
        return extra / (tokens * CACHED_CONTEXT - tokens * tokens / 2)

    def _timed(self, kind: str, size: int, context: int = 0) -> Range:
        """Of the samples of a shape: the fastest, and what nine in ten do not exceed."""
        samples = self._samples[kind, size, context]
        return Range(min(samples), percentile(samples, 90))

    def _note(self, kind: str, size: int, context: int, seconds: list[float]) -> None:
        self._samples.setdefault((kind, size, context), []).extend(seconds)

    def _play(self, engine: Any, jobs: list[Job]) -> Run:
        self._model_config = engine.model_config
        return play(engine, jobs, self._machine.on_step)


def _split(step: Step) -> tuple[list[int], list[tuple[int, int]]]:
    """(contexts of those that decode, prompts and pieces of prompts)."""
    return [c for n, c in step if n == 1 and c > 1], [(n, c) for n, c in step if n > 1 or c == 1]


def _pieces(num_tokens: int, longest: int) -> Lengths:
    """Prompts of equal length, none over `longest`, with so many tokens together."""
    count = -(-num_tokens // longest)
    return [(num_tokens // count + (i < num_tokens % count), 1) for i in range(count)]


def _most_frequent(values: list[int], count: int) -> list[int]:
    """Smallest, largest, and of the others those that occur most; `count` in all, at most."""
    if not values:
        return []
    ends = {min(values), max(values)}
    others = [value for value, _ in Counter(values).most_common() if value not in ends]
    return sorted([*ends, *others[: count - len(ends)]])


def _grid(values: list[int]) -> list[int]:
    """All of them if they are few; else smallest and largest, and the powers of two between them."""
    distinct = sorted(set(values))
    if len(distinct) <= MOST_PROMPTS:
        return distinct
    low, high = distinct[0], distinct[-1]
    return sorted({low, high, *(2**k for k in range(high.bit_length()) if low < 2**k < high)})


def _interpolate(grid: Sequence[int], values: Sequence[float], at: float) -> float:
    """Linear between two neighbours; outside the grid, the value at its end."""
    if at <= grid[0] or len(grid) == 1:
        return values[0]
    if at >= grid[-1]:
        return values[-1]
    i = bisect_left(grid, at)
    share = (at - grid[i - 1]) / (grid[i] - grid[i - 1])
    return values[i - 1] + share * (values[i] - values[i - 1])
