"""One request, and the one rule of the engine: `num_computed_tokens` catches up with `num_tokens`.

`token_ids` holds prompt and output together; `num_computed_tokens` says for how many of them the
keys and values are in the cache. A new prompt, a decode step, a chunk of a long prompt, a request
that was preempted and one whose prefix is cached differ in these two numbers and in nothing else.
"""

from __future__ import annotations

from enum import Enum

from .sampling import SamplingParams


class Status(Enum):
    WAITING = "waiting"  # owns no blocks
    RUNNING = "running"  # owns blocks, and may be scheduled
    SWAPPED = "swapped"  # its blocks are in host memory; not schedulable until it is back
    FINISHED = "finished"  # owns no blocks, and never will again


class Request:
    """State of one sequence. `finish_reason` is "stop", "length" or "abort" once it has ended.

    `arrival` is the engine's running number of the request: the order in which requests came.
    `stop_ids` are the tokens that end it (end of sequence included, unless it is ignored).
    `index` counts the completions of one prompt (n > 1). `ttft_target` and `itl_target` are seconds,
    and `order` is the request's place among all others: see scheduler/policy.py. Requests share cached
    prefixes only with those of the same `cache_salt`.
    """

    def __init__(
        self,
        request_id: str,
        prompt_token_ids: list[int],
        params: SamplingParams,
        *,
        arrival: int = 0,
        max_tokens: int | None = None,
        stop_ids: frozenset[int] = frozenset(),
        arrival_time: float = 0.0,
        index: int = 0,
        priority: int = 0,
        ttft_target: float | None = None,
        itl_target: float | None = None,
        cache_salt: str | None = None,
    ) -> None:
        self.request_id = request_id
        self.params = params
        self.token_ids = list(prompt_token_ids)
        self.num_prompt_tokens = len(prompt_token_ids)
        self.num_computed_tokens = 0
        self.max_tokens = max_tokens if max_tokens is not None else params.max_tokens
        self.stop_ids = stop_ids
        self.arrival = arrival
        self.arrival_time = arrival_time
        self.index = index
        self.priority = priority
        self.ttft_target = ttft_target
        self.itl_target = itl_target
        self.cache_salt = cache_salt
        self.order: tuple[float, ...] = (arrival, index)
        self.status = Status.WAITING
        self.finish_reason: str | None = None
        self.stop_reason: int | str | None = None
        self.num_cached_tokens = 0
        self.num_preemptions = 0
        self.num_skipped_steps = 0  # steps in a row in which it got no token though it stood first or ran

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[self.num_prompt_tokens :]

    @property
    def is_finished(self) -> bool:
        return self.status is Status.FINISHED

    @property
    def parent_id(self) -> str:
        """Id of the request that the user made; completions after the first are called "id#index"."""
        return self.request_id if self.index == 0 else self.request_id.rpartition("#")[0]

    @property
    def num_samples(self) -> int:
        """Tokens to sample when the known ones are computed: n at the end of a prompt that forks."""
        return self.params.n if self.index == 0 and self.num_output_tokens == 0 else 1

    def fork(self, index: int) -> Request:
        """Another completion of the same prompt, with nothing computed yet."""
        return Request(
            f"{self.request_id}#{index}",
            self.token_ids[: self.num_prompt_tokens],
            self.params,
            arrival=self.arrival,
            max_tokens=self.max_tokens,
            stop_ids=self.stop_ids,
            arrival_time=self.arrival_time,
            index=index,
            priority=self.priority,
            ttft_target=self.ttft_target,
            itl_target=self.itl_target,
            cache_salt=self.cache_salt,
        )

    def append(self, token_id: int) -> None:
        """Take a sampled token; decide whether it ends the request (sets `finish_reason`)."""
        self.token_ids.append(token_id)
        num_output = len(self.token_ids) - self.num_prompt_tokens
        if token_id in self.stop_ids and num_output >= self.params.min_tokens:
            self.finish_reason = "stop"
            if token_id in (self.params.stop_token_ids or ()):
                self.stop_reason = token_id
        elif num_output >= self.max_tokens:
            self.finish_reason = "length"

    def __repr__(self) -> str:
        return (
            f"Request({self.request_id!r}, {self.status.value}, "
            f"computed {self.num_computed_tokens} of {self.num_tokens})"
        )
