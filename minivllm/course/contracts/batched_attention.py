"""1.5 `batched_attention(q, k, v, lengths)`: one query each for requests in one padded tensor.

q: [num_seqs, num_heads, head_dim]; k, v: [num_seqs, max_len, num_kv_heads, head_dim]; request i fills
lengths[i] slots, and whatever lies behind them must not matter.
"""

from __future__ import annotations

import torch

from .expect import close, random_tensor, same
from .rules import Broken, Rules
from .tiny_model import attention_by_heads

rules = Rules()
HEADS, KV_HEADS, DIM = 4, 2, 8


def _batch(rng, lengths, max_len, garbage=0.0):
    q = random_tensor(rng, len(lengths), HEADS, DIM)
    k = random_tensor(rng, len(lengths), max_len, KV_HEADS, DIM)
    v = random_tensor(rng, len(lengths), max_len, KV_HEADS, DIM)
    for i, length in enumerate(lengths):
        k[i, length:] = garbage
        v[i, length:] = garbage
    want = torch.stack([attention_by_heads(q[i], k[i, :n], v[i, :n]) for i, n in enumerate(lengths)])
    return q, k, v, want


def _compare(part, rng, lengths, max_len, garbage=0.0, note="") -> None:
    q, k, v, want = _batch(rng, lengths, max_len, garbage)
    called = f"{note}batched_attention(q, k, v, lengths={lengths}), max_len {max_len}"
    close(called, part(q, k, v, lengths), want)


@rules.add("Start with the scores of 1.1 and one more dimension in front.")
def requests_of_full_length_match_one_by_one(part, rng):
    _compare(part, rng, [6], 6)
    _compare(part, rng, [5, 5, 5], 5)


@rules.add("Scores behind a length become −inf before the softmax: their weight is then 0.")
def empty_slots_take_no_weight(part, rng):
    for lengths in ([3, 8], [1, 2, 3, 4], [8, 1]):
        _compare(part, rng, lengths, 8)


@rules.add("The slots behind a length hold whatever was there before. Only a mask helps, not the values.")
def old_keys_and_values_are_not_seen(part, rng):
    _compare(part, rng, [3, 7, 1], 8, garbage=50.0, note="old data behind the lengths: ")


@rules.add("A weight of 0 does not silence NaN: 0 · NaN is NaN. Put zeros into the masked values too.")
def not_even_nan_gets_through(part, rng):
    _compare(part, rng, [2, 5, 8], 8, garbage=float("nan"), note="NaN behind the lengths: ")


@rules.add("Write into nothing that you were given; masked_fill without underscore returns a new tensor.")
def the_cache_is_left_alone(part, rng):
    *inputs, want = _batch(rng, [2, 4], 5, garbage=7.0)
    copies, lengths = [x.clone() for x in inputs], [2, 4]
    close("batched_attention(q, k, v, lengths=[2, 4])", part(*inputs, lengths), want)
    same("batched_attention(q, k, v, lengths=[2, 4]): lengths afterwards", lengths, [2, 4])
    for name, now, before in zip("qkv", inputs, copies, strict=True):
        if not torch.equal(now, before):
            raise Broken("batched_attention(q, k, v, lengths=[2, 4])", f"{name} changed", f"{name} as it was")
