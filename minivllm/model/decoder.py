"""One decoder for Llama, Qwen2 and Qwen3, over a ragged batch.

There is no batch dimension: the new tokens of all requests lie one after the other, each with its
position, and everything but attention treats a token as a row. Attention is the caller's: the
decoder hands it q, k, v of a layer and gets the mixed values back, so the same decoder runs over a
contiguous cache, a paged one, or none. q, k, v come from one matrix product, gate and up from
another, which is fewer and larger products.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from .config import ModelConfig
from .layers import TorchOps, rms_norm, rotary_frequencies
from .linear import Linear

# attend(layer, q, k, v) -> output. q: [num_tokens, num_heads, head_dim] and k, v: [num_tokens,
# num_kv_heads, head_dim] may be views with strides; rotary has been applied. The output has q's shape.
Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass
class LayerWeights:
    """Weights of one layer. `qkv` stacks the rows of q, k and v, `gate_up` those of gate and up;
    `qk_norm`: [num_heads + num_kv_heads, head_dim], or None where the model has no such norm."""

    input_norm: torch.Tensor
    qkv: Linear
    qk_norm: torch.Tensor | None
    o: Linear
    post_attention_norm: torch.Tensor
    gate_up: Linear
    down: Linear


class Decoder:
    """A decoder-only transformer. Built by `loader.load_model`; the caller sets inference mode.

    embedding: [vocab_size, hidden_size]. `head` maps to the vocabulary; it is always a `Linear` of
    its own, with tied weights too, since the packed layout of a product is no table to look up in.
    `ops` does what lies between the products, in torch unless an engine sets kernels in its place.
    """

    def __init__(
        self,
        config: ModelConfig,
        embedding: torch.Tensor,
        layers: list[LayerWeights],
        norm: torch.Tensor,
        head: Linear,
    ) -> None:
        self.config = config
        self.embedding = embedding
        self.layers = layers
        self.norm = norm
        self.head = head
        self.ops = TorchOps()
        self.dtype = embedding.dtype
        self.device = embedding.device
        self._frequencies = rotary_frequencies(config.rope, config.head_dim).to(self.device)

    def hidden(self, token_ids: torch.Tensor, positions: torch.Tensor, attend: Attend) -> torch.Tensor:
        """Run all layers. token_ids, positions: int64 [num_tokens], positions within each request
        → [num_tokens, hidden_size], after the final norm."""
        eps, ops = self.config.rms_norm_eps, self.ops
        # x is the residual stream; `update` is what the last block adds to it, on the way into the next norm.
        x, update = F.embedding(token_ids, self.embedding), None
        cos, sin = ops.cos_sin(positions, self._frequencies, self.dtype)
        for index, layer in enumerate(self.layers):
            normed, x = ops.add_norm(x, update, layer.input_norm, eps)
            q, k, v = self._qkv(layer, normed, cos, sin)
            mixed = attend(index, q, k, v)
            update = layer.o(mixed.reshape(len(x), -1))
            normed, x = ops.add_norm(x, update, layer.post_attention_norm, eps)
            update = layer.down(ops.silu_mul(layer.gate_up(normed)))
        return ops.add_norm(x, update, self.norm, eps)[0]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden: [n, hidden_size], rows of `hidden()`'s result → [n, vocab_size], float32."""
        return self.head(hidden).float()

    def _qkv(
        self, layer: LayerWeights, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        num_heads, num_kv_heads = self.config.num_heads, self.config.num_kv_heads
        heads = layer.qkv(x).view(len(x), num_heads + 2 * num_kv_heads, self.config.head_dim)
        qk, v = heads.split([num_heads + num_kv_heads, num_kv_heads], dim=1)
        if layer.qk_norm is not None:
            qk = rms_norm(qk, layer.qk_norm, self.config.rms_norm_eps)
        q, k = self.ops.rotate(qk, cos, sin).split([num_heads, num_kv_heads], dim=1)
        return q, k, v
