"""1.2 `generate_recompute(model, prompt, n)`: n greedy tokens, everything computed anew for each.

`model(token_ids, positions, attend)` returns the logits after the last token, and calls
`attend(layer, q, k, v)` in each layer for the tokens that it was given.
"""

from __future__ import annotations

from .expect import same, show
from .rules import Broken, Rules
from .tiny_model import task

rules = Rules()


def _call(prompt: list[int], n: int) -> str:
    return f"generate_recompute(model, {show(prompt)}, {n})"


@rules.add("Return the new tokens alone, without the prompt.")
def it_returns_n_new_tokens(part, rng):
    model, prompt, _ = task(rng, 4, 3)
    got = part(model, prompt, 3)
    if not isinstance(got, list) or len(got) != 3:
        raise Broken(_call(prompt, 3), show(got), "a list of 3 token ids")


@rules.add("int(logits.argmax()) makes a plain number of the best token.")
def tokens_are_plain_numbers(part, rng):
    model, prompt, _ = task(rng, 4, 2)
    got = part(model, prompt, 2)
    if not isinstance(got, list) or len(got) != 2:
        raise Broken(_call(prompt, 2), show(got), "a list of 2 token ids")
    for token in got:
        if type(token) is not int:
            raise Broken(_call(prompt, 2), f"a token of type {type(token).__name__}", "int")


@rules.add("The first new token is the argmax of the logits after the prompt.")
def the_first_token_is_the_most_likely_one(part, rng):
    for _ in range(4):
        model, prompt, want = task(rng, 5, 1)
        same(_call(prompt, 1), part(model, prompt, 1), want)


@rules.add("Append each new token before the next call; attend must be causal: causal_attention(q, k, v).")
def later_tokens_see_the_earlier_ones(part, rng):
    for length in (1, 3, 8):
        model, prompt, want = task(rng, length, 8)
        same(_call(prompt, 8), part(model, prompt, 8), want)


@rules.add("A sequence of length t has the positions 0 … t − 1, in every call.")
def positions_count_from_zero(part, rng):
    model, prompt, _ = task(rng, 3, 4)
    part(model, prompt, 4)
    if len(model.calls) < 4:
        raise Broken(_call(prompt, 4), f"{len(model.calls)} model calls", "one for each new token")
    for number, (token_ids, positions) in enumerate(model.calls, 1):
        want = list(range(len(token_ids)))
        same(f"{_call(prompt, 4)}: positions of model call {number}", positions, want)


@rules.add("One call for each new token, and none for the last one: nobody needs the logits after it.")
def token_forwards_are_counted_exactly(part, rng):
    for length, n in ((1, 1), (3, 5), (6, 4)):
        model, prompt, _ = task(rng, length, n)
        part(model, prompt, n)
        want = n * length + n * (n - 1) // 2
        same(f"{_call(prompt, n)}: token-forwards, n·p + n(n−1)/2", model.num_token_forwards, want)


@rules.add("Work on a copy: tokens = list(prompt).")
def the_prompt_is_left_alone(part, rng):
    model, prompt, want = task(rng, 4, 3)
    before = list(prompt)
    same(_call(before, 3), part(model, prompt, 3), want)
    same(f"{_call(before, 3)}: prompt afterwards", prompt, before)


@rules.add("With n = 0 there is nothing to compute.")
def no_tokens_asked_none_returned(part, rng):
    model, prompt, want = task(rng, 4, 1)
    same(_call(prompt, 1), part(model, prompt, 1), want)
    model.calls.clear()
    same(_call(prompt, 0), part(model, prompt, 0), [])
    same(f"{_call(prompt, 0)}: token-forwards", model.num_token_forwards, 0)
