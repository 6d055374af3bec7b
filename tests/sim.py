"""Engine bookkeeping without a model, with a shadow of what is in every KV slot. No torch.

The shadow stands in for the KV cache: running a plan writes into each slot a value that is a function
of the token and all tokens before it (and the salt), just as keys and values are; copies and swaps
move it. So a slot that holds anything but what its owner should find there is a wrong answer of a
real engine, whichever way it came about.
"""

from __future__ import annotations

from minivllm.config import EngineConfig
from minivllm.kv.blocks import BlockPool
from minivllm.kv.manager import KVManager
from minivllm.kv.prefix import HashPrefixCache
from minivllm.kv.radix import RadixPrefixCache
from minivllm.request import Request, Status
from minivllm.sampling import SamplingParams
from minivllm.scheduler.base import StepPlan
from minivllm.scheduler.continuous import ContinuousScheduler
from minivllm.trace import Trace

CACHES = {"hash": HashPrefixCache, "radix": RadixPrefixCache}


def chain(tokens, salt) -> list[int]:
    """The shadow's content of each position of a token sequence."""
    value, values = hash(("root", salt)), []
    for token in tokens:
        value = hash((value, token))
        values.append(value)
    return values


class Sim:
    """Drives `ContinuousScheduler` as the engine does, and checks the invariants after every step."""

    def __init__(
        self,
        num_blocks: int = 16,
        block_size: int = 4,
        num_host_blocks: int = 0,
        trace_capacity: int = 10_000,
        **settings,
    ) -> None:
        settings = {
            "max_model_len": 64,
            "max_num_seqs": 8,
            "max_num_batched_tokens": 16,
            "enable_prefix_caching": False,
            **settings,
        }
        self.config = EngineConfig(block_size=block_size, **settings)
        cache = CACHES[self.config.prefix_cache](block_size) if self.config.enable_prefix_caching else None
        self.kv = KVManager(
            BlockPool(num_blocks), block_size, prefix_cache=cache, num_host_blocks=num_host_blocks
        )
        self.scheduler = ContinuousScheduler(self.config, self.kv)
        self.requests: dict[str, Request] = {}
        self.plans = []
        self.trace = Trace(trace_capacity, num_blocks, block_size, self.config.max_num_batched_tokens)
        self.tables = {}  # as they stood after the last schedule(), copied in full
        self.num_added = 0
        self.device = [[None] * block_size for _ in range(num_blocks)]
        self.host = [[None] * block_size for _ in range(num_host_blocks)]
        self.wait_bound: dict[str, tuple[int, int]] = {}

    def add(self, prompt, max_tokens: int, request_id: str | None = None, n: int = 1, **fields) -> Request:
        """`prompt` is a length, or the token ids."""
        number = self.num_added
        if isinstance(prompt, int):
            prompt = [1 + (number * 7 + i) % 50 for i in range(prompt)]
        params = SamplingParams(max_tokens=max_tokens, n=n, temperature=1)
        request = Request(request_id or f"r{number}", prompt, params, arrival=number, **fields)
        self.scheduler.add(request)
        if self.scheduler.waiting[0] is request:  # it goes before whoever was first
            self.wait_bound = {}
        self.num_added += 1
        self.trace.add_request(request)
        self.requests[request.request_id] = request
        return request

    def step(self):
        plan = self.schedule()
        changes, self.kv.changes = self.kv.changes, []
        facts = (
            len(self.scheduler.running),
            len(self.scheduler.waiting),
            self.kv.num_free_blocks,
            self.kv.num_evictable_blocks,
        )
        self.tables = {key: list(table.blocks) for key, table in self.kv.tables.items()}
        outputs = self.finish(plan)
        now = len(self.plans)
        self.trace.record(
            plan, outputs, time_start=now - 1.0, time_end=now - 0.5, num_running=facts[0],
            num_waiting=facts[1], num_free_blocks=facts[2], num_evictable_blocks=facts[3], changes=changes,
        )  # fmt: skip
        return plan

    def schedule(self):
        plan = self.scheduler.schedule()
        self.plans.append(plan)
        self.check_plan(plan)
        return plan

    def finish(self, plan):
        self.execute(plan)
        sampled = {
            c.request.request_id: [sample(c.request, i) for i in range(c.request.num_samples)]
            for c in plan.chunks
            if c.samples
        }
        outputs = self.scheduler.update(plan, sampled)
        for request, _ in outputs:
            self.requests.setdefault(request.request_id, request)
        self.check()
        return outputs

    def execute(self, plan) -> None:
        """What an executor does, on the shadow: moves in their order, then the forward pass."""
        for source, target in plan.swap_out:
            self.host[target] = list(self.device[source])
        for source, target in plan.copies:
            self.device[target] = list(self.device[source])
        for source, target in plan.swap_in:
            self.device[target] = list(self.host[source])
        written = set()
        for chunk in plan.chunks:
            values = chain(chunk.request.token_ids, chunk.request.cache_salt)
            slots = chunk.table.slot_mapping(chunk.start, chunk.num_tokens)
            assert not written & set(slots), "two requests write into one slot"
            written.update(slots)
            for position, slot in enumerate(slots, start=chunk.start):
                self.device[slot // self.kv.block_size][slot % self.kv.block_size] = values[position]
        for chunk in plan.chunks:
            self.check_content(chunk.request, chunk.table, chunk.start + chunk.num_tokens)

    def check_content(self, request, table, num_tokens) -> None:
        values = chain(request.token_ids[:num_tokens], request.cache_salt)
        size = self.kv.block_size
        for position, slot in enumerate(table.slot_mapping(0, num_tokens)):
            found = self.device[slot // size][slot % size]
            assert found == values[position], f"{request}: position {position} holds another token's KV"

    def check(self) -> None:
        self.scheduler.check()
        for request in self.scheduler.running:
            if request.num_computed_tokens:
                table = self.kv.tables[request.request_id]
                self.check_content(request, table, request.num_computed_tokens)
        self.check_cached_content()

    def check_cached_content(self) -> None:
        """Whatever the cache would answer a request that comes now is what it should find."""
        if self.kv.prefix_cache is None:
            return
        size = self.kv.block_size
        for request in self.requests.values():
            match = self.kv.prefix_cache.match(request.token_ids, request.cache_salt)
            values = chain(request.token_ids, request.cache_salt)
            assert match.num_tokens == len(match.blocks) * size < request.num_tokens
            for i, block in enumerate(match.blocks):
                assert self.device[block] == values[i * size : (i + 1) * size], "cached content is wrong"
            if match.partial is not None:
                block, k = match.partial
                assert 0 < k <= size and match.num_tokens + k < request.num_tokens
                assert self.device[block][:k] == values[match.num_tokens : match.num_tokens + k]

    def check_plan(self, plan) -> None:
        assert plan.num_tokens <= self.config.max_num_batched_tokens
        ids = [c.request.request_id for c in plan.chunks]
        assert len(set(ids)) == len(ids), "a request is in the plan twice"
        assert not set(ids) & set(plan.preempted), "a request is in the plan and preempted"
        for chunk in plan.chunks:
            assert chunk.num_tokens >= 1
            assert chunk.start >= chunk.request.num_computed_tokens
            assert chunk.table.num_tokens >= chunk.start + chunk.num_tokens
        if self.scheduler.running:
            assert plan.chunks, "requests run, but the step is empty"
        self.check_wait(plan)

    def check_wait(self, plan) -> None:
        """The first waiting request is admitted within the bound that scheduler/continuous.py derives."""
        step = len(self.plans)
        waiting = self.scheduler.waiting
        if waiting and waiting[0].request_id not in self.wait_bound:
            left = sum(
                (r.num_prompt_tokens + r.max_tokens - r.num_computed_tokens) * r.num_samples
                for r in self.scheduler.running
            )
            self.wait_bound = {waiting[0].request_id: (step, left)}  # starts anew when somebody else is first
        elif waiting:
            since, bound = self.wait_bound[waiting[0].request_id]
            assert step - since <= bound + 1, (
                f"{waiting[0]} waits for {step - since} steps, the bound is {bound}"
            )

    def run(self, max_steps: int = 10_000) -> int:
        steps = 0
        while self.scheduler.running or self.scheduler.waiting:
            self.step()
            steps += 1
            assert steps < max_steps, "the engine makes no progress"
        self.kv.settle(StepPlan())  # host blocks of a request that was aborted last
        assert self.kv.num_free_blocks == self.kv.num_blocks
        assert self.kv.swap.num_free_blocks == self.kv.swap.num_blocks
        assert all(r.status is Status.FINISHED for r in self.requests.values())
        return steps


def sample(request: Request, index: int) -> int:
    """A made-up token: a function of what came before, so that a resumed request gets the same ones."""
    return hash((tuple(request.token_ids), request.index + index)) % 50
