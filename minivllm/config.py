"""What a user may set, in one frozen dataclass.

The names and defaults in the first group are vLLM's, so that a script moves between the two by
changing its import; the second group is ours. `EngineConfig` checks what can be checked without
the model; what depends on it (`max_model_len`, the number of blocks) is settled by the engine.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

# vLLM's names, and the format that each stands for here: all scales are those of single heads of tokens.
KV_CACHE_DTYPES = {
    "auto": "",
    "fp8": "fp8",
    "fp8_e4m3": "fp8",
    "fp8_per_token_head": "fp8",
    "int8": "int8",
    "int8_per_token_head": "int8",
}
DEFAULT_MODEL = "SmolLM2-135M-Instruct"


@dataclass(frozen=True)
class EngineConfig:
    """Settings of an engine. Lengths are tokens, `swap_space` is GiB; errors are `ValueError`s."""

    model: str = DEFAULT_MODEL
    dtype: str = "auto"
    seed: int = 0
    max_model_len: int | None = None
    block_size: int = 16
    num_gpu_blocks_override: int | None = None
    gpu_memory_utilization: float = 0.92
    swap_space: float = 4
    kv_cache_dtype: str = "auto"
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    tensor_parallel_size: int = 1
    enforce_eager: bool = False
    skip_tokenizer_init: bool = False

    device: str = "auto"
    scheduler: str = "continuous"
    policy: str = "fcfs"
    preemption_mode: str = "recompute"
    prefix_cache: str = "hash"
    long_prefill_token_threshold: int = 0
    attention_backend: str = "auto"
    trace_capacity: int = 10_000

    def __post_init__(self) -> None:
        _one_of(self, "dtype", ("auto", "float32", "bfloat16", "float16"))
        _one_of(self, "scheduler", ("continuous", "static"))
        _one_of(self, "policy", ("fcfs", "priority", "slo"))
        _one_of(self, "preemption_mode", ("recompute", "swap"))
        _one_of(self, "prefix_cache", ("hash", "radix"))
        _one_of(self, "attention_backend", ("auto", "contiguous", "paged", "triton"))
        _one_of(self, "kv_cache_dtype", tuple(KV_CACHE_DTYPES))
        if self.kv_cache_dtype != "auto" and self.attention_backend == "contiguous":
            raise ValueError(
                f"kv_cache_dtype is {self.kv_cache_dtype!r}, which a contiguous cache has no place for the "
                "scales of; use attention_backend='paged' or kv_cache_dtype='auto'"
            )
        for name in ("block_size", "max_num_seqs", "max_num_batched_tokens", "trace_capacity"):
            _at_least(self, name, 1)
        for name in ("max_model_len", "num_gpu_blocks_override"):
            if getattr(self, name) is not None:
                _at_least(self, name, 1)
        _at_least(self, "swap_space", 0)
        _at_least(self, "long_prefill_token_threshold", 0)
        if self.long_prefill_token_threshold and not self.enable_chunked_prefill:
            raise ValueError(
                f"long_prefill_token_threshold is {self.long_prefill_token_threshold}, but without chunked "
                "prefill a prompt is never cut; set it to 0 or enable_chunked_prefill=True"
            )
        if not 0 < self.gpu_memory_utilization <= 1:
            raise ValueError(
                f"gpu_memory_utilization is {self.gpu_memory_utilization}; it is a share of memory, "
                "above 0 and at most 1"
            )
        if self.tensor_parallel_size != 1:
            raise ValueError(
                f"tensor_parallel_size is {self.tensor_parallel_size}; this engine runs on one device, "
                "so leave it at 1"
            )

    @classmethod
    def from_kwargs(cls, **kwargs) -> EngineConfig:
        """Like the constructor, but an unknown name is a `ValueError` that lists the known ones."""
        known = [f.name for f in fields(cls)]
        unknown = [name for name in kwargs if name not in known]
        if unknown:
            raise ValueError(f"unknown setting {unknown[0]!r}; the settings are {', '.join(known)}")
        return cls(**kwargs)


def _one_of(config: EngineConfig, name: str, allowed: tuple[str, ...]) -> None:
    value = getattr(config, name)
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(allowed)}")


def _at_least(config: EngineConfig, name: str, low: int) -> None:
    value = getattr(config, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < low:
        raise ValueError(f"{name} is {value!r}; it must be a number of at least {low}")
