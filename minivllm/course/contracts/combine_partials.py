"""3.3 `combine_partials(a, b)`: two partial attentions (m, l, acc) become that of all their keys.

m: the largest score of each query; l: the sum of exp(score − m), same shape; acc: the sum of exp(score − m) ·
value, one dimension more. A part without keys is (−inf, 0, 0).
"""

from __future__ import annotations

import torch

from .expect import close, random_tensor, show
from .rules import Broken, Rules

rules = Rules()
NAMES = ("m", "l", "acc")


def _partial(scores: torch.Tensor, values: torch.Tensor) -> tuple:
    """Of scores [..., n] and values [n, dim]. Without keys: (−inf, 0, 0)."""
    if scores.shape[-1] == 0:
        m = torch.full(scores.shape[:-1], float("-inf"))
        return m, torch.zeros_like(m), torch.zeros(*m.shape, values.shape[1])
    m = scores.max(-1).values
    weights = (scores - m[..., None]).exp()
    return m, weights.sum(-1), weights @ values


def _keys(rng, num_queries=3, n=8, dim=4, scale=2.0) -> tuple[torch.Tensor, torch.Tensor]:
    return random_tensor(rng, num_queries, n) * scale, random_tensor(rng, n, dim)


def _same(called: str, got, want: tuple) -> None:
    if not isinstance(got, tuple | list) or len(got) != 3:
        raise Broken(called, show(got), "(m, l, acc)")
    for name, mine, right in zip(NAMES, got, want, strict=True):
        finite = right.nan_to_num(neginf=-1e30)  # so that −inf can be compared
        mine = mine.nan_to_num(nan=float("nan"), neginf=-1e30) if isinstance(mine, torch.Tensor) else mine
        close(f"{called}: {name}", mine, finite)


def _split(part, scores, values, at: int, note="") -> None:
    want = _partial(scores, values)
    pieces = _partial(scores[..., :at], values[:at]), _partial(scores[..., at:], values[at:])
    called = f"{note}combine_partials of keys 0 … {at - 1} and {at} … {len(values) - 1}"
    _same(called, part(*pieces), want)


@rules.add("m is the larger of the two. Bring both sums to it: multiply by exp(old m − new m), then add.")
def two_halves_make_the_whole(part, rng):
    _split(part, *_keys(rng), at=4)


@rules.add("acc has one dimension more than m: scale by factor[..., None].")
def one_query_or_many(part, rng):
    for num_queries in (1, 2, 5):
        _split(part, *_keys(rng, num_queries, dim=3), at=5)


@rules.add("Each query has its own m; which half holds the larger score differs from query to query.")
def the_largest_score_may_be_in_either_half(part, rng):
    scores, values = _keys(rng, num_queries=4)
    scores[0, 1], scores[1, 6] = 9.0, 9.0
    _split(part, scores, values, at=4)


@rules.add("Nothing may depend on where the keys are cut.")
def any_split_gives_the_same(part, rng):
    scores, values = _keys(rng, n=7)
    for at in range(1, 7):
        _split(part, scores, values, at)


@rules.add("What comes out is a partial result again: m, l and acc, not divided by l.")
def pieces_can_be_combined_in_any_tree(part, rng):
    scores, values = _keys(rng, n=9)
    want = _partial(scores, values)

    def piece(i: int) -> tuple:
        return _partial(scores[..., 3 * i : 3 * i + 3], values[3 * i : 3 * i + 3])

    for called, got in (
        ("combine_partials(combine_partials(a, b), c)", part(part(piece(0), piece(1)), piece(2))),
        ("combine_partials(a, combine_partials(b, c))", part(piece(0), part(piece(1), piece(2)))),
        ("combine_partials(c, combine_partials(a, b))", part(piece(2), part(piece(0), piece(1)))),
    ):
        _same(called, got, want)


@rules.add("exp(800) is inf. Only differences to the larger m may go into exp: they are never above 0.")
def large_scores_do_not_overflow(part, rng):
    scores, values = _keys(rng)
    for shift in (800.0, -800.0):
        _split(part, scores + shift, values, at=3, note=f"scores around {shift:g}: ")
    scores[:, :3] += 600
    _split(part, scores, values, at=3, note="scores 600 apart: ")


@rules.add("A part without keys has m = −inf: exp(−inf − m) is 0, and it drops out.")
def a_part_without_keys_changes_nothing(part, rng):
    scores, values = _keys(rng)
    for at in (0, 8):
        _split(part, scores, values, at)


@rules.add("−inf − (−inf) is NaN. Where the new m is −inf, take 0 in its place inside exp.")
def two_parts_without_keys_are_one_without_keys(part, rng):
    empty = _partial(torch.zeros(3, 0), torch.zeros(0, 4))
    want = _partial(torch.zeros(3, 0), torch.zeros(0, 4))
    _same("combine_partials of two parts without keys", part(empty, empty), want)
    scores, values = _keys(rng)
    mixed = [x.clone() for x in _partial(scores[:, :4], values[:4])]
    other = [x.clone() for x in _partial(scores[:, 4:], values[4:])]
    want = [x.clone() for x in _partial(scores, values)]
    for pieces in (mixed, other, want):
        for x, nothing in zip(pieces, (float("-inf"), 0, 0), strict=True):
            x[1] = nothing
    got = part(tuple(mixed), tuple(other))
    _same("combine_partials, query 1 of 3 without keys", got, tuple(want))


@rules.add("Return new tensors; a and b may be needed again.")
def the_inputs_are_left_alone(part, rng):
    scores, values = _keys(rng)
    pieces = _partial(scores[:, :4], values[:4]), _partial(scores[:, 4:], values[4:])
    copies = [[x.clone() for x in piece] for piece in pieces]
    part(*pieces)
    for which, piece, copy in zip("ab", pieces, copies, strict=True):
        for name, now, before in zip(NAMES, piece, copy, strict=True):
            if not torch.equal(now, before):
                raise Broken("combine_partials(a, b)", f"{name} of {which} changed", "it as it was")
