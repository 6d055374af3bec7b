"""1.3 `ContiguousKVCache(num_layers, max_len, num_kv_heads, head_dim, dtype, device)`.

`append(layer, k, v)` takes [num_tokens, num_kv_heads, head_dim]; `view(layer)` returns (k, v) so far;
`clear()` forgets all. A layer has its own length: a forward appends to one after the other.
"""

from __future__ import annotations

import torch

from .expect import close, random_tensor, refuses
from .rules import Broken, Rules

rules = Rules()
KV_HEADS, DIM = 2, 4


def _make(part, num_layers=2, max_len=8, dtype=torch.float32):
    return part(num_layers, max_len, KV_HEADS, DIM, dtype=dtype, device="cpu")


def _kv(rng, num_tokens, dtype=torch.float32):
    shape = (num_tokens, KV_HEADS, DIM)
    return random_tensor(rng, *shape, dtype=dtype), random_tensor(rng, *shape, dtype=dtype)


def _append(cache, layer, k, v) -> None:
    """Append copies, so that what the part does to its inputs does not change what is expected."""
    cache.append(layer, k.clone(), v.clone())


def _same_view(cache, layer, k, v, called) -> None:
    got = cache.view(layer)
    if not isinstance(got, tuple | list) or len(got) != 2:
        raise Broken(called, f"{type(got).__name__}", "a pair (k, v)")
    close(f"{called}: k", got[0], k, tolerance=0)
    close(f"{called}: v", got[1], v, tolerance=0)


@rules.add("lengths start at 0, and a view shows only what is filled.")
def a_new_cache_is_empty(part, rng):
    cache = _make(part)
    nothing = torch.empty(0, KV_HEADS, DIM)
    for layer in (0, 1):
        _same_view(cache, layer, nothing, nothing, f"view({layer}) of a new cache")


@rules.add("Write k and v into the slots from the layer's length on, each into its own half.")
def a_view_returns_what_was_appended(part, rng):
    cache = _make(part)
    k, v = _kv(rng, 3)
    _append(cache, 0, k, v)
    _same_view(cache, 0, k, v, "append(0, k [3, 2, 4], v), view(0)")


@rules.add("Advance the layer's length by the number of tokens at the end of append.")
def a_second_append_goes_behind_the_first(part, rng):
    cache = _make(part)
    parts = [_kv(rng, n) for n in (3, 1, 1, 2)]
    for k, v in parts:
        _append(cache, 0, k, v)
    k, v = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    _same_view(cache, 0, k, v, "append of 3, 1, 1 and 2 tokens, view(0)")


@rules.add("One length a layer: layer 1 is still empty when layer 0 has been appended to.")
def layers_do_not_disturb_each_other(part, rng):
    cache = _make(part, num_layers=3)
    held = []
    for layer in (0, 1, 2):
        held.append(_kv(rng, layer + 1))
        _append(cache, layer, *held[layer])
        for earlier in range(layer + 1):
            _same_view(cache, earlier, *held[earlier], f"append to layers 0 … {layer}, view({earlier})")


@rules.add("Copy the values into the cache's own memory; the caller reuses its tensors.")
def the_cache_keeps_its_own_copy(part, rng):
    cache = _make(part)
    k, v = _kv(rng, 2)
    want = k.clone(), v.clone()
    cache.append(0, k, v)
    k.zero_(), v.zero_()
    _same_view(cache, 0, *want, "append(0, k, v), k and v overwritten, view(0)")


@rules.add("max_len tokens fit, in one piece or in many.")
def it_can_be_filled_to_the_last_slot(part, rng):
    for pieces in ([5], [4, 1], [1] * 5):
        cache = _make(part, max_len=5)
        held = [_kv(rng, n) for n in pieces]
        for k, v in held:
            _append(cache, 1, k, v)
        k, v = (torch.cat(tensors) for tensors in zip(*held, strict=True))
        _same_view(cache, 1, k, v, f"max_len 5, append of {pieces} tokens, view(1)")


@rules.add("Compare length + num_tokens with max_len before anything is written.")
def one_token_too_many_is_refused_whole(part, rng):
    cache = _make(part, max_len=4)
    k, v = _kv(rng, 3)
    _append(cache, 0, k, v)
    refuses("max_len 4: append of 3, then of 2 tokens", lambda: cache.append(0, *_kv(rng, 2)))
    _same_view(cache, 0, k, v, "view(0) after the refused append")
    more = _kv(rng, 1)
    _append(cache, 0, *more)
    _same_view(cache, 0, torch.cat([k, more[0]]), torch.cat([v, more[1]]), "1 token after the refused 2")


@rules.add("clear sets all lengths to 0; the next request starts in slot 0.")
def clear_makes_room_for_the_next_request(part, rng):
    cache = _make(part, max_len=3)
    for layer in (0, 1):
        _append(cache, layer, *_kv(rng, 3))
    cache.clear()
    nothing = torch.empty(0, KV_HEADS, DIM)
    for layer in (0, 1):
        _same_view(cache, layer, nothing, nothing, f"clear(), view({layer})")
    k, v = _kv(rng, 2)
    _append(cache, 1, k, v)
    _same_view(cache, 1, k, v, "clear(), append(1, k [2, 2, 4], v), view(1)")


@rules.add("Make the tensor and the lengths in __init__, on self; not on the class, not as a default value.")
def two_caches_share_nothing(part, rng):
    first, second = _make(part), _make(part)
    k, v = _kv(rng, 2)
    _append(first, 0, k, v)
    nothing = torch.empty(0, KV_HEADS, DIM)
    _same_view(second, 0, nothing, nothing, "append to another cache, view(0)")
    _append(second, 0, *_kv(rng, 2))
    _same_view(first, 0, k, v, "view(0) after an append to another cache")


@rules.add("Pass dtype and device to torch.empty.")
def it_stores_in_its_dtype(part, rng):
    cache = _make(part, dtype=torch.bfloat16)
    k, v = _kv(rng, 2, dtype=torch.bfloat16)
    _append(cache, 0, k, v)
    _same_view(cache, 0, k, v, "bfloat16: append(0, k [2, 2, 4], v), view(0)")


@rules.add("Replay the operations above by hand, with the lengths beside them.")
def any_order_of_operations_holds(part, rng):
    num_layers, max_len = 3, 6
    cache = _make(part, num_layers, max_len)
    nothing = torch.empty(0, KV_HEADS, DIM)
    held = [(nothing, nothing)] * num_layers
    story: list[str] = []
    for _ in range(150):
        layer, n = rng.randrange(num_layers), rng.randint(1, 3)
        if rng.random() < 0.1:
            cache.clear()
            held, story = [(nothing, nothing)] * num_layers, []
        else:
            k, v = _kv(rng, n)
            if held[layer][0].shape[0] + n > max_len:
                tried = f"max_len {max_len}: {', '.join(story)}, append({layer}, {n} tokens)"
                refuses(tried, lambda a=(layer, k, v): cache.append(*a))
            else:
                _append(cache, layer, k, v)
                held[layer] = tuple(torch.cat(pair) for pair in zip(held[layer], (k, v), strict=True))
                story.append(f"append({layer}, {n} tokens)")
        seen = rng.randrange(num_layers)
        _same_view(cache, seen, *held[seen], f"max_len {max_len}: {', '.join(story)}; view({seen})")
