"""The paged cache with Triton kernels: the same memory as `PagedBackend`, read without gathering.

A batch of nothing but decodes goes through the split kernel, which one long request is enough to keep
busy; any mixture with prompt chunks through the ragged one. On a CPU both run in Triton's interpreter.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..kernels import load, why_not
from .base import AttentionMeta
from .quantized import QuantizedBackend


class TritonBackend(QuantizedBackend):
    """`AttentionBackend` on kernels; `kernels` replaces some of them by a reader's own. `ValueError`
    where no kernel can run, with the way out."""

    def __init__(
        self,
        config,
        block_size,
        dtype,
        device,
        kernels: dict[str, Callable] | None = None,
        kv_cache_dtype: str = "auto",
    ) -> None:
        reason = why_not(torch.device(device).type)
        if reason is not None:
            raise ValueError(reason)
        super().__init__(config, block_size, dtype, device, kv_cache_dtype=kv_cache_dtype)
        self.kernels = load(kernels)

    def write(self, layer: int, k: torch.Tensor, v: torch.Tensor, slot_mapping: torch.Tensor) -> None:
        caches = self.data[layer, 0], self.data[layer, 1]
        self.kernels["store_kv"](k, v, *caches, slot_mapping, **self._scales_of(layer))

    def attend(self, layer: int, q: torch.Tensor, meta: AttentionMeta) -> torch.Tensor:
        k_cache, v_cache = self.data[layer]
        scales = self._scales_of(layer)
        if meta.max_query_len == 1:
            return self.kernels["paged_decode"](
                q, k_cache, v_cache, meta.block_tables, meta.context_lens, meta.max_context_len, **scales
            )
        return self.kernels["paged_prefill"](
            q, k_cache, v_cache, meta.block_tables, meta.query_start, meta.query_lens, meta.context_lens,
            meta.max_query_len, meta.max_context_len, **scales,
        )  # fmt: skip

    def _scales_of(self, layer: int) -> dict[str, torch.Tensor]:
        """Further arguments of the kernels that touch the cache; none where it is not 8-bit."""
        if self.scales is None:
            return {}
        return {"k_scale": self.scales[layer, 0], "v_scale": self.scales[layer, 1]}
