"""The paged cache with Triton kernels: the same memory as `PagedBackend`, read without gathering.

A batch of nothing but decodes goes through the split kernel, which one long request is enough to keep
busy; any mixture with prompt chunks through the ragged one. On a CPU both run in Triton's interpreter.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..kernels import load, why_not
from .base import AttentionMeta
from .paged import PagedBackend


class TritonBackend(PagedBackend):
    """`AttentionBackend` on kernels; `kernels` replaces some of them by a reader's own. `ValueError`
    where no kernel can run, with the way out."""

    def __init__(self, config, block_size, dtype, device, kernels: dict[str, Callable] | None = None) -> None:
        reason = why_not(torch.device(device).type)
        if reason is not None:
            raise ValueError(reason)
        super().__init__(config, block_size, dtype, device)
        self._kernels = load(kernels)

    def write(self, layer: int, k: torch.Tensor, v: torch.Tensor, slot_mapping: torch.Tensor) -> None:
        self._kernels["store_kv"](k, v, self.data[layer, 0], self.data[layer, 1], slot_mapping)

    def attend(self, layer: int, q: torch.Tensor, meta: AttentionMeta) -> torch.Tensor:
        k_cache, v_cache = self.data[layer]
        if meta.max_query_len == 1:
            return self._kernels["paged_decode"](
                q, k_cache, v_cache, meta.block_tables, meta.context_lens, meta.max_context_len
            )
        return self._kernels["paged_prefill"](
            q, k_cache, v_cache, meta.block_tables, meta.query_start, meta.query_lens, meta.context_lens,
            meta.max_query_len, meta.max_context_len,
        )  # fmt: skip
