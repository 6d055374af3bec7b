"""From a `StepPlan` through the model to sampled tokens.

The numbers of the step go to the device, the model runs over the new tokens of all requests as one
matrix, and the last row of each chunk that samples becomes a token. Nothing waits for the device but
the one transfer of these tokens. On a GPU a decode step may be a CUDA graph; see cuda_graph.py.
"""

from __future__ import annotations

import torch

from ..attention.base import AttentionBackend
from ..sampler import Sampler, SampleRow, request_seed
from ..scheduler.base import Chunk, StepPlan
from .base import StepResult
from .cuda_graph import DecodeGraphs
from .inputs import StepInputs, Upload, upload_each


class ModelRunner:
    """`Executor` on a real model. `model` is a `Decoder`, `backend` has its blocks allocated; `upload`
    brings numbers to the model's device, `graphs` runs the steps that it can."""

    def __init__(
        self,
        model,
        backend: AttentionBackend,
        engine_seed: int,
        upload: Upload | None = None,
        graphs: DecodeGraphs | None = None,
    ) -> None:
        self.model = model
        self.backend = backend
        self.graphs = graphs
        self.shapes: dict[str, torch.Size] = {}  # of the last step's tensors, for whoever looks inside
        self._upload = upload or upload_each(model.device)
        self._sampler = Sampler(engine_seed)
        self._engine_seed = engine_seed

    @torch.inference_mode()
    def execute(self, plan: StepPlan) -> StepResult:
        if plan.swap_out or plan.copies or plan.swap_in:
            self.backend.move_blocks(plan.swap_out, plan.copies, plan.swap_in)
        if not plan.chunks:
            return StepResult()
        inputs = StepInputs.of(plan.chunks)
        run = self._replay if self.graphs is not None and self.graphs.fits(inputs) else self._run
        hidden = run(inputs)
        if hidden is None:
            return StepResult()
        logits = self.model.logits(hidden)
        self.shapes["logits"] = logits.shape
        chunks = [chunk for chunk in plan.chunks if chunk.samples]
        sampled = self._sampler.sample(logits, [self._sample_row(chunk) for chunk in chunks])
        details = {c.request.request_id: tokens for c, tokens in zip(chunks, sampled, strict=True)}
        return StepResult({key: [t.token_id for t in tokens] for key, tokens in details.items()}, details)

    def _run(self, inputs: StepInputs) -> torch.Tensor | None:
        """→ [num_samples, hidden_size], the last row of each chunk that samples; None if none does."""
        on_device = inputs.on_device(self._upload)
        slots, meta = on_device.slots, on_device.meta

        def attend(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            self.backend.write(layer, k, v, slots)
            return self.backend.attend(layer, q, meta)

        hidden = self.model.hidden(on_device.token_ids, on_device.positions, attend)
        self.shapes = {
            "token_ids": on_device.token_ids.shape,
            "positions": on_device.positions.shape,
            "slot_mapping": slots.shape,
            "query_start": meta.query_start.shape,
            "context_lens": meta.context_lens.shape,
            "block_tables": meta.block_tables.shape,
            "hidden": hidden.shape,
        }
        return hidden[on_device.sample_rows] if inputs.sample_rows else None

    def _replay(self, inputs: StepInputs) -> torch.Tensor | None:
        """The same by a CUDA graph."""
        hidden = self.graphs.run(inputs)
        self.shapes = {"token_ids": torch.Size([len(inputs.token_ids)]), "hidden": hidden.shape}
        if not inputs.sample_rows:
            return None
        if len(inputs.sample_rows) == len(hidden):
            return hidden
        (rows,) = self._upload([inputs.sample_rows])
        return hidden[rows]

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
