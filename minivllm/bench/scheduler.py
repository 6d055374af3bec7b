"""What the bookkeeping of a step costs: schedule() + update(), no model, no tensors.

Requests are in steady decode at different places in their blocks, with trace and prefix cache on and
others waiting, as in a busy server. The cost must grow with the number of scheduled requests, and not
with their context.
"""

from __future__ import annotations

import random
import time
from statistics import mean, quantiles
from typing import Any

from tqdm import tqdm

from ..config import EngineConfig
from ..kv.blocks import BlockPool
from ..kv.manager import KVManager
from ..kv.prefix import HashPrefixCache
from ..kv.radix import RadixPrefixCache
from ..request import Request
from ..sampling import SamplingParams
from ..scheduler.continuous import ContinuousScheduler
from ..trace import Trace

BLOCK_SIZE = 16
NUM_WAITING = 64
SHAPES = [(n, 4096) for n in (1, 4, 16, 64, 256, 1024)] + [(256, 512), (256, 16384)]


def measure(
    num_requests: int, context_len: int, num_steps: int, prefix_cache: str = "hash"
) -> dict[str, Any]:
    """Milliseconds a step at `num_requests` running requests of `context_len` tokens (mean and P99)."""
    rng = random.Random(0)
    config = EngineConfig(
        max_num_seqs=num_requests,
        max_num_batched_tokens=num_requests + 32_768,
        max_model_len=2 * context_len + 1024,
        block_size=BLOCK_SIZE,
    )
    max_tokens = num_steps + 64
    blocks_each = (context_len + max_tokens) // BLOCK_SIZE + 2
    cache = {"hash": HashPrefixCache, "radix": RadixPrefixCache}[prefix_cache](BLOCK_SIZE)
    kv = KVManager(BlockPool(num_requests * blocks_each), BLOCK_SIZE, prefix_cache=cache)
    scheduler = ContinuousScheduler(config, kv)
    trace = Trace()
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)

    def step() -> float:
        start = time.perf_counter()
        plan = scheduler.schedule()
        changes, kv.changes = kv.changes, []
        planned = time.perf_counter() - start
        sampled = {c.request.request_id: [rng.randrange(50_000)] for c in plan.chunks if c.samples}
        start = time.perf_counter()
        outputs = scheduler.update(plan, sampled)
        trace.record(
            plan,
            outputs,
            time_start=start,
            time_end=start,
            num_running=len(scheduler.running),
            num_waiting=len(scheduler.waiting),
            num_free_blocks=kv.num_free_blocks,
            num_evictable_blocks=kv.num_evictable_blocks,
            changes=changes,
        )
        return planned + time.perf_counter() - start

    for number in range(num_requests + NUM_WAITING):
        prompt = [rng.randrange(50_000) for _ in range(context_len + rng.randrange(BLOCK_SIZE))]
        scheduler.add(Request(f"r{number}", prompt, params, arrival=number))
    decoding = 0
    while decoding < num_requests:  # the prompts are computed before anything is measured
        step()
        decoding = sum(r.num_output_tokens > 0 for r in scheduler.running)
    remaining = min(r.max_tokens - r.num_output_tokens for r in scheduler.running)
    times = [step() * 1e3 for _ in range(min(num_steps, remaining - 1))]
    return {
        "num_requests": num_requests,
        "context_len": context_len,
        "ms_per_step": mean(times),
        "p99_ms": quantiles(times, n=100)[98],
        "us_per_request": mean(times) * 1e3 / num_requests,
        "num_steps": len(times),
        "prefix_cache": prefix_cache,
    }


def run(num_steps: int = 300, prefix_cache: str = "hash", progress: bool = True) -> dict[str, Any]:
    """{"rows": one per shape}, over 1 … 1,024 requests and three context lengths."""
    bar = tqdm(SHAPES, desc="bench scheduler", unit="row", disable=not progress)
    return {"rows": [measure(n, context, num_steps, prefix_cache) for n, context in bar]}


def table(result: dict[str, Any]) -> str:
    lines = [f"{'requests':>8} {'context':>8} {'ms a step':>10} {'P99':>8} {'µs a request':>13}"]
    for row in result["rows"]:
        lines.append(
            f"{row['num_requests']:>8} {row['context_len']:>8} {row['ms_per_step']:>10.3f} "
            f"{row['p99_ms']:>8.3f} {row['us_per_request']:>13.2f}"
        )
    return "\n".join(lines)
