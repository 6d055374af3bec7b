"""What a scheduler may be asked to do, by the level that it has shown.

A scheduler of the labs grows: first it runs whole prompts in memory that is never short ("basic"), then it
takes prompts in pieces ("chunked"), then it takes blocks back when there are none ("preempting"). What
minivllm's own does besides, such as swapping, policies and forks, is "complete". An engine refuses what is
above the level of its scheduler, before a request could get stuck on it.
"""

from __future__ import annotations

from typing import Any

LEVELS = ("basic", "chunked", "preempting", "complete")

# setting → (values that every level takes, the level that takes all others)
_SETTINGS = {
    "enable_chunked_prefill": ((False,), "chunked"),
    "scheduler": (("continuous",), "complete"),
    "policy": (("fcfs",), "complete"),
    "preemption_mode": (("recompute",), "complete"),
}


class AboveLevel(ValueError):
    """The engine is asked for more than its scheduler has shown."""


def refuse_settings(level: str, config: Any) -> None:
    """`AboveLevel` if `config` asks for more than a scheduler of this level does."""
    if level not in LEVELS:
        raise ValueError(f"scheduler_level is {level!r}; it must be one of {', '.join(LEVELS)}")
    for name, (values, needed) in _SETTINGS.items():
        value = getattr(config, name)
        if value not in values and _below(level, needed):
            raise AboveLevel(
                f"{name} is {value!r}, but the scheduler has shown the level {level!r}, and that needs "
                f"{needed!r}; set it to {values[0]!r} or take a scheduler that has shown {needed!r}"
            )


def refuse_memory(level: str, config: Any, num_blocks: int) -> None:
    """`AboveLevel` if blocks can run out under a scheduler that takes none back. `config.max_model_len`
    must be settled."""
    most = config.max_num_seqs * -(-config.max_model_len // config.block_size)
    if num_blocks < most and _below(level, "preempting"):
        raise AboveLevel(
            f"the pool has {num_blocks} KV blocks, but max_num_seqs={config.max_num_seqs} requests of "
            f"max_model_len={config.max_model_len} tokens can come to need {most}, and a scheduler of the "
            f"level {level!r} takes none back; lower max_num_seqs or max_model_len, raise "
            "num_gpu_blocks_override, or take a scheduler that has shown 'preempting'"
        )


def refuse_request(level: str, params: Any) -> None:
    """`AboveLevel` for a request that this level cannot serve."""
    if params.n > 1 and _below(level, "complete"):
        raise AboveLevel(
            f"n is {params.n}, but the scheduler has shown the level {level!r}, and forks need 'complete'; "
            "send the prompt n times, or take minivllm's own scheduler"
        )


def _below(level: str, needed: str) -> bool:
    return LEVELS.index(level) < LEVELS.index(needed)
