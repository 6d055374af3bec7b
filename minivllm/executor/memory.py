"""How many KV blocks a GPU has room for: what is left when everything else has had its share.

The rest is found by trying: one step as large as any may be, on a cache of a single block, shows how much
memory weights and activations take at most. The cache gets what remains of `gpu_memory_utilization` of the
device. (vLLM sizes its cache the same way.) The arithmetic is apart from the measuring, and needs no GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..kv.blocks import BlockTable
from ..request import Request
from ..sampling import SamplingParams
from ..scheduler.base import Chunk, StepPlan

GIB = 1024**3


@dataclass(frozen=True)
class MemoryUse:
    """Bytes. `total`: of the device; `resting`: what this process holds between steps, above all the
    weights; `peak`: what it holds in the midst of the largest step, `resting` included; `others`: the CUDA
    context, and other processes."""

    total: int
    resting: int
    peak: int
    others: int


def kv_budget(use: MemoryUse, utilization: float, with_graphs: bool) -> int:
    """Bytes for KV blocks; negative if the rest alone is too much. CUDA graphs keep activations of their
    own, at most those of the largest step: a graph has no more rows than that."""
    graphs = use.peak - use.resting if with_graphs else 0
    return int(utilization * use.total) - use.others - use.peak - graphs


def fit_blocks(budget: float, block_bytes: int, most: int, spare: int = 0) -> int:
    """Blocks that fit into `budget` bytes beside `spare` ones, but no more than `most`, which is as many as
    could ever be used. `ValueError` if not even one fits."""
    num_blocks = min(most, int(budget // block_bytes) - spare)
    if num_blocks < 1:
        raise ValueError(
            f"one KV block takes {block_bytes / GIB:.2f} GiB, {max(budget, 0) / GIB:.2f} GiB are free for "
            "them; lower block_size, max_model_len or max_num_batched_tokens, or raise gpu_memory_utilization"
        )
    return num_blocks


def largest_step(
    max_num_batched_tokens: int, max_num_seqs: int, max_model_len: int, block_size: int
) -> StepPlan:
    """A step with the most tokens and, within them, the most requests, each of which samples with every
    option that takes memory. All of them use block 0: only the sizes matter."""
    num_seqs = min(max_num_seqs, max_num_batched_tokens)
    params = SamplingParams(temperature=1.0, top_p=0.9, seed=0)
    chunks, left = [], max_num_batched_tokens
    for i in range(num_seqs):
        num_tokens = min(max_model_len, left - (num_seqs - 1 - i))
        left -= num_tokens
        table = BlockTable(block_size)
        table.append_tokens(num_tokens, [0] * table.blocks_needed(num_tokens))
        chunks.append(Chunk(Request(f"profile {i}", [0] * num_tokens, params), 0, num_tokens, table))
    return StepPlan(chunks)
