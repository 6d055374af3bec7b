"""A stand-in for `executor.device.Gpu` that needs no GPU and is as strict as one.

Its graphs are recorded operation by operation, with the very tensors they touched, and a replay does the
same operations on the same memory: as with CUDA, Python is not run again, so a number that was not in a
buffer when the graph was captured never reaches it, and nothing may ask for a value in between.
"""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from minivllm.attention.paged import PagedBackend
from minivllm.executor.memory import MemoryUse


class Recording(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func is not torch.ops.aten._local_scalar_dense.default, "a capture waits for the device"
        out = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, out))
        return out

    def replay(self):
        for func, args, kwargs, recorded in self.calls:
            out = func(*args, **kwargs)
            pairs = zip(out, recorded, strict=True) if isinstance(out, list | tuple) else [(out, recorded)]
            for new, old in pairs:
                if isinstance(new, torch.Tensor) and new.data_ptr() != old.data_ptr():
                    old.copy_(new)


class FakeGpu:
    def __init__(self, use=None):
        self.use = use or MemoryUse(total=1000, resting=100, peak=300, others=50)
        self.sent, self.num_captured, self.num_replayed = None, 0, 0

    def send(self, numbers, target=None):
        self.sent = numbers.copy()
        copy = torch.from_numpy(self.sent.copy())
        return copy if target is None else target.copy_(copy)

    def capture(self, forward):
        forward()
        recording = Recording()
        with recording:
            forward()
        self.num_captured += 1

        def replay():
            self.num_replayed += 1
            recording.replay()

        return replay

    def measure(self, step):
        step()
        return self.use


class MaskedBackend(PagedBackend):
    """Decode over the whole width of the tables, masked: unlike `paged_attention` it asks for no value."""

    def attend(self, layer, q, meta):
        if meta.max_query_len > 1:
            return super().attend(layer, q, meta)
        k_cache, v_cache = self.data[layer]
        num_seqs, num_heads, head_dim = q.shape
        k, v = (cache[meta.block_tables].flatten(1, 2) for cache in (k_cache, v_cache))
        unseen = torch.arange(k.shape[1]) >= meta.context_lens[:, None]
        k, v = (x.masked_fill(unseen[:, :, None, None], 0) for x in (k, v))
        grouped = q.view(num_seqs, k.shape[2], -1, head_dim)
        scores = torch.einsum("sgrd,stgd->sgrt", grouped, k) * head_dim**-0.5
        weights = scores.masked_fill(unseen[:, None, None], float("-inf")).softmax(-1)
        return torch.einsum("sgrt,stgd->sgrd", weights, v).reshape(q.shape)
