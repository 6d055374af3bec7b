"""C1: a KV cache turns the work for n new tokens from quadratic into linear, counted in token-forwards.

A token-forward is one token going through the model once. The engine runs without a cache as requests
for one new token each, the prompt growing by it.
"""

from __future__ import annotations

from ..workloads import Job, make_jobs
from .figure import Claim, Figure, exactly
from .machine import Machine
from .measure import attention_pairs, computed_tokens
from .play import Run, play

TITLE = "cache against recompute, in token-forwards"
PROMPT = 32
NEW_TOKENS = (8, 16, 32)


def measure(machine: Machine) -> Claim:
    """Without a cache the i-th new token, i from 0, needs a forward over the prompt of p tokens and the i
    new ones before it. Summed over n tokens that is

        n·p + n(n − 1)/2  without a cache      p + n − 1  with it

    since with a cache every token but the last goes through once. Both are exact. So is what the cache
    does not change: each token attends to itself and all before it, N(N + 1)/2 pairs of a query and a
    key for N = p + n − 1 tokens, which stays quadratic.
    """
    figures, rows = [], []
    for n in reversed(NEW_TOKENS):  # the first figure stands for the claim
        cached, recomputed, tokens = _both(machine, n)
        forwards = sum(computed_tokens(run) for run in recomputed)
        figures.append(Figure(f"forwards without a cache, n={n}", forwards, exactly(recompute_forwards(n))))
        figures.append(
            Figure(f"forwards with a cache, n={n}", computed_tokens(cached), exactly(PROMPT + n - 1))
        )
        context = PROMPT + n - 1
        figures.append(
            Figure(
                f"attention pairs with a cache, n={n}",
                attention_pairs(cached),
                exactly(context * (context + 1) // 2),
            )
        )
        agree = sum(a == b for a, b in zip(tokens, cached.token_ids["0"], strict=True))
        figures.append(Figure(f"tokens that are the same both ways, n={n}", agree, exactly(n)))
        rows.append(
            {
                "new_tokens": n,
                "seconds_without": sum(sum(run.seconds) for run in recomputed),
                "seconds_with": sum(cached.seconds),
                "forwards_ratio": forwards / computed_tokens(cached),
            }
        )
    return Claim(
        "C1",
        TITLE,
        f"new tokens n = {', '.join(map(str, NEW_TOKENS))} after a prompt of {PROMPT}",
        figures,
        "Counts, so exact. Seconds (in rows) differ by less than the counts do: a forward over many tokens "
        "reads the weights once for all of them, so a recomputed token is cheaper than a decoded one.",
        rows,
    )


def recompute_forwards(n: int) -> int:
    return n * PROMPT + n * (n - 1) // 2


def _both(machine: Machine, n: int) -> tuple[Run, list[Run], list[int]]:
    """(the run with a cache, one run for each token without, the tokens of the latter)."""
    engine = machine.engine()
    (job,) = make_jobs([(PROMPT, n)], engine.model_config.vocab_size)
    cached = play(engine, [job], machine.on_step)
    prompt, runs = job.prompt, []
    for _ in range(n):
        runs.append(play(engine, [Job(prompt, 1)], machine.on_step))
        prompt += tuple(runs[-1].token_ids["0"])
    return cached, runs, list(prompt[PROMPT:])
