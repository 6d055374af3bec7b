"""0.3 `kv_bytes_per_token(cfg, dtype_bytes)`: what one token leaves in the cache, all layers together."""

from __future__ import annotations

from .rules import Rules
from .small_shapes import describe, equal, large_shape, lent, random_shape, shape

rules = Rules()


def _compare(part, cfg, dtype_bytes, note: str = "") -> None:
    want = 2 * cfg.num_layers * cfg.num_kv_heads * cfg.head_dim * dtype_bytes
    called = f"{note}kv_bytes_per_token(cfg, {dtype_bytes}), {describe(cfg)}"
    equal(called, part(lent(cfg), dtype_bytes), want, " bytes")


@rules.add("One layer, one KV head: a key and a value, head_dim numbers each.")
def a_token_leaves_a_key_and_a_value(part, rng):
    _compare(part, shape(num_layers=1, num_heads=1, num_kv_heads=1), 1)


@rules.add("Every layer keeps its own.")
def every_layer_keeps_its_own(part, rng):
    for num_layers in (1, 2, 9):
        _compare(part, shape(num_layers=num_layers, num_heads=1, num_kv_heads=1), 1)


@rules.add("Query heads leave nothing behind: only num_kv_heads counts.")
def only_kv_heads_count(part, rng):
    for kind, kv_heads in (("MHA: ", 6), ("GQA: ", 2), ("MQA: ", 1)):
        _compare(part, shape(num_kv_heads=kv_heads), 1, kind)


@rules.add("Use cfg.head_dim as it is; it need not be hidden_size // num_heads.")
def the_width_of_a_head_is_head_dim(part, rng):
    for head_dim in (2, 64, 128):
        _compare(part, shape(head_dim=head_dim), 1)


@rules.add("dtype_bytes for each number; 0.5 stands for 4 bits.")
def every_number_takes_dtype_bytes(part, rng):
    for dtype_bytes in (4, 2, 1, 0.5):
        _compare(part, shape(), dtype_bytes)


@rules.add("2 · num_layers · num_kv_heads · head_dim · dtype_bytes")
def it_holds_for_any_model(part, rng):
    _compare(part, large_shape(), 2)
    for _ in range(20):
        _compare(part, random_shape(rng), rng.choice([1, 2, 4]))
