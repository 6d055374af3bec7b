"""The engine: one step is schedule → execute → update, and everything else is around it.

`Engine` takes requests at any time and returns outputs step by step; `LLM` is the offline front that
runs a batch of prompts to the end. Nothing here knows how blocks or tensors work.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from .assembly import assemble
from .config import EngineConfig
from .outputs import OutputBuilder, RequestOutput
from .parts import Parts
from .request import Request
from .sampling import SamplingParams
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
        self.trace = Trace(config.trace_capacity)
        self._builders: dict[str, OutputBuilder] = {}  # unfinished requests
        self._num_added = 0

    @property
    def has_unfinished_requests(self) -> bool:
        return bool(self._builders)

    def add_request(
        self, prompt: Prompt, params: SamplingParams | None = None, request_id: str | None = None
    ) -> str:
        """Queue a request and return its id. `ValueError` for a prompt that is empty, has a token id
        out of range, or can never fit; nothing is queued then."""
        params = params or SamplingParams()
        text, token_ids = self._read_prompt(prompt)
        if params.stop_strings and self.tokenizer is None:
            raise ValueError("stop strings need a tokenizer; use stop_token_ids, or load the tokenizer")
        if params.n != 1:
            raise ValueError(
                f"n is {params.n}; this engine returns one completion a prompt, so leave it at 1"
            )
        request_id = str(self._num_added) if request_id is None else request_id
        if request_id in self._builders:
            raise ValueError(
                f"request id {request_id!r} is in use; choose another, or wait until it has ended"
            )
        request = Request(
            request_id,
            token_ids,
            params,
            arrival=self._num_added,
            max_tokens=params.max_tokens or self._most_new_tokens(len(token_ids)),
            stop_ids=self._stop_ids(params),
            arrival_time=time.perf_counter(),
        )
        self.scheduler.add(request)
        self._num_added += 1
        self._builders[request_id] = OutputBuilder(request, text, self.tokenizer)
        return request_id

    def step(self) -> list[RequestOutput]:
        """Run one step; outputs of the requests that got a token or ended in it."""
        time_start = time.perf_counter()
        plan = self.scheduler.schedule()
        changes, self.kv.changes = self.kv.changes, []
        num_running, num_free = len(self.scheduler.running), self.kv.num_free_blocks
        for chunk in plan.chunks:
            metrics = self._builders[chunk.request.request_id].metrics
            metrics.first_scheduled_time = metrics.first_scheduled_time or time_start
        result = self.executor.execute(plan)
        now = time.perf_counter()
        outputs = [
            self._take_token(request, token_id, result.details, now)
            for request, token_id in self.scheduler.update(plan, result.token_ids)
        ]
        self.trace.record(
            time_start=time_start,
            time_end=now,
            num_scheduled_tokens={c.request.request_id: c.num_tokens for c in plan.chunks},
            preempted=plan.preempted,
            finished=[output.request_id for output in outputs if output.finished],
            num_running=num_running,
            num_waiting=len(self.scheduler.waiting),
            num_free_blocks=num_free,
            changes=changes,
        )
        return outputs

    def abort(self, request_id: str) -> RequestOutput | None:
        """End a request now and free its blocks; what it has produced so far, or None if it is not
        (or no longer) here."""
        builder = self._builders.pop(request_id, None)
        if builder is None:
            return None
        self.scheduler.abort(builder.request)
        return builder.output()

    def stats(self) -> dict[str, int]:
        """Counters of now and since the start. Blocks are KV blocks of `block_size` tokens."""
        return {
            "num_blocks": self.kv.num_blocks,
            "num_free_blocks": self.kv.num_free_blocks,
            "num_running": len(self.scheduler.running),
            "num_waiting": len(self.scheduler.waiting),
            "num_preemptions": getattr(self.scheduler, "num_preemptions", 0),
            "num_steps": self.trace.num_steps,
            "prefix_cache_queries": 0,
            "prefix_cache_hits": 0,
        }

    def _take_token(self, request: Request, token_id: int, details: dict, now: float) -> RequestOutput:
        builder = self._builders[request.request_id]
        sampled = details[request.request_id][0] if details else None
        stop = builder.add(token_id, now, sampled)
        if stop is not None:
            request.stop_reason, request.finish_reason = stop, "stop"
            self.scheduler.abort(request)  # nothing to do if the same token has ended it anyway
        if request.is_finished:
            builder.metrics.finished_time = now
            del self._builders[request.request_id]
        return builder.output()

    def _read_prompt(self, prompt: Prompt) -> tuple[str | None, list[int]]:
        if isinstance(prompt, str):
            if self.tokenizer is None:
                raise ValueError("a text prompt needs a tokenizer; give {'prompt_token_ids': [...]} instead")
            text, token_ids = prompt, self.tokenizer.encode(prompt)
        elif isinstance(prompt, dict):
            if "prompt_token_ids" not in prompt:
                if isinstance(prompt.get("prompt"), str):
                    return self._read_prompt(prompt["prompt"])
                raise ValueError(f"prompt has the keys {sorted(prompt)}; it needs prompt or prompt_token_ids")
            text, token_ids = prompt.get("prompt"), list(prompt["prompt_token_ids"])
        else:
            text, token_ids = None, list(prompt)
        if not token_ids:
            raise ValueError("the prompt is empty; give it at least 1 token")
        highest = self.model_config.vocab_size - 1
        for token in token_ids:
            if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token <= highest:
                raise ValueError(f"the prompt holds token id {token!r}; ids go from 0 to {highest}")
        return text, token_ids

    def _most_new_tokens(self, num_prompt_tokens: int) -> int:
        """For `max_tokens=None`: as many as model and pool allow; at least 1, to be refused by name."""
        slots = self.kv.num_blocks * self.config.block_size
        return max(1, min(self.config.max_model_len, slots + 1) - num_prompt_tokens)

    def _stop_ids(self, params: SamplingParams) -> frozenset[int]:
        eos = () if params.ignore_eos else self.model_config.eos_token_ids
        return frozenset(eos) | frozenset(params.stop_token_ids or ())
