"""Backends against attention written out in float64, whatever lies in slots that belong to nobody."""

import math
import random
from types import SimpleNamespace

import pytest
import torch

from minivllm.attention.base import AttentionMeta
from minivllm.attention.contiguous import ContiguousBackend, ContiguousKVCache
from minivllm.attention.paged import PagedBackend, paged_attention


def spec(q, k, v):
    """Last num_queries positions of one request: the definition, head by head, in float64."""
    num_queries, num_heads, head_dim = q.shape
    group = num_heads // k.shape[1]
    out = torch.empty_like(q, dtype=torch.float64)
    for i in range(num_queries):
        seen = k.shape[0] - num_queries + i + 1
        for h in range(num_heads):
            scores = k[:seen, h // group].double() @ q[i, h].double() / math.sqrt(head_dim)
            out[i, h] = scores.softmax(0) @ v[:seen, h // group].double()
    return out


def ragged(rng, block_size, num_kv_heads, group, head_dim=16, garbage=float("nan")):
    """A random batch in a cache whose unused slots hold garbage."""
    torch.manual_seed(rng.randint(0, 10**6))
    contexts = [rng.randint(1, 40) for _ in range(rng.randint(1, 5))]
    queries = [rng.choice([1, rng.randint(1, c)]) for c in contexts]
    widest = max(-(-c // block_size) for c in contexts)
    num_blocks = len(contexts) * widest + 2
    free = rng.sample(range(num_blocks), num_blocks)
    cache = torch.full((2, num_blocks, block_size, num_kv_heads, head_dim), garbage)
    tables, whole, q = [], [], []
    for context_len, query_len in zip(contexts, queries, strict=True):
        blocks = [free.pop() for _ in range(-(-context_len // block_size))]
        kv = torch.randn(2, context_len, num_kv_heads, head_dim)
        for position in range(context_len):
            cache[:, blocks[position // block_size], position % block_size] = kv[:, position]
        tables.append(blocks + [0] * (widest - len(blocks)))
        whole.append(kv)
        q.append(torch.randn(query_len, num_kv_heads * group, head_dim))
    expected = torch.cat([spec(qi, kv[0], kv[1]) for qi, kv in zip(q, whole, strict=True)])
    return torch.cat(q), cache, torch.tensor(tables), torch.tensor(contexts), torch.tensor(queries), expected


@pytest.mark.parametrize("block_size", [1, 3, 16])
@pytest.mark.parametrize("num_kv_heads,group", [(1, 4), (2, 1), (3, 3)])
def test_ragged_batches_match_the_definition_and_garbage_is_never_read(block_size, num_kv_heads, group):
    rng = random.Random(block_size * 10 + group)
    for _ in range(15):
        q, cache, tables, contexts, queries, expected = ragged(rng, block_size, num_kv_heads, group)
        out = paged_attention(q, cache[0], cache[1], tables, contexts, queries)
        assert (out - expected).abs().max() / expected.abs().max() < 2e-6


@pytest.mark.parametrize("kind", ["contiguous", "paged"])
def test_backend_returns_what_was_written_however_the_prompt_was_cut(kind):
    config = SimpleNamespace(num_layers=2, num_kv_heads=2, head_dim=8)
    torch.manual_seed(0)
    length, layer = 21, 1
    q, k, v = torch.randn(length, 4, 8), torch.randn(length, 2, 8), torch.randn(length, 2, 8)
    expected = spec(q, k, v)
    for cuts in ([21], [1] * 21, [5, 1, 9, 6]):
        block_size = 32 if kind == "contiguous" else 4
        backend = (ContiguousBackend if kind == "contiguous" else PagedBackend)(
            config, block_size, torch.float32, torch.device("cpu")
        )
        backend.allocate(8)
        table = torch.tensor([[3, 1, 7, 0, 2, 5]])
        start = 0
        for n in cuts:
            rows = slice(start, start + n)
            positions = torch.arange(start, start + n)
            slots = table[0][positions // block_size] * block_size + positions % block_size
            meta = AttentionMeta(
                torch.tensor([0, n]),
                torch.tensor([n]),
                torch.tensor([start + n]),
                table[:, : -(-(start + n) // block_size)],
            )
            for each_layer in range(2):
                backend.write(each_layer, k[rows], v[rows], slots)
                out = backend.attend(each_layer, q[rows], meta)
            assert (out - expected[rows]).abs().max() < 1e-5, (cuts, start)
            start += n
        assert layer == each_layer


def test_contiguous_cache_refuses_more_than_it_was_made_for():
    cache = ContiguousKVCache(1, 4, 1, 2)
    cache.append(0, torch.ones(3, 1, 2), torch.ones(3, 1, 2))
    with pytest.raises(ValueError, match="5 tokens do not fit into a cache of max_len 4"):
        cache.append(0, torch.ones(2, 1, 2), torch.ones(2, 1, 2))
    assert cache.view(0)[0].shape == (3, 1, 2)


def test_next_request_in_a_contiguous_block_starts_from_nothing():
    config = SimpleNamespace(num_layers=1, num_kv_heads=1, head_dim=4)
    backend = ContiguousBackend(config, 8, torch.float32, torch.device("cpu"))
    backend.allocate(1)
    for seed in range(2):
        torch.manual_seed(seed)
        q, k, v = torch.randn(3, 5, 1, 4).unbind(0)
        meta = AttentionMeta(torch.tensor([0, 5]), torch.tensor([5]), torch.tensor([5]), torch.tensor([[0]]))
        backend.write(0, k, v, torch.arange(5))
        assert (backend.attend(0, q, meta) - spec(q, k, v)).abs().max() < 1e-5
