"""Engine bookkeeping without a model: a scheduler, a KV manager and made-up tokens. No torch."""

from __future__ import annotations

from minivllm.config import EngineConfig
from minivllm.kv.blocks import BlockPool
from minivllm.kv.manager import KVManager
from minivllm.request import Request
from minivllm.sampling import SamplingParams
from minivllm.scheduler.continuous import ContinuousScheduler


class Sim:
    """Drives `ContinuousScheduler` as the engine does, and checks the invariants after every step."""

    def __init__(self, num_blocks: int = 16, block_size: int = 4, **settings) -> None:
        settings = {"max_model_len": 64, "max_num_seqs": 8, "max_num_batched_tokens": 16, **settings}
        self.config = EngineConfig(block_size=block_size, **settings)
        self.kv = KVManager(BlockPool(num_blocks), block_size)
        self.scheduler = ContinuousScheduler(self.config, self.kv)
        self.requests: dict[str, Request] = {}
        self.plans = []

    def add(self, prompt_len: int, max_tokens: int, request_id: str | None = None) -> Request:
        number = len(self.requests)
        request = Request(
            request_id or f"r{number}",
            [1 + (number * 7 + i) % 50 for i in range(prompt_len)],
            SamplingParams(max_tokens=max_tokens),
            arrival=number,
        )
        self.scheduler.add(request)
        self.requests[request.request_id] = request
        return request

    def step(self):
        plan = self.scheduler.schedule()
        self.plans.append(plan)
        self.check_plan(plan)
        sampled = {c.request.request_id: [(c.start * 13 + 5) % 50] for c in plan.chunks if c.samples}
        self.scheduler.update(plan, sampled)
        self.scheduler.check()
        return plan

    def check_plan(self, plan) -> None:
        assert plan.num_tokens <= self.config.max_num_batched_tokens
        ids = [c.request.request_id for c in plan.chunks]
        assert len(set(ids)) == len(ids), "a request is in the plan twice"
        assert not set(ids) & set(plan.preempted), "a request is in the plan and preempted"
        for chunk in plan.chunks:
            assert chunk.num_tokens >= 1
            assert chunk.start == chunk.request.num_computed_tokens
            assert chunk.table.num_tokens >= chunk.start + chunk.num_tokens
        if self.scheduler.running:
            assert plan.chunks, "requests run, but the step is empty"

    def run(self, max_steps: int = 10_000) -> int:
        steps = 0
        while self.scheduler.running or self.scheduler.waiting:
            self.step()
            steps += 1
            assert steps < max_steps, "the engine makes no progress"
        assert self.kv.num_free_blocks == self.kv.num_blocks
        return steps
