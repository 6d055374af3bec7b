"""Requests to measure with: seeded lengths, random tokens, arrivals counted in steps.

Lengths decide what a scheduler does, so workloads are made of (prompt length, output length) pairs; the
tokens are random and no request ends early (`ignore_eos`). A request arrives before a step, not at a time: so
counts are the same on every machine, and a prediction can be made from the lengths alone. Only
`Random.random` is drawn from, which gives the same numbers in every version of Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

Lengths = list[tuple[int, int]]  # (prompt tokens, output tokens) of each request


@dataclass(frozen=True)
class Job:
    """One request. It may be in step `arrival_step` of its run, and in none before."""

    prompt: tuple[int, ...]
    max_tokens: int
    arrival_step: int = 0


def equal_lengths(num_requests: int, prompt: int, output: int) -> Lengths:
    return [(prompt, output)] * num_requests


def varied_lengths(
    num_requests: int, prompt: tuple[int, int], output: tuple[int, int], seed: int = 0
) -> Lengths:
    """Uniform between the two ends of each range, ends included."""
    rng = Random(seed)
    return [(_between(rng, *prompt), _between(rng, *output)) for _ in range(num_requests)]


def long_tailed_lengths(
    num_requests: int, prompt: tuple[int, int], output: tuple[int, int], seed: int = 0
) -> Lengths:
    """Prompts uniform; outputs Pareto with exponent 1 between the two ends: half of them are shorter than
    twice the shortest, and a few are as long as is allowed."""
    rng, (shortest, longest) = Random(seed), output
    return [
        (_between(rng, *prompt), min(longest, int(shortest / (1 - rng.random()))))
        for _ in range(num_requests)
    ]


def make_jobs(lengths: Lengths, vocab_size: int, seed: int = 0, arrival_step: int = 0) -> list[Job]:
    """One job for each pair of lengths, with random tokens."""
    rng = Random(seed)
    return [Job(random_tokens(rng, prompt, vocab_size), output, arrival_step) for prompt, output in lengths]


def with_shared_prefix(jobs: Sequence[Job], num_tokens: int, vocab_size: int, seed: int = 0) -> list[Job]:
    """The same jobs, all beginning with the same `num_tokens` tokens more."""
    prefix = random_tokens(Random(seed), num_tokens, vocab_size)
    return [replace(job, prompt=prefix + job.prompt) for job in jobs]


def random_tokens(rng: Random, num_tokens: int, vocab_size: int) -> tuple[int, ...]:
    return tuple(int(rng.random() * vocab_size) for _ in range(num_tokens))


def _between(rng: Random, low: int, high: int) -> int:
    return low + int(rng.random() * (high - low + 1))
