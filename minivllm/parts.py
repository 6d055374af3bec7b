"""Parts: the classes an engine is made of, each of which a reader may replace by their own.

`LLM(model, parts=Parts(block_pool=MyBlockPool))` runs the reader's class in the real engine; what is
not given is minivllm's own. Each field is a factory (a class will do), called as its comment says.
The fields that name no default here are resolved when the engine is built, so that the bookkeeping
stays importable without torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from .kv.blocks import BlockPool, BlockTable
from .scheduler.continuous import ContinuousScheduler
from .scheduler.planner import plan_step


@dataclass(frozen=True)
class Parts:
    """Factories of an engine's parts. The behaviour that each must show is its contract, in
    minivllm/course/contracts; the interface is the class or Protocol named here."""

    block_pool: Callable[..., Any] = BlockPool  # (num_blocks) -> kv.blocks.BlockPool
    block_table: Callable[..., Any] = BlockTable  # (block_size) -> kv.blocks.BlockTable
    prefix_cache: Callable[..., Any] | None = None  # (block_size) -> kv.prefix.PrefixCache
    scheduler: Callable[..., Any] = ContinuousScheduler  # (config, kv, plan_step) -> scheduler.base.Scheduler
    plan_step: Callable[..., Any] = plan_step  # (running, waiting, budget, kv) -> [(request, n)]
    kv_cache: Callable[..., Any] | None = None  # one request's cache of the contiguous backend
    attention_backend: Callable[..., Any] | None = None  # -> attention.base.AttentionBackend
    paged_attention: Callable[..., Any] | None = None  # the function inside the paged backend
    kernels: dict[str, Callable[..., Any]] | None = None  # the Triton backend's, by name
    scheduler_level: str = "complete"  # what `scheduler` has shown: see scheduler/levels.py

    def replaced(self) -> list[str]:
        """Names of the parts that are not minivllm's own."""
        default = Parts()
        names = [f.name for f in fields(self) if f.name != "scheduler_level"]
        return [name for name in names if getattr(self, name) is not getattr(default, name)]
