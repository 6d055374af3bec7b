"""Tensors as bytes: dtype, shape and strides in JSON, the memory between first and last element beside it.

Strides are kept, so that a view arrives as a view. What comes back is checked: a known dtype, whole
numbers, no more elements than `MAX_ELEMENTS`, and as many bytes as the shape takes.
"""

from __future__ import annotations

from typing import Any

import torch

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int64": torch.int64,
    "int32": torch.int32,
    "int16": torch.int16,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "bool": torch.bool,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
MAX_ELEMENTS = 1 << 26


class BadMessage(Exception):
    """The other side sent something that is not a message."""


def to_bytes(tensor: torch.Tensor, blob: bytearray) -> dict[str, Any]:
    """JSON for the tensor; its bytes go to the end of `blob`."""
    tensor = tensor.detach()
    if tensor.dtype not in NAMES:
        raise TypeError(f"a tensor of dtype {tensor.dtype} cannot be sent")
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        tensor = tensor.to("cpu").to_dense()
    if _span(tensor.shape, tensor.stride()) > 4 * tensor.numel() + 1024:
        tensor = tensor.contiguous()
    at = len(blob)
    blob += _flat(tensor).clone().view(torch.uint8).numpy().tobytes()
    size, stride = list(tensor.shape), list(tensor.stride())
    return {"kind": "tensor", "dtype": NAMES[tensor.dtype], "size": size, "stride": stride, "at": at}


def from_bytes(data: Any, blob: bytes) -> torch.Tensor:
    dtype, size, stride, at = DTYPES[data["dtype"]], data["size"], data["stride"], data["at"]
    numbers = [*size, *stride, at]
    if len(size) != len(stride) or len(size) > 16 or not all(type(n) is int and n >= 0 for n in numbers):
        raise BadMessage("a tensor of no shape")
    elements, span = 1, _span(size, stride)
    for n in size:
        elements *= n
    if elements > MAX_ELEMENTS or span > MAX_ELEMENTS or max(numbers) > MAX_ELEMENTS * 8:
        raise BadMessage("a tensor too large")
    piece = blob[at : at + span * dtype.itemsize]
    if len(piece) != span * dtype.itemsize:
        raise BadMessage("a tensor whose bytes are missing")
    if span == 0:
        return torch.empty(size, dtype=dtype)
    if dtype == torch.bool:  # a byte that is neither 0 nor 1 is no bool
        flat = torch.frombuffer(bytearray(piece), dtype=torch.uint8) != 0
    else:
        flat = torch.frombuffer(bytearray(piece), dtype=dtype)
    return flat.as_strided(size, stride)


def overwrite(old: torch.Tensor, new: torch.Tensor) -> None:
    """Make `old`, and all that shares its memory, hold what `new` holds."""
    with torch.no_grad():
        if old.shape != new.shape:
            old.set_(new)
        elif 0 in old.stride() and old.stride() == new.stride():
            _flat(old).copy_(_flat(new))
        else:
            old.copy_(new)


def _span(size: Any, stride: Any) -> int:
    """Elements of memory between a view's first and last, both included."""
    return 0 if 0 in size else 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    span = _span(tensor.shape, tensor.stride())
    return tensor.as_strided((span,), (1,), tensor.storage_offset())
