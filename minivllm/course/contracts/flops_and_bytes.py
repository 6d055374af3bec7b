"""0.1 `flops_and_bytes(cfg, num_tokens, context_len, dtype_bytes, batch=1)`: the cost of one forward.

Each rule changes one size of a small model and looks at what that adds, so that what is forgotten or
counted twice is named; only the last ones look at totals.
"""

from __future__ import annotations

from .expect import show
from .rules import Broken, Rules
from .small_shapes import bytes_of, describe, equal, flops_of, large_shape, lent, pair, random_shape, shape

rules = Rules()
FLOPS, BYTES = 0, 1


def _call(cfg, *numbers: int) -> str:
    return f"flops_and_bytes(cfg, {', '.join(map(str, numbers))}), {describe(cfg)}"


def _cost(part, cfg, *numbers):
    return pair(_call(cfg, *numbers), part(lent(cfg), *numbers), "FLOPs and bytes")


def _growth(part, which: int, numbers: tuple, **change: tuple[int, int]) -> None:
    """Compare what a larger size of the model adds to FLOPs or bytes."""
    (name, (small, large)), *_ = change.items()
    before, after = shape(**{name: small}), shape(**{name: large})
    got = _cost(part, after, *numbers)[which] - _cost(part, before, *numbers)[which]
    if which == FLOPS:
        n, context, _, *batch = numbers
        want = flops_of(after, n, context, *batch) - flops_of(before, n, context, *batch)
    else:
        want = bytes_of(after, *numbers) - bytes_of(before, *numbers)
    what = ("FLOPs", "bytes")[which]
    called = f"{_call(after, *numbers)}: {what} more than with {name} {small}"
    equal(called, got, want)


@rules.add("return flops, num_bytes")
def it_returns_flops_and_bytes(part, rng):
    cfg = shape()
    got = _cost(part, cfg, 1, 1, 2)
    if min(got) <= 0:
        raise Broken(_call(cfg, 1, 1, 2), show(got), "two positive numbers")


@rules.add("The MLP has gate, up and down: 3 · hidden_size · intermediate_size weights, 2 FLOPs for each.")
def the_mlp_is_three_matrices(part, rng):
    _growth(part, FLOPS, (1, 1, 2), intermediate_size=(56, 72))
    _growth(part, FLOPS, (5, 9, 2), intermediate_size=(56, 80))


@rules.add("For each key seen: q · k takes 2 · head_dim FLOPs a head, weight times v as many again.")
def a_query_pays_for_every_key_of_its_context(part, rng):
    cfg = shape()
    for near, far in ((1, 2), (10, 60)):
        got = _cost(part, cfg, 1, far, 2)[FLOPS] - _cost(part, cfg, 1, near, 2)[FLOPS]
        want = flops_of(cfg, 1, far) - flops_of(cfg, 1, near)
        equal(f"{_call(cfg, 1, far, 2)}: FLOPs more than with context_len {near}", got, want)


@rules.add("k and v are num_kv_heads · head_dim wide each: that many columns of hidden_size weights.")
def keys_and_values_are_as_wide_as_the_kv_heads(part, rng):
    _growth(part, FLOPS, (3, 3, 2), num_kv_heads=(2, 3))


@rules.add("Only the last token of a request meets the output layer: 2 · hidden_size · vocab_size FLOPs.")
def the_output_layer_runs_once_for_each_request(part, rng):
    _growth(part, FLOPS, (5, 8, 2), vocab_size=(100, 130))
    _growth(part, FLOPS, (5, 8, 2, 3), vocab_size=(100, 130))


@rules.add("q is num_heads · head_dim wide, and so is what goes into o; that need not be hidden_size.")
def queries_are_as_wide_as_all_heads(part, rng):
    _growth(part, FLOPS, (1, 1, 2), hidden_size=(40, 48))


@rules.add("Causal: the first of n prompt tokens sees 1 key, the last n. Together n · (n + 1) / 2.")
def a_prompt_token_sees_itself_and_what_is_before_it(part, rng):
    cfg = shape()
    for n in (2, 7, 33):
        equal(f"{_call(cfg, n, n, 2)}: FLOPs", _cost(part, cfg, n, n, 2)[FLOPS], flops_of(cfg, n, n))


@rules.add("The first of n new tokens sees context_len − n + 1 keys: context_len counts the new ones.")
def a_chunk_sees_what_was_cached_before_it(part, rng):
    cfg = shape()
    for n, context in ((4, 10), (1, 10), (9, 10)):
        got = _cost(part, cfg, n, context, 2)[FLOPS]
        equal(f"{_call(cfg, n, context, 2)}: FLOPs", got, flops_of(cfg, n, context))


@rules.add("A forward reads each weight once, for one token or for many. That is why batching pays.")
def weights_are_read_once_whoever_is_there(part, rng):
    _growth(part, BYTES, (1, 1, 2), intermediate_size=(56, 72))
    _growth(part, BYTES, (6, 9, 2, 4), intermediate_size=(56, 72))
    _growth(part, BYTES, (6, 9, 2, 4), vocab_size=(100, 130))


@rules.add("Attention reads keys and values of the whole context: one key and one value a token and layer.")
def the_cache_of_every_request_is_read(part, rng):
    cfg = shape()
    for batch in (1, 5):
        got = _cost(part, cfg, 3, 50, 2, batch)[BYTES] - _cost(part, cfg, 3, 20, 2, batch)[BYTES]
        want = bytes_of(cfg, 3, 50, 2, batch) - bytes_of(cfg, 3, 20, 2, batch)
        equal(f"{_call(cfg, 3, 50, 2, batch)}: bytes more than with context_len 20", got, want)


@rules.add("Each new token's key and value are written too: num_tokens + context_len of them move.")
def new_keys_and_values_are_written(part, rng):
    cfg = shape()
    for n, context in ((1, 12), (12, 12), (4, 12)):
        got = _cost(part, cfg, n, context, 2)[BYTES]
        equal(f"{_call(cfg, n, context, 2)}: bytes", got, bytes_of(cfg, n, context, 2))


@rules.add("Every number that moves takes dtype_bytes; FLOPs do not depend on it.")
def bytes_follow_the_size_of_a_number(part, rng):
    cfg = shape()
    for dtype_bytes in (1, 2, 4):
        flops, num_bytes = _cost(part, cfg, 2, 7, dtype_bytes)
        equal(f"{_call(cfg, 2, 7, dtype_bytes)}: bytes", num_bytes, bytes_of(cfg, 2, 7, dtype_bytes))
        equal(f"{_call(cfg, 2, 7, dtype_bytes)}: FLOPs", flops, flops_of(cfg, 2, 7))


@rules.add("FLOPs, keys and values are each request's own; weights are shared.")
def totals_are_right_for_any_model(part, rng):
    for _ in range(20):
        cfg, context = random_shape(rng), rng.randint(1, 300)
        n, dtype_bytes, batch = rng.randint(1, context), rng.choice([1, 2, 4]), rng.randint(1, 9)
        called = _call(cfg, n, context, dtype_bytes, batch)
        flops, num_bytes = _cost(part, cfg, n, context, dtype_bytes, batch)
        equal(f"{called}: FLOPs", flops, flops_of(cfg, n, context, batch))
        equal(f"{called}: bytes", num_bytes, bytes_of(cfg, n, context, dtype_bytes, batch))


@rules.add("Add up in one go instead of in loops: 1 + 2 + … + n = n · (n + 1) / 2.")
def a_large_batch_of_long_prompts_is_counted_at_once(part, rng):
    cfg, n, batch = large_shape(), 10**6, 10**9
    flops, _ = _cost(part, cfg, n, n, 2, batch)
    equal(f"{_call(cfg, n, n, 2, batch)}: FLOPs", flops, flops_of(cfg, n, n, batch))
