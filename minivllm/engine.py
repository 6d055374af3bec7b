"""The engine: one step is schedule → execute → update, and everything else is around it.

`Engine` takes requests at any time and returns outputs step by step; `LLM` is the offline front that
runs a batch of prompts to the end. Nothing here knows how blocks or tensors work.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .assembly import assemble, make_bookkeeping
from .config import EngineConfig
from .outputs import OutputGroup, RequestOutput
from .parts import Parts
from .request import Request
from .sampling import SamplingParams
from .scheduler.levels import refuse_request
from .trace import Trace

Prompt = str | dict[str, Any] | Sequence[int]


class Engine:
    """Continuous requests over one model. Not thread-safe: one caller steps it."""

    def __init__(self, config: EngineConfig, parts: Parts | None = None) -> None:
        self.parts = parts or Parts()
        built = assemble(config, self.parts)
        self.config = built.config
        self.model_config = built.model_config
        self.tokenizer = built.tokenizer
        self.executor = built.executor
        self.kv = built.kv
        self.scheduler = built.scheduler
        self._num_blocks_allocated = self.kv.num_blocks
        self.trace, self._num_preempted = self._new_trace(), 0
        self._groups: dict[str, OutputGroup] = {}  # unfinished requests, with all their completions
        self._num_added = 0

    @property
    def has_unfinished_requests(self) -> bool:
        return bool(self._groups)

    @property
    def unfinished_ids(self) -> list[str]:
        return list(self._groups)

    def add_request(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        priority: int = 0,
        ttft_target: float | None = None,
        itl_target: float | None = None,
    ) -> str:
        """Queue a request and return its id. `priority` (smaller first) counts with policy="priority",
        the targets in seconds with policy="slo". `ValueError` for a prompt that is empty, has a token
        id out of range, or can never fit; nothing is queued then."""
        params = params or SamplingParams()
        refuse_request(self.parts.scheduler_level, params)
        text, token_ids, cache_salt = self._read_prompt(prompt)
        if params.stop_strings and self.tokenizer is None:
            raise ValueError("stop strings need a tokenizer; use stop_token_ids, or load the tokenizer")
        if params.n > 1 and self.config.attention_backend == "contiguous":
            raise ValueError(
                f"n is {params.n}, but a contiguous cache cannot share a prompt; use n=1 or paged"
            )
        request_id = str(self._num_added) if request_id is None else request_id
        if request_id in self._groups or "#" in request_id:
            raise ValueError(f"request id {request_id!r} is in use or has a '#'; choose another")
        request = Request(
            request_id,
            token_ids,
            params,
            arrival=self._num_added,
            max_tokens=params.max_tokens or self._most_new_tokens(len(token_ids)),
            stop_ids=self._stop_ids(params),
            arrival_time=time.perf_counter(),
            priority=priority,
            ttft_target=ttft_target,
            itl_target=itl_target,
            cache_salt=cache_salt,
        )
        self.scheduler.add(request)
        self.trace.add_request(request)
        self._num_added += 1
        self._groups[request_id] = OutputGroup(request, text, self.tokenizer)
        return request_id

    def step(self) -> list[RequestOutput]:
        """Run one step; outputs of the requests that got a token or ended in it."""
        time_start = time.perf_counter()
        plan = self.scheduler.schedule()
        changes, self.kv.changes = self.kv.changes, []
        num_running, num_free = len(self.scheduler.running), self.kv.num_free_blocks
        num_evictable = self.kv.num_evictable_blocks
        for chunk in plan.chunks:
            self._groups[chunk.request.parent_id].metrics.scheduled(time_start)
        try:
            result = self.executor.execute(plan)
        except BaseException:
            if hasattr(self.scheduler, "recover"):
                self.scheduler.recover(plan)
            raise
        now = time.perf_counter()
        self._num_preempted += len(plan.preempted)
        touched: dict[str, OutputGroup] = {}
        sampled = self.scheduler.update(plan, result.token_ids)
        for request, token_id in sampled:
            touched[request.parent_id] = self._take_token(request, token_id, result.details, now)
        if self.config.policy == "slo":
            self.scheduler.step_time.observe(plan.num_tokens, now - time_start)
        self.trace.record(
            plan,
            sampled,
            time_start=time_start,
            time_end=now,
            num_running=num_running,
            num_waiting=len(self.scheduler.waiting),
            num_free_blocks=num_free,
            num_evictable_blocks=num_evictable,
            changes=changes,
        )
        outputs = [group.output() for group in touched.values()]
        for output in outputs:
            if output.finished:
                del self._groups[output.request_id]
        return outputs

    def abort(self, request_id: str) -> RequestOutput | None:
        """End a request now and free its blocks; what it has produced so far, or None if it is not
        (or no longer) here."""
        group = self._groups.pop(request_id, None)
        if group is None:
            return None
        for builder in group.builders:
            self.scheduler.abort(builder.request)
        return group.output()

    def reconfigure(self, num_blocks: int | None = None, **settings: Any) -> None:
        """Change `EngineConfig` settings of the bookkeeping, or use fewer KV blocks, while no request is
        here; prefix cache and trace start anew. The model and its memory stay. `ValueError` if requests
        are here, or for more blocks than there were at the start."""
        if self._groups:
            raise ValueError(f"{len(self._groups)} requests are in the engine; let them end, or abort them")
        fixed = {
            "model",
            "dtype",
            "device",
            "block_size",
            "max_model_len",
            "attention_backend",
        } & settings.keys()
        if fixed:
            raise ValueError(f"{sorted(fixed)[0]} is fixed once the model is loaded; make a new engine")
        num_blocks = num_blocks or self.kv.num_blocks
        if not 1 <= num_blocks <= self._num_blocks_allocated:
            raise ValueError(f"num_blocks is {num_blocks}; there is memory for {self._num_blocks_allocated}")
        config = replace(self.config, **settings)
        self.kv, self.scheduler = make_bookkeeping(config, self.parts, num_blocks, self.kv.swap.num_blocks)
        self.config = config
        self.trace, self._num_preempted = self._new_trace(), 0

    def reset_prefix_cache(self) -> None:
        """Forget all cached prefixes; what running requests use stays theirs."""
        self.kv.reset_prefix_cache()

    def stats(self) -> dict[str, int]:
        """Counters of now and since the start. Blocks are KV blocks of `block_size` tokens; those of
        the prefix cache that nobody uses count as free. Prefix-cache figures are tokens."""
        return {
            "num_blocks": self.kv.num_blocks,
            "num_free_blocks": self.kv.num_free_blocks,
            "num_running": len(self.scheduler.running),
            "num_waiting": len(self.scheduler.waiting),
            "num_preemptions": getattr(self.scheduler, "num_preemptions", self._num_preempted),
            "num_steps": self.trace.num_steps,
            "prefix_cache_queries": self.kv.num_prefix_queries,
            "prefix_cache_hits": self.kv.num_prefix_hits,
            "num_host_blocks": self.kv.swap.num_blocks,
            "num_free_host_blocks": self.kv.swap.num_free_blocks,
        }

    def _new_trace(self) -> Trace:
        config = self.config
        return Trace(
            config.trace_capacity, self.kv.num_blocks, config.block_size, config.max_num_batched_tokens
        )

    def _take_token(self, request: Request, token_id: int, details: dict, now: float) -> OutputGroup:
        group = self._groups[request.parent_id]
        sampled = None
        if details:  # the children's first tokens were sampled from their parent's row
            samples = details.get(request.request_id) or details[request.parent_id]
            sampled = samples[request.index if len(samples) > 1 else 0]
        builder = group.builder_of(request)
        stop = builder.add(token_id, sampled)
        if stop is not None:
            request.stop_reason, request.finish_reason = stop, "stop"
            self.scheduler.abort(request)  # nothing to do if the same token has ended it anyway
        group.metrics.token(now, request.index, request.is_finished)
        return group

    def _read_prompt(self, prompt: Prompt) -> tuple[str | None, list[int], str | None]:
        """(text, token ids, cache salt) of a prompt in any of its forms."""
        salt = None
        if isinstance(prompt, dict):
            if "prompt_token_ids" not in prompt and not isinstance(prompt.get("prompt"), str):
                raise ValueError(f"prompt has the keys {sorted(prompt)}; it needs prompt or prompt_token_ids")
            salt = prompt.get("cache_salt")
            text, token_ids = prompt.get("prompt"), prompt.get("prompt_token_ids")
        elif isinstance(prompt, str):
            text, token_ids = prompt, None
        else:
            text, token_ids = None, prompt
        if token_ids is None:
            if self.tokenizer is None:
                raise ValueError("a text prompt needs a tokenizer; give {'prompt_token_ids': [...]} instead")
            token_ids = self.tokenizer.encode(text)
        token_ids = list(token_ids)
        if not token_ids:
            raise ValueError("the prompt is empty; give it at least 1 token")
        highest = self.model_config.vocab_size - 1
        for token in token_ids:
            if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token <= highest:
                raise ValueError(f"the prompt holds token id {token!r}; ids go from 0 to {highest}")
        return text, token_ids, salt

    def _most_new_tokens(self, num_prompt_tokens: int) -> int:
        """For `max_tokens=None`: as many as model and pool allow; at least 1, to be refused by name."""
        slots = self.kv.num_blocks * self.config.block_size
        return max(1, min(self.config.max_model_len, slots + 1) - num_prompt_tokens)

    def _stop_ids(self, params: SamplingParams) -> frozenset[int]:
        eos = () if params.ignore_eos else self.model_config.eos_token_ids
        return frozenset(eos) | frozenset(params.stop_token_ids or ())
