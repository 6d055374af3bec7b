"""1.1 `attention_one_step(q, k, v)`: one query over its whole context, grouped heads included.

q: [num_heads, head_dim]; k, v: [context_len, num_kv_heads, head_dim] → [num_heads, head_dim].
"""

from __future__ import annotations

import torch

from .expect import close, random_tensor
from .rules import Broken, Rules
from .tiny_model import attention_by_heads

rules = Rules()


def _qkv(rng, heads, kv_heads, dim, context):
    return (
        random_tensor(rng, heads, dim),
        random_tensor(rng, context, kv_heads, dim),
        random_tensor(rng, context, kv_heads, dim),
    )


def _call(heads, kv_heads, dim, context) -> str:
    return f"attention_one_step(q [{heads}, {dim}], k and v [{context}, {kv_heads}, {dim}])"


def _compare(part, rng, heads, kv_heads, dim, context, called="") -> None:
    q, k, v = _qkv(rng, heads, kv_heads, dim, context)
    want = attention_by_heads(q, k, v)
    close(called or _call(heads, kv_heads, dim, context), part(q, k, v), want)


@rules.add("With one key the only weight is 1: the answer is that token's value.")
def one_token_attends_to_itself(part, rng):
    q, k, v = _qkv(rng, 2, 2, 4, 1)
    want = v[0].clone()
    close(_call(2, 2, 4, 1), part(q, k, v), want)


@rules.add("Softmax runs over the context, once for each head; the weights of a head sum to 1.")
def equal_keys_give_the_mean_of_the_values(part, rng):
    q, _, v = _qkv(rng, 2, 2, 4, 5)
    k = random_tensor(rng, 1, 2, 4).repeat(5, 1, 1)
    want = v.mean(0)
    close("5 equal keys: " + _call(2, 2, 4, 5), part(q, k, v), want)


@rules.add("Each head has queries, keys and values of its own: scores = q · k, one per token.")
def heads_of_their_own_match_the_full_matrix(part, rng):
    for context in (2, 7, 33):
        _compare(part, rng, 4, 4, 8, context)


@rules.add("Divide the scores by the square root of head_dim before the softmax.")
def scores_are_scaled_by_head_dim(part, rng):
    for dim in (1, 2, 16, 64):
        _compare(part, rng, 3, 3, dim, 6)


@rules.add("Query head h reads KV head h // (num_heads // num_kv_heads): neighbours share, 0 0 0 1 1 1.")
def neighbouring_heads_share_a_kv_head(part, rng):
    for heads, kv_heads in ((6, 2), (9, 3), (8, 4)):
        _compare(part, rng, heads, kv_heads, 8, 10)


@rules.add("With num_kv_heads = 1 every query head reads KV head 0.")
def one_kv_head_serves_all(part, rng):
    _compare(part, rng, 5, 1, 8, 9)


@rules.add("Use softmax as it is in torch: it subtracts the maximum first. exp(1000) alone is infinite.")
def large_scores_do_not_overflow(part, rng):
    q, k, v = _qkv(rng, 2, 1, 8, 6)
    want = attention_by_heads(q * 300, k, v)
    close("queries 300 times as long: " + _call(2, 1, 8, 6), part(q * 300, k, v), want)


@rules.add("Do not write into q, k or v: the cache still needs them. x *= 2 changes x, x * 2 does not.")
def the_inputs_are_left_alone(part, rng):
    inputs = _qkv(rng, 4, 2, 8, 5)
    copies, want = [x.clone() for x in inputs], attention_by_heads(*inputs)
    close(_call(4, 2, 8, 5), part(*inputs), want)
    for name, now, before in zip("qkv", inputs, copies, strict=True):
        if not torch.equal(now, before):
            raise Broken(_call(4, 2, 8, 5), f"{name} changed", f"{name} as it was")


@rules.add("A cache hands out views; einsum and matmul take them, .view() may not. Try .reshape().")
def views_into_larger_tensors_work(part, rng):
    q, k, v = _qkv(rng, 4, 2, 8, 12)
    k, v, q = k.transpose(0, 1).contiguous().transpose(0, 1)[:7], v[:7], q.t().contiguous().t()
    want = attention_by_heads(q, k, v)
    close("views: " + _call(4, 2, 8, 7), part(q, k, v), want)
