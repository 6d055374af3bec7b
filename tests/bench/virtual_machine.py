"""A machine whose steps take the seconds that a formula says: claims without noise, and without a model.

The engine is real, its executor is not: it makes up tokens, and moves the engine's clock on. The formula
has what real machines show: weights read once a step, arithmetic for each token, a decode's attention
padded to the longest context, a masked piece of a prompt dearer than a causal prompt.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from minivllm.bench.claims.machine import Machine
from minivllm.executor.base import StepResult
from minivllm.llm import LLM

SMOLLM2 = dict(
    vocab_size=49_152, hidden_size=576, intermediate_size=1536, num_layers=30, num_heads=9, num_kv_heads=3,
    head_dim=64,
)  # fmt: skip


def seconds(chunks: list[tuple[int, int]]) -> float:
    """Of one step; fitted by eye to SmolLM2 on two cores."""
    decodes = [context for n, context in chunks if n == 1 and context > 1]
    prompts = [(n, context) for n, context in chunks if n > 1 or context == 1]
    rows = sum(n for n, _ in chunks)
    time = max(0.017, 0.014 + 0.00062 * rows) + 0.0003 * len(chunks)
    time += 5e-6 * len(decodes) * max(decodes, default=0)
    for n, context in prompts:
        time += 0.4e-6 * n * n / 2 if n == context else 0.42e-6 * n * context
    return time


class VirtualClock:
    """Stands in for the module `time` of the engine. `noise(seconds)` disturbs a step."""

    def __init__(self, noise=lambda seconds: seconds) -> None:
        self.now = 0.0
        self.noise = noise

    def perf_counter(self) -> float:
        return self.now


def machine(checkpoint: str, clock: VirtualClock, repetitions: int = 1) -> Machine:
    """Claims run on it see SmolLM2's sizes. The caller puts `clock` into `minivllm.engine.time`."""

    def make_llm(**settings):
        llm = LLM(checkpoint, skip_tokenizer_init=True, device="cpu", **settings)
        engine = llm.engine
        engine.model_config = replace(engine.model_config, **SMOLLM2)

        def execute(plan):
            chunks = [(c.num_tokens, c.start + c.num_tokens) for c in plan.chunks]
            moved = len(plan.swap_out) + len(plan.swap_in)
            clock.now += clock.noise(seconds(chunks) + 0.0005 * moved)
            return StepResult({c.request.request_id: [c.start % 1000] for c in plan.chunks if c.samples})

        engine.executor = SimpleNamespace(execute=execute, backend=engine.executor.backend)
        return llm

    virtual = Machine(make_llm, repetitions)
    virtual.seconds_to_move_a_block = lambda: 0.0005
    return virtual
