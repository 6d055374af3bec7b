"""0.4 `max_concurrent_requests(gpu_bytes, weight_bytes, cfg, seq_len, dtype_bytes=2)`: whole requests."""

from __future__ import annotations

from .rules import Broken, Rules
from .small_shapes import describe, large_shape, lent, random_shape, shape, write

rules = Rules()


def _compare(part, want, gpu_bytes, weight_bytes, cfg, seq_len, *dtype_bytes) -> None:
    numbers = ", ".join([f"{gpu_bytes:_}", f"{weight_bytes:_}", "cfg", *map(str, (seq_len, *dtype_bytes))])
    called = f"max_concurrent_requests({numbers}), {describe(cfg)}"
    got = part(gpu_bytes, weight_bytes, lent(cfg), seq_len, *dtype_bytes)
    if type(got) is not int or got != want:
        raise Broken(called, repr(got) if isinstance(got, float) else write(got), write(want))


def _request(cfg, seq_len, dtype_bytes=2) -> int:
    return seq_len * 2 * cfg.num_layers * cfg.num_kv_heads * cfg.head_dim * dtype_bytes


@rules.add("Memory for caches, divided by seq_len · kv_bytes_per_token(cfg, dtype_bytes).")
def a_request_takes_its_tokens_in_all_layers(part, rng):
    cfg = shape()
    _compare(part, 10, 10 * _request(cfg, 7), 0, cfg, 7)
    _compare(part, 10, 10 * _request(cfg, 64), 0, cfg, 64)


@rules.add("The weights come off first: gpu_bytes − weight_bytes is what is left for caches.")
def weights_come_off_first(part, rng):
    cfg = shape()
    request = _request(cfg, 9)
    _compare(part, 4, 10 * request, 6 * request, cfg, 9)


@rules.add("A request that does not fit whole does not run: round down, and return a whole number, int.")
def a_part_of_a_request_is_none(part, rng):
    cfg = shape()
    request = _request(cfg, 9)
    _compare(part, 2, 3 * request - 1, 0, cfg, 9)
    _compare(part, 3, 3 * request, 0, cfg, 9)
    _compare(part, 3, 4 * request - 1, 0, cfg, 9)


@rules.add("If the weights do not fit, 0 requests run, not a negative number.")
def no_request_runs_where_the_weights_do_not_fit(part, rng):
    cfg = shape()
    request = _request(cfg, 9)
    _compare(part, 0, request, 3 * request, cfg, 9)
    _compare(part, 0, 3 * request, 3 * request, cfg, 9)


@rules.add("Numbers of 2 bytes unless dtype_bytes says otherwise; hand it on to kv_bytes_per_token.")
def the_size_of_a_number_counts(part, rng):
    cfg = shape()
    memory = 12 * _request(cfg, 8, 1)
    for dtype_bytes, want in ((1, 12), (2, 6), (4, 3)):
        _compare(part, want, memory, 0, cfg, 8, dtype_bytes)


@rules.add("Bytes in, bytes out: no conversion between GB and GiB anywhere.")
def eighty_layers_on_eighty_gigabytes(part, rng):
    cfg, gib = large_shape(), 2**30
    _compare(part, 28, 80 * 10**9, 42 * 10**9, cfg, 4096)
    _compare(part, 30, 80 * gib, 42 * gib, cfg, 4096)


@rules.add("max(0, (gpu_bytes − weight_bytes) // bytes of one request)")
def it_holds_for_any_model(part, rng):
    for _ in range(20):
        cfg, seq_len, count = random_shape(rng), rng.randint(1, 5000), rng.randint(0, 40)
        request, weights = _request(cfg, seq_len), rng.randint(0, 10**9)
        memory = weights + count * request + rng.randrange(request)
        _compare(part, count, memory, weights, cfg, seq_len)
