"""All of the bookkeeping under random use: scheduler, pool, tables, prefix caches, swap, forks.

Hypothesis drives a `Sim` (no torch), which holds every KV slot against a shadow of its content and calls
every `check()` after each step. More than 10,000 scheduler steps in all; the last test counts them.
"""

from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.sim import Sim

steps_taken = 0


class Bookkeeping(RuleBasedStateMachine):
    @initialize(
        num_blocks=st.sampled_from([6, 9, 17, 40]),
        block_size=st.sampled_from([1, 2, 3, 4]),
        max_num_seqs=st.integers(1, 6),
        budget=st.sampled_from([1, 2, 3, 7, 16, 64]),
        threshold=st.sampled_from([0, 0, 2]),
        cache=st.sampled_from([None, "hash", "hash", "radix", "radix"]),
        mode=st.sampled_from(["recompute", "swap"]),
        host_blocks=st.sampled_from([3, 8, 40]),
        policy=st.sampled_from(["fcfs", "priority", "slo"]),
        scheduler=st.sampled_from(["continuous", "continuous", "continuous", "static"]),
    )
    def build(
        self,
        num_blocks,
        block_size,
        max_num_seqs,
        budget,
        threshold,
        cache,
        mode,
        host_blocks,
        policy,
        scheduler,
    ):
        self.sim = Sim(
            num_blocks=num_blocks,
            block_size=block_size,
            num_host_blocks=host_blocks if mode == "swap" else 0,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=budget,
            long_prefill_token_threshold=threshold,
            enable_prefix_caching=cache is not None,
            prefix_cache=cache or "hash",
            preemption_mode=mode,
            policy=policy,
            scheduler=scheduler,
            max_model_len=30,
        )
        self.slots = min(29, num_blocks * block_size)
        self.pending = None

    @rule(
        # A small alphabet and a few stems: prompts share prefixes of every length.
        stem=st.sampled_from([[], [1, 2, 3], [1, 2, 3, 4, 5, 6, 7, 8], [1] * 12]),
        rest=st.lists(st.integers(1, 3), min_size=1, max_size=14),
        max_tokens=st.integers(1, 12),
        n=st.sampled_from([1, 1, 1, 2, 3]),
        priority=st.integers(-1, 2),
        slo_target=st.sampled_from([None, 0.1, 2.0]),
        salt=st.sampled_from([None, None, "a"]),
    )
    def add(self, stem, rest, max_tokens, n, priority, slo_target, salt):
        prompt = (stem + rest)[: max(1, self.slots - max_tokens)]
        max_tokens = min(max_tokens, self.slots - len(prompt) + 1)
        self.sim.add(
            prompt,
            max_tokens,
            n=n,
            priority=priority,
            ttft_target=slo_target,
            itl_target=slo_target,
            arrival_time=len(self.sim.plans) * 0.1,
            cache_salt=salt,
        )

    def busy(self):
        return bool(self.sim.scheduler.running or self.sim.scheduler.waiting)

    @precondition(lambda self: self.pending is None)
    @rule(count=st.integers(1, 12))
    def step(self, count):
        for _ in range(count):
            if self.busy():
                self.take_step()

    def take_step(self):
        global steps_taken
        steps_taken += 1
        self.sim.step()

    @precondition(lambda self: self.pending is None)
    @rule()
    def schedule_only(self):
        """Leave a step half done, so that aborts and additions fall between schedule and update."""
        self.pending = self.sim.schedule()

    @precondition(lambda self: self.pending is not None)
    @rule(fails=st.booleans())
    def finish_step(self, fails):
        global steps_taken
        plan, self.pending = self.pending, None
        steps_taken += 1
        if fails:  # the executor raised: nothing of the plan has happened
            self.sim.scheduler.recover(plan)
            self.sim.wait_bound = {}  # work is done twice now
            self.sim.check()
        else:
            self.sim.finish(plan)

    def unfinished(self):
        return [r for r in self.sim.requests.values() if not r.is_finished]

    @rule(which=st.integers(0, 10**6))
    def abort(self, which):
        requests = list(self.sim.requests.values())
        if requests:
            self.sim.scheduler.abort(requests[which % len(requests)])

    @precondition(lambda self: self.pending is None)
    @rule()
    def preempt(self):
        """Somebody outside wants the latest request out."""
        from minivllm.scheduler.base import StepPlan

        scheduler = self.sim.scheduler
        if scheduler.running:
            plan = StepPlan()
            scheduler._preempt(scheduler.running.pop(), plan)
            self.sim.wait_bound = {}
            self.sim.kv.give_moves_to(plan)
            self.sim.execute(plan)
            self.sim.kv.settle(plan)
            self.sim.check()

    @rule()
    def reset_prefix_cache(self):
        self.sim.kv.reset_prefix_cache()

    @invariant()
    def holds(self):
        if hasattr(self, "sim"):
            self.sim.scheduler.check()

    def teardown(self):
        global steps_taken
        if not hasattr(self, "sim"):
            return
        if self.pending is not None:
            self.finish_step(False)
        steps_taken += self.sim.run()
        kv = self.sim.kv
        assert kv.num_prefix_hits <= kv.num_prefix_queries
        note(f"{len(self.sim.plans)} steps")


Bookkeeping.TestCase.settings = settings(
    max_examples=400,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.generate],
)
TestBookkeeping = Bookkeeping.TestCase


def test_that_was_more_than_ten_thousand_steps():
    assert steps_taken >= 10_000, steps_taken
