"""From a `StepPlan` to tensors, through the model, to sampled tokens.

The new tokens of all chunks are laid one behind the other, so the linear layers see one matrix,
whatever mixture of prompt chunks and decodes it is; only attention looks at request borders.
"""

from __future__ import annotations

from itertools import accumulate

import torch

from ..attention.base import AttentionBackend, AttentionMeta
from ..sampler import Sampler, SampleRow, request_seed
from ..scheduler.base import Chunk, StepPlan
from .base import StepResult


class ModelRunner:
    """`Executor` on a real model. `model` is a `Decoder`, `backend` has its blocks allocated."""

    def __init__(self, model, backend: AttentionBackend, engine_seed: int) -> None:
        self.model = model
        self.backend = backend
        self.shapes: dict[str, torch.Size] = {}  # of the last step's tensors, for whoever looks inside
        self._sampler = Sampler(engine_seed)
        self._engine_seed = engine_seed

    @torch.inference_mode()
    def execute(self, plan: StepPlan) -> StepResult:
        if plan.swap_out or plan.copies or plan.swap_in:
            self.backend.move_blocks(plan.swap_out, plan.copies, plan.swap_in)
        if not plan.chunks:
            return StepResult()
        token_ids, positions, slots, meta = self._batch(plan.chunks)
        self.shapes = {
            "token_ids": token_ids.shape,
            "positions": positions.shape,
            "slot_mapping": slots.shape,
            "query_start": meta.query_start.shape,
            "context_lens": meta.context_lens.shape,
            "block_tables": meta.block_tables.shape,
        }

        def attend(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            self.backend.write(layer, k, v, slots)
            return self.backend.attend(layer, q, meta)

        hidden = self.model.hidden(token_ids, positions, attend)
        self.shapes["hidden"] = hidden.shape
        sampling = [i for i, chunk in enumerate(plan.chunks) if chunk.samples]
        if not sampling:
            return StepResult()
        last_rows = (meta.query_start[1:] - 1)[sampling]
        logits = self.model.logits(hidden[last_rows])
        self.shapes["logits"] = logits.shape
        chunks = [plan.chunks[i] for i in sampling]
        sampled = self._sampler.sample(logits, [self._sample_row(chunk) for chunk in chunks])
        details = {c.request.request_id: tokens for c, tokens in zip(chunks, sampled, strict=True)}
        return StepResult({key: [t.token_id for t in tokens] for key, tokens in details.items()}, details)

    def _batch(self, chunks: list[Chunk]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, AttentionMeta]:
        token_ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        for chunk in chunks:
            end = chunk.start + chunk.num_tokens
            token_ids += chunk.request.token_ids[chunk.start : end]
            positions += range(chunk.start, end)
            slots += chunk.table.slot_mapping(chunk.start, chunk.num_tokens)
        query_lens = [chunk.num_tokens for chunk in chunks]
        widest = max(len(chunk.table.blocks) for chunk in chunks)
        block_tables = [chunk.table.blocks + [0] * (widest - len(chunk.table.blocks)) for chunk in chunks]
        meta = AttentionMeta(
            query_start=self._tensor([0, *accumulate(query_lens)]),
            query_lens=self._tensor(query_lens),
            context_lens=self._tensor([chunk.start + chunk.num_tokens for chunk in chunks]),
            block_tables=self._tensor(block_tables),
            max_query_len=max(query_lens),
            max_context_len=max(chunk.start + chunk.num_tokens for chunk in chunks),
        )
        return self._tensor(token_ids), self._tensor(positions), self._tensor(slots), meta

    def _sample_row(self, chunk: Chunk) -> SampleRow:
        request = chunk.request
        return SampleRow(
            params=request.params,
            token_ids=request.token_ids,
            num_prompt_tokens=request.num_prompt_tokens,
            stop_ids=request.stop_ids,
            seed=request_seed(self._engine_seed, request.arrival, request.params) + request.index,
            count=request.num_samples,
        )

    def _tensor(self, values: list) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.model.device)
