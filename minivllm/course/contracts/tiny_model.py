"""A decoder of two layers with random weights, for contracts: small, deterministic, and it bites.

It is called like the labs' real model, `model(token_ids, positions, attend) -> logits [vocab_size]`, and
writes down every call. Its weights are large, so that the next token depends on all earlier ones and on
their positions; `prompt` picks prompts whose greedy answer has no near ties, so rounding cannot change it.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import torch

from .expect import random_tensor, show
from .rules import Broken

NUM_LAYERS, NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, VOCAB = 2, 4, 2, 8, 64
CLEAR_LEAD = 0.01


class TinyModel:
    """`calls` holds (token_ids, positions) of every call so far."""

    def __init__(self, rng: random.Random) -> None:
        hidden = NUM_HEADS * HEAD_DIM
        self.embedding = random_tensor(rng, VOCAB, hidden)
        self.head = random_tensor(rng, VOCAB, hidden)
        self.qkv = [
            random_tensor(rng, hidden, hidden + 2 * NUM_KV_HEADS * HEAD_DIM) * 1.5 * hidden**-0.5
            for _ in range(NUM_LAYERS)
        ]
        self.out = [random_tensor(rng, hidden, hidden) * 2 * hidden**-0.5 for _ in range(NUM_LAYERS)]
        self.calls: list[tuple[list[int], list[int]]] = []

    @property
    def num_token_forwards(self) -> int:
        return sum(len(token_ids) for token_ids, _ in self.calls)

    def __call__(self, token_ids, positions, attend: Callable) -> torch.Tensor:
        token_ids, positions = _whole_numbers("token_ids", token_ids), _whole_numbers("positions", positions)
        called = f"model({show(token_ids)}, {show(positions)}, attend)"
        if not token_ids or len(token_ids) != len(positions):
            raise Broken(
                called,
                f"{len(token_ids)} token ids, {len(positions)} positions",
                "one position for each of at least 1 token",
            )
        self.calls.append((token_ids, positions))
        x = self.embedding[torch.tensor(token_ids)]
        for layer in range(NUM_LAYERS):
            qkv = (x / x.square().mean(-1, keepdim=True).sqrt()) @ self.qkv[layer]
            qkv = qkv.view(len(token_ids), NUM_HEADS + 2 * NUM_KV_HEADS, HEAD_DIM)
            q, k, v = qkv.split([NUM_HEADS, NUM_KV_HEADS, NUM_KV_HEADS], 1)
            mixed = attend(layer, _rotate(q, positions), _rotate(k, positions), v)
            if not isinstance(mixed, torch.Tensor) or mixed.shape != q.shape:
                raise Broken(
                    "attend(layer, q, k, v)", show(mixed), f"a tensor {list(q.shape)}, one row for each query"
                )
            x = x + mixed.reshape(len(token_ids), -1) @ self.out[layer]
        return self.head @ (x[-1] / x[-1].square().mean().sqrt())


def greedy(model: TinyModel, prompt: list[int], n: int) -> tuple[list[int], float]:
    """The n tokens, the slow and obvious way, and the smallest lead of a chosen token over the next."""
    tokens, lead = list(prompt), float("inf")
    for _ in range(n):
        best = model(tokens, list(range(len(tokens))), _attend_to_all).topk(2)
        lead = min(lead, (best.values[0] - best.values[1]).item())
        tokens.append(int(best.indices[0]))
    model.calls.clear()
    return tokens[len(prompt) :], lead


def task(rng: random.Random, length: int, n: int) -> tuple[TinyModel, list[int], list[int]]:
    """(model, prompt, its n greedy tokens); no chosen token leads by less than `CLEAR_LEAD`."""
    model = TinyModel(rng)
    while True:
        prompt = [rng.randrange(VOCAB) for _ in range(length)]
        tokens, lead = greedy(model, prompt, n)
        if lead > CLEAR_LEAD:
            return model, prompt, tokens


def attention_by_heads(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """One query over all keys, a head at a time. q: [heads, dim]; k, v: [context, kv_heads, dim]."""
    group = q.shape[0] // k.shape[1]
    rows = []
    for head in range(q.shape[0]):
        weights = (k[:, head // group] @ q[head] / q.shape[1] ** 0.5).softmax(0)
        rows.append(weights @ v[:, head // group])
    return torch.stack(rows)


def _attend_to_all(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    group = q.shape[1] // k.shape[1]
    scores = torch.einsum("qhd,thd->hqt", q, k.repeat_interleave(group, 1)) / q.shape[2] ** 0.5
    later = torch.ones(q.shape[0], k.shape[0], dtype=torch.bool).triu(1)
    weights = scores.masked_fill(later, float("-inf")).softmax(-1)
    return torch.einsum("hqt,thd->qhd", weights, v.repeat_interleave(group, 1))


def _rotate(x: torch.Tensor, positions: list[int]) -> torch.Tensor:
    """Rotary embedding (Su et al., 2021), halves against halves. x: [tokens, heads, dim]."""
    half = x.shape[-1] // 2
    angle = torch.tensor(positions)[:, None] * 10.0 ** -(torch.arange(half) / half)
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def _whole_numbers(name: str, values) -> list[int]:
    try:
        return [int(value) for value in values]
    except (TypeError, ValueError):
        called, got = f"model(…, {name}={show(values)}, …)", show(values)
        raise Broken(called, got, "a sequence of whole numbers") from None
