"""Put an engine together: model, memory budget, attention backend, pool, scheduler.

Everything that is decided once, before the first request, is decided here: the number of KV blocks
from the memory there is, the real `max_model_len`, which backend serves which setting.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread
from typing import Any

import torch

from .attention.contiguous import ContiguousBackend, ContiguousKVCache
from .attention.paged import PagedBackend, paged_attention
from .config import EngineConfig
from .executor.model_runner import ModelRunner
from .kernels import why_not
from .kv.manager import KVManager
from .kv.prefix import HashPrefixCache
from .kv.radix import RadixPrefixCache
from .model.config import ModelConfig
from .model.fetch import resolve
from .model.loader import load_model
from .model.tokenizer import Tokenizer
from .parts import Parts

GIB = 1024**3
# A laptop has other things to do with its memory, and 2 GiB hold 46,000 tokens of SmolLM2.
CPU_KV_BYTES = 2 * GIB


@dataclass
class Assembly:
    config: EngineConfig  # with max_model_len and block_size as they are really used
    model_config: ModelConfig
    tokenizer: Tokenizer | None
    executor: ModelRunner
    kv: KVManager
    scheduler: Any


def assemble(config: EngineConfig, parts: Parts) -> Assembly:
    """Build every part. `ValueError` for settings that do not go together or with the model."""
    path = resolve(config.model)
    model_config = ModelConfig.from_folder(path)
    device = _device(config.device)
    dtype = _dtype(config.dtype, device)
    config = _settle(config, model_config)
    tokenizer_thread, tokenizers = _load_tokenizer(path, config)
    model = load_model(path, dtype, device)
    num_blocks = config.num_gpu_blocks_override or _num_blocks(config, model_config, dtype, device)
    backend = _backend(config, model_config, dtype, device, parts)
    backend.allocate(num_blocks)
    tokenizer_thread.join()
    if isinstance(tokenizers[0], Exception):
        raise tokenizers[0]
    num_host_blocks = _num_host_blocks(config, model_config, dtype, num_blocks)
    if num_host_blocks:
        backend.allocate_host(num_host_blocks)
    kv, scheduler = make_bookkeeping(config, parts, num_blocks, num_host_blocks)
    executor = ModelRunner(model, backend, config.seed)
    return Assembly(config, model_config, tokenizers[0], executor, kv, scheduler)


def make_bookkeeping(config: EngineConfig, parts: Parts, num_blocks: int, num_host_blocks: int = 0):
    """(KV manager, scheduler): all of the engine that holds no tensor."""
    kv = KVManager(
        parts.block_pool(num_blocks),
        config.block_size,
        parts.block_table,
        _prefix_cache(config, parts),
        num_host_blocks,
    )
    return kv, parts.scheduler(config, kv, parts.plan_step)


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"device is {name!r}; it must be auto, cpu, cuda or cuda:N") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device is {name!r}, but torch sees no CUDA device here; use device='cpu'")
    return device


def _dtype(name: str, device: torch.device) -> torch.dtype:
    if name != "auto":
        return getattr(torch, name)
    if device.type == "cpu":
        return torch.float32
    return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16


def _settle(config: EngineConfig, model_config: ModelConfig) -> EngineConfig:
    limit = model_config.max_position_embeddings
    max_model_len = config.max_model_len or limit
    if max_model_len > limit:
        raise ValueError(f"max_model_len is {max_model_len}, the model goes to {limit} tokens; lower it")
    block_size, prefix_caching = config.block_size, config.enable_prefix_caching
    if config.attention_backend == "contiguous":
        block_size = max_model_len  # one block a request, reserved whole
        prefix_caching = False  # nothing but whole requests could be shared
        if config.preemption_mode == "swap":
            raise ValueError("preemption_mode is 'swap', which a contiguous cache has no use for; use paged")
    if not config.enable_chunked_prefill and config.max_num_batched_tokens < max_model_len:
        raise ValueError(
            f"max_num_batched_tokens is {config.max_num_batched_tokens}, max_model_len is {max_model_len}: "
            "without chunked prefill a step must hold the longest prompt; raise the first, lower the second, "
            "or set enable_chunked_prefill=True"
        )
    return replace(
        config, max_model_len=max_model_len, block_size=block_size, enable_prefix_caching=prefix_caching
    )


def _num_blocks(config, model_config, dtype, device) -> int:
    """As many blocks as the memory budget holds, but no more than could ever be used."""
    block_bytes = config.block_size * model_config.kv_bytes_per_token(dtype.itemsize)
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        budget = free - (1 - config.gpu_memory_utilization) * total
    else:
        budget = min(CPU_KV_BYTES, config.gpu_memory_utilization * _free_host_bytes())
    most = config.max_num_seqs * -(-config.max_model_len // config.block_size)
    num_blocks = min(most, int(budget // block_bytes))
    if num_blocks < 1:
        raise ValueError(
            f"one KV block takes {block_bytes / GIB:.2f} GiB, {max(budget, 0) / GIB:.2f} GiB are free for "
            "them; lower block_size or max_model_len, or raise gpu_memory_utilization"
        )
    return num_blocks


def _num_host_blocks(config, model_config, dtype, num_blocks: int) -> int:
    """Size of the swap space: `swap_space` GiB, but no more than all device blocks twice over."""
    if config.preemption_mode != "swap":
        return 0
    block_bytes = config.block_size * model_config.kv_bytes_per_token(dtype.itemsize)
    return min(2 * num_blocks, int(config.swap_space * GIB // block_bytes))


def _prefix_cache(config, parts: Parts):
    if not config.enable_prefix_caching:
        return None
    if parts.prefix_cache is not None:
        return parts.prefix_cache(config.block_size)
    return {"hash": HashPrefixCache, "radix": RadixPrefixCache}[config.prefix_cache](config.block_size)


def _free_host_bytes() -> int:
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # not every system tells
        return CPU_KV_BYTES


def _backend(config, model_config, dtype, device, parts: Parts):
    args = (model_config, config.block_size, dtype, device)
    if parts.attention_backend is not None:
        return parts.attention_backend(*args)
    if config.attention_backend == "contiguous":
        return ContiguousBackend(*args, kv_cache=parts.kv_cache or ContiguousKVCache)
    wants_kernels = config.attention_backend == "auto" and device.type == "cuda" and not parts.paged_attention
    if config.attention_backend == "triton" or (wants_kernels and why_not("cuda") is None):
        from .attention.triton import TritonBackend

        return TritonBackend(*args, kernels=parts.kernels)
    return PagedBackend(*args, attention=parts.paged_attention or paged_attention)


def _load_tokenizer(path: Path, config: EngineConfig) -> tuple[Thread, list]:
    """Read the tokenizer while the weights are read. The list's one entry is it, None or the error."""
    result: list[Any] = [None]

    def load() -> None:
        try:
            result[0] = None if config.skip_tokenizer_init else Tokenizer(path)
        except Exception as error:
            result[0] = error

    thread = Thread(target=load)
    thread.start()
    return thread, result
