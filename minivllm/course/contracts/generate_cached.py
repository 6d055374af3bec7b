"""1.4 `generate_cached(model, prompt, n, cache)`: the same tokens, each computed once.

`model` is that of 1.2; `cache` is empty and has `append(layer, k, v)` and `view(layer) -> (k, v)`. The
rules bring a cache of their own, so a fault in the reader's 1.3 does not show here.
"""

from __future__ import annotations

import torch

from .expect import same, show
from .rules import Broken, Rules
from .tiny_model import HEAD_DIM, NUM_KV_HEADS, NUM_LAYERS, task

rules = Rules()


class ListCache:
    """Append and view, nothing else. `full` is the number of tokens a layer can take."""

    def __init__(self, full: int = 1000) -> None:
        self.full = full
        empty = torch.empty(0, NUM_KV_HEADS, HEAD_DIM)
        self.layers = [(empty, empty) for _ in range(NUM_LAYERS)]

    def append(self, layer, k, v) -> None:
        if self.length(layer) + k.shape[0] > self.full:
            raise ValueError(f"the cache is full at {self.full} tokens")
        old_k, old_v = self.layers[layer]
        self.layers[layer] = (torch.cat([old_k, k]), torch.cat([old_v, v]))

    def view(self, layer) -> tuple[torch.Tensor, torch.Tensor]:
        return self.layers[layer]

    def length(self, layer: int) -> int:
        return self.layers[layer][0].shape[0]


def _call(prompt: list[int], n: int) -> str:
    return f"generate_cached(model, {show(prompt)}, {n}, cache)"


@rules.add("Prefill: one call with the whole prompt; its logits give the first token.")
def the_first_token_is_the_most_likely_one(part, rng):
    for length in (1, 5):
        model, prompt, want = task(rng, length, 1)
        same(_call(prompt, 1), part(model, prompt, 1, ListCache()), want)


@rules.add("After the prompt, give the model the newest token alone; the cache has the rest.")
def every_token_is_computed_once(part, rng):
    for length, n in ((1, 1), (3, 5), (6, 4)):
        model, prompt, _ = task(rng, length, n)
        part(model, prompt, n, ListCache())
        same(f"{_call(prompt, n)}: token-forwards, p + n − 1", model.num_token_forwards, length + n - 1)


@rules.add("A new token's position is the number of tokens before it, the prompt included.")
def a_new_token_gets_the_next_position(part, rng):
    model, prompt, _ = task(rng, 4, 4)
    part(model, prompt, 4, ListCache())
    positions = [position for _, call in model.calls for position in call]
    same(f"{_call(prompt, 4)}: positions of all calls", positions, list(range(4 + 4 - 1)))


@rules.add("In attend: cache.append(layer, k, v) first, then attention over cache.view(layer).")
def tokens_are_those_of_recompute(part, rng):
    for length in (1, 3, 8):
        model, prompt, want = task(rng, length, 8)
        same(_call(prompt, 8), part(model, prompt, 8, ListCache()), want)


@rules.add("n tokens take n calls: one prefill and n − 1 decodes.")
def one_call_gives_one_token(part, rng):
    model, prompt, _ = task(rng, 6, 5)
    part(model, prompt, 5, ListCache())
    lengths = [len(token_ids) for token_ids, _ in model.calls]
    same(f"{_call(prompt, 5)}: tokens in each model call", lengths, [6, 1, 1, 1, 1])


@rules.add("Every layer appends its own keys and values, once.")
def every_layer_fills_its_cache(part, rng):
    model, prompt, _ = task(rng, 3, 4)
    cache = ListCache()
    part(model, prompt, 4, cache)
    lengths = [cache.length(layer) for layer in range(NUM_LAYERS)]
    same(f"{_call(prompt, 4)}: tokens in each layer's cache", lengths, [6] * NUM_LAYERS)


@rules.add("Keep nothing between calls but what is in the cache.")
def two_answers_do_not_mix(part, rng):
    for _ in range(2):
        model, prompt, want = task(rng, 4, 4)
        same(f"twice: {_call(prompt, 4)}", part(model, prompt, 4, ListCache()), want)


@rules.add("Work on a copy of the prompt, and return the new tokens as plain numbers in a list.")
def the_prompt_is_left_alone(part, rng):
    model, prompt, want = task(rng, 4, 3)
    before = list(prompt)
    same(_call(before, 3), part(model, prompt, 3, ListCache()), want)
    same(f"{_call(before, 3)}: prompt afterwards", prompt, before)


@rules.add("Let the cache's ValueError through; a shorter answer would hide it.")
def a_full_cache_is_not_hidden(part, rng):
    model, prompt, _ = task(rng, 4, 1)
    try:
        got = part(model, prompt, 4, ListCache(full=5))
    except ValueError:
        return
    raise Broken(_call(prompt, 4) + " with room for 5 tokens", show(got), "the cache's ValueError")
