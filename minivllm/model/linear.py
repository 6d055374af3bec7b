"""The one place where activations meet a weight matrix.

Every linear layer of the decoder is a `Linear`, so that packed weights, another layout or tensor
parallelism come in here and nowhere else. On the CPU in fp32 the weight is packed once for oneDNN,
and the original dropped. That is faster than `F.linear`, and gives what the engine's promise rests
on: a row of the result has the same bits whatever other rows are in the batch, so a request's
tokens do not depend on its company.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

_PACKED_FOR_ROWS = 32
_single_row_differs: dict[tuple[int, int], bool] = {}


class Linear:
    """y = x · weightᵀ + bias. weight: [out_features, in_features], bias: [out_features] or None."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self.out_features, self.in_features = weight.shape
        self.bias = bias
        self.is_packed = can_pack(weight)
        self.weight = _pack(weight) if self.is_packed else weight
        self._pads_single_row = self.is_packed and self._check_single_row()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x: [num_rows, in_features] → [num_rows, out_features]."""
        if not self.is_packed:
            return F.linear(x, self.weight, self.bias)
        if self._pads_single_row and x.shape[0] == 1:
            return self._multiply(x.expand(2, -1))[:1]
        return self._multiply(x)

    def _multiply(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")

    def _check_single_row(self) -> bool:
        """oneDNN sums a single row in another order than several when in_features is large (above
        1,024 where we looked). Found by trying, once a shape; such a layer computes a row twice."""
        shape = (self.out_features, self.in_features)
        if shape not in _single_row_differs:
            rows = torch.randn(2, self.in_features, generator=torch.Generator().manual_seed(0))
            same = torch.equal(self._multiply(rows)[:1], self._multiply(rows[:1]))
            _single_row_differs[shape] = not same
        return _single_row_differs[shape]


def can_pack(weight: torch.Tensor) -> bool:
    """True for fp32 on a CPU for which this torch was built with oneDNN."""
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    )


def _pack(weight: torch.Tensor) -> torch.Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight, _PACKED_FOR_ROWS)
