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
from .attention.quantized import QuantizedBackend
from .attention.triton import TritonBackend
from .config import EngineConfig
from .executor.cuda_graph import DecodeGraphs
from .executor.device import Gpu, auto_dtype, check_dtype
from .executor.inputs import upload_packed
from .executor.memory import fit_blocks, kv_budget, largest_step
from .executor.model_runner import ModelRunner
from .kernels import why_not
from .kernels.cache_formats import head_bytes
from .kernels.ops import KernelOps
from .kv.manager import KVManager
from .kv.prefix import HashPrefixCache
from .kv.radix import RadixPrefixCache
from .model.config import ModelConfig
from .model.fetch import resolve
from .model.loader import load_model
from .model.tokenizer import Tokenizer
from .parts import Parts
from .scheduler.levels import refuse_memory, refuse_settings
from .scheduler.planner import configured

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
    refuse_settings(parts.scheduler_level, config)
    device = _device(config.device)
    gpu = Gpu(device) if device.type == "cuda" else None
    dtype = _dtype(config.dtype, gpu)
    config = _settle(config, model_config)
    tokenizer_thread, tokenizers = _load_tokenizer(path, config)
    model = load_model(path, dtype, device)
    backend = _backend(config, model_config, dtype, device, parts)
    if isinstance(backend, TritonBackend):
        model.ops = KernelOps(backend.kernels)
    executor = ModelRunner(model, backend, config.seed, upload_packed(gpu.send) if gpu else None)
    spare = int(gpu is not None and _can_capture(config, backend, parts))  # blocks beside those of the pool
    num_blocks = config.num_gpu_blocks_override
    if num_blocks is None:
        budget = _gpu_budget(config, executor, gpu, spare) if gpu else _host_budget(config)
        most = config.max_num_seqs * -(-config.max_model_len // config.block_size)
        num_blocks = fit_blocks(budget, _block_bytes(config, model_config, dtype), most, spare)
    backend.allocate(num_blocks + spare)
    if spare:
        executor.graphs = _graphs(config, executor, gpu, num_blocks)
    tokenizer_thread.join()
    if isinstance(tokenizers[0], Exception):
        raise tokenizers[0]
    num_host_blocks = _num_host_blocks(config, model_config, dtype, num_blocks)
    if num_host_blocks:
        backend.allocate_host(num_host_blocks)
    kv, scheduler = make_bookkeeping(config, parts, num_blocks, num_host_blocks)
    return Assembly(config, model_config, tokenizers[0], executor, kv, scheduler)


def make_bookkeeping(config: EngineConfig, parts: Parts, num_blocks: int, num_host_blocks: int = 0):
    """(KV manager, scheduler): all of the engine that holds no tensor. `ValueError` if the settings ask
    for more than the scheduler's level."""
    refuse_settings(parts.scheduler_level, config)
    refuse_memory(parts.scheduler_level, config, num_blocks)
    kv = KVManager(
        parts.block_pool(num_blocks),
        config.block_size,
        parts.block_table,
        _prefix_cache(config, parts),
        num_host_blocks,
    )
    plan_step = parts.plan_step
    if parts.scheduler_level != "complete":  # minivllm's own does this itself
        plan_step = configured(plan_step, config)
    return kv, parts.scheduler(config, kv, plan_step)


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


def _dtype(name: str, gpu: Gpu | None) -> torch.dtype:
    if name == "auto":
        return torch.float32 if gpu is None else auto_dtype(gpu.capability)
    dtype = getattr(torch, name)
    if gpu is not None:
        check_dtype(dtype, gpu.capability)
    return dtype


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


def _host_budget(config) -> float:
    return min(CPU_KV_BYTES, config.gpu_memory_utilization * _free_host_bytes())


def _gpu_budget(config, executor, gpu: Gpu, with_graphs: bool) -> int:
    """Bytes for KV blocks, after the largest step has been tried on a cache of one block."""
    executor.backend.allocate(1)
    # A contiguous cache is one block a request, so that one block serves a single request.
    num_seqs = 1 if config.attention_backend == "contiguous" else config.max_num_seqs
    step = largest_step(config.max_num_batched_tokens, num_seqs, config.max_model_len, config.block_size)
    return kv_budget(gpu.measure(lambda: executor.execute(step)), config.gpu_memory_utilization, with_graphs)


def _can_capture(config, backend, parts: Parts) -> bool:
    """Only what never waits for the device can be captured, and that is known of minivllm's own kernels."""
    return not config.enforce_eager and isinstance(backend, TritonBackend) and not parts.kernels


def _graphs(config, executor, gpu: Gpu, num_blocks: int) -> DecodeGraphs:
    return DecodeGraphs(
        executor.model,
        executor.backend,
        gpu,
        max_num_seqs=min(config.max_num_seqs, config.max_num_batched_tokens),
        max_model_len=min(config.max_model_len, num_blocks * config.block_size),
        block_size=config.block_size,
        spare_block=num_blocks,
    )


def _block_bytes(config, model_config, dtype) -> int:
    per_head = head_bytes(config.kv_cache_dtype, model_config.head_dim, dtype)
    return config.block_size * 2 * model_config.num_layers * model_config.num_kv_heads * per_head


def _num_host_blocks(config, model_config, dtype, num_blocks: int) -> int:
    """Size of the swap space: `swap_space` GiB, but no more than all device blocks twice over."""
    if config.preemption_mode != "swap":
        return 0
    return min(2 * num_blocks, int(config.swap_space * GIB // _block_bytes(config, model_config, dtype)))


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
    is_8_bit = config.kv_cache_dtype != "auto"
    if is_8_bit and (parts.attention_backend is not None or parts.kernels):
        raise ValueError(
            f"kv_cache_dtype is {config.kv_cache_dtype!r}, and parts of your own know no scales; leave it at "
            "'auto', or leave attention_backend and kernels out of the parts"
        )
    if parts.attention_backend is not None:
        return parts.attention_backend(*args)
    if config.attention_backend == "contiguous":
        return ContiguousBackend(*args, kv_cache=parts.kv_cache or ContiguousKVCache)
    wants_kernels = config.attention_backend == "auto" and device.type == "cuda" and not parts.paged_attention
    if config.attention_backend == "triton" or (wants_kernels and why_not("cuda") is None):
        return TritonBackend(*args, kernels=parts.kernels, kv_cache_dtype=config.kv_cache_dtype)
    attention = parts.paged_attention or paged_attention
    if is_8_bit:
        return QuantizedBackend(*args, attention=attention, kv_cache_dtype=config.kv_cache_dtype)
    return PagedBackend(*args, attention=attention)


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
