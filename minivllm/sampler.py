"""From logits to tokens: penalties, temperature, truncation, and one uniform number.

Each row is worked on by itself, in float64 and in token-id order, and its uniform number is a pure
function of (seed, output index); there is no random state anywhere. So a request gets the same
tokens alone, in a batch, after a preemption, or tomorrow. (On a GPU all rows that draw do so in one
go, with the same result; see sampler_batch.py.) The order of the steps, and what each of
them means, is vLLM's: logprobs of the raw logits, penalties, min_tokens, then greedy, or temperature,
min_p, top_k, top_p. (Nucleus sampling: Holtzman et al., 2020. Repetition penalty: Keskar et al., 2019.)
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import NamedTuple

import torch

from .sampler_batch import draw
from .sampling import SamplingParams


class SampledToken(NamedTuple):
    """`top_logprobs` maps token id → (logprob, rank): the chosen token, then the likeliest ones.

    Ranks count from 1; of equally likely tokens the lower id comes first. Both fields stay `None`
    for a request that asked for no logprobs.
    """

    token_id: int
    logprob: float | None = None
    top_logprobs: dict[int, tuple[float, int]] | None = None


@dataclass(slots=True)
class SampleRow:
    """What one row of logits is sampled with. `token_ids` is the prompt and the output so far.

    `stop_ids` are the tokens that `min_tokens` holds back. With `count` above 1, that many tokens are
    drawn from the same row, as if by separate requests with seeds seed, seed + 1, ….
    """

    params: SamplingParams
    token_ids: list[int]
    num_prompt_tokens: int
    stop_ids: frozenset[int]
    seed: int
    count: int = 1

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def is_plain(self) -> bool:
        """True if the token is the argmax of the logits as they are."""
        return self.params.is_greedy and not self.changes_logits

    @property
    def changes_logits(self) -> bool:
        return self.params.has_penalties or self.holds_back_stop

    @property
    def holds_back_stop(self) -> bool:
        return self.num_output_tokens < self.params.min_tokens and bool(self.stop_ids)


class Sampler:
    """Samples for every row of a step. Only the result leaves the device; nothing waits before that."""

    def __init__(self, engine_seed: int) -> None:
        self.engine_seed = engine_seed

    def request_seed(self, request_index: int, params: SamplingParams) -> int:
        """The seed of the engine's `request_index`-th request; see the function of this name."""
        return request_seed(self.engine_seed, request_index, params)

    def sample(self, logits: torch.Tensor, rows: list[SampleRow]) -> list[list[SampledToken]]:
        """logits: [num_rows, vocab_size], float32, left unchanged → `count` tokens for each row."""
        if len(logits) != len(rows):
            raise ValueError(f"{len(logits)} rows of logits for {len(rows)} rows to sample; give one each")
        if not rows:
            return []
        if logits.device.type == "mps":  # which has no float64
            logits = logits.cpu()
        greedy = logits.argmax(-1)
        if all(row.count == 1 and row.params.logprobs is None and row.is_plain for row in rows):
            return [[SampledToken(token)] for token in _to_host(greedy, [])]
        choose = _choose_together if logits.is_cuda else _choose_each
        chosen = choose(logits, greedy, rows)
        scores = {
            i: _score(logits[i], chosen[i], row.params.logprobs)
            for i, row in enumerate(rows)
            if row.params.logprobs is not None
        }
        numbers = iter(_to_host(torch.cat(chosen), list(scores.values())))
        sampled, tokens = [], iter([int(next(numbers)) for row in rows for _ in range(row.count)])
        for i, row in enumerate(rows):
            ids = islice(tokens, row.count)
            if i in scores:
                width = scores[i].shape[-1]
                sampled.append([_with_logprobs(token, list(islice(numbers, width))) for token in ids])
            else:
                sampled.append([SampledToken(token) for token in ids])
        return sampled


def request_seed(engine_seed: int, request_index: int, params: SamplingParams) -> int:
    """`params.seed`, or for a request without one a seed mixed from the engine's and its number."""
    return params.seed if params.seed is not None else _hash(f"request {engine_seed} {request_index}", 64)


def uniform(seed: int, output_index: int) -> float:
    """The number in [0, 1), a multiple of 2⁻⁵³, that chooses output token `output_index`."""
    return _hash(f"token {seed} {output_index}", 53) * 2.0**-53


def _hash(text: str, num_bits: int) -> int:
    return int.from_bytes(sha256(text.encode()).digest(), "big") >> (256 - num_bits)


def _to_host(tokens: torch.Tensor, scores: list[torch.Tensor]) -> list:
    """The one transfer of a step, and the one place where the host waits for the device. Token ids come
    first, then all scores; beside scores they travel as float64, in which they are exact."""
    if not scores:
        return tokens.tolist()
    return torch.cat([tokens.double(), *(score.flatten() for score in scores)]).tolist()


def _choose_each(logits: torch.Tensor, greedy: torch.Tensor, rows: list[SampleRow]) -> list[torch.Tensor]:
    """Row by row. greedy: [num_rows], the argmax → for each row its [count] token ids."""
    return [
        greedy[i].expand(row.count) if row.is_plain else _choose(logits[i], row) for i, row in enumerate(rows)
    ]


def _choose_together(logits: torch.Tensor, greedy: torch.Tensor, rows: list[SampleRow]) -> list[torch.Tensor]:
    """The same tokens; all rows that draw, draw at once."""
    drawing = [i for i, row in enumerate(rows) if not row.params.is_greedy]
    if not drawing:
        return _choose_each(logits, greedy, rows)
    changed = torch.cat([_changed(logits[i], rows[i]).expand(rows[i].count, -1) for i in drawing])
    params = [rows[i].params for i in drawing for _ in range(rows[i].count)]
    drawn = draw(changed, params, [number for i in drawing for number in _uniforms(rows[i])])
    pieces = dict(zip(drawing, drawn.split([rows[i].count for i in drawing]), strict=True))
    return [
        pieces[i] if i in pieces else _choose_each(logits[i : i + 1], greedy[i : i + 1], [row])[0]
        for i, row in enumerate(rows)
    ]


def _choose(logits: torch.Tensor, row: SampleRow) -> torch.Tensor:
    """logits: [vocab_size] → [count] token ids, on the same device."""
    logits = _changed(logits, row)
    if row.params.is_greedy:
        return logits.argmax(-1).expand(row.count)
    cdf = token_weights(logits, row.params).cumsum(0)
    draws = _uniforms(row)
    # right=True: the first token whose cumulative weight is above the draw, so never one of weight 0.
    places = torch.searchsorted(cdf, _on_device(draws, torch.float64, logits) * cdf[-1], right=True)
    return places.clamp_(max=len(logits) - 1)  # NaN logits of one request must not end the others


def _uniforms(row: SampleRow) -> list[float]:
    return [uniform(row.seed + child, row.num_output_tokens) for child in range(row.count)]


def _changed(logits: torch.Tensor, row: SampleRow) -> torch.Tensor:
    """logits: [vocab_size] → the same with penalties, and without tokens that may not come yet."""
    if row.params.has_penalties:
        logits = _penalize(logits, row)
    if row.holds_back_stop:
        stop_ids = [token for token in row.stop_ids if token < len(logits)]
        logits = logits.index_fill(0, _on_device(stop_ids, torch.int64, logits), -torch.inf)
    return logits


def _penalize(logits: torch.Tensor, row: SampleRow) -> torch.Tensor:
    """Repetition counts prompt and output, presence and frequency the output alone."""
    params = row.params
    ids = _on_device(row.token_ids, torch.int64, logits)
    if params.repetition_penalty != 1:
        penalty = params.repetition_penalty
        seen = torch.zeros_like(logits, dtype=torch.bool).index_fill_(0, ids, True)
        logits = torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)
    output = ids[row.num_prompt_tokens :]
    counts = torch.zeros_like(logits).index_add_(0, output, torch.ones_like(output, dtype=logits.dtype))
    return logits - params.frequency_penalty * counts - params.presence_penalty * (counts > 0)


def token_weights(logits: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """Unnormalised probabilities after temperature, min_p, top_k and top_p, the likeliest token's
    being 1. logits: [vocab_size] → [vocab_size], float64.

    Undivided by their sum, weights of equally likely tokens add up without rounding, so top_p = 0.5
    of four such tokens is two.
    """
    vocab_size = len(logits)
    scaled = logits.double()
    # Subtracting first makes the largest exponent 0, whatever the temperature.
    weights = ((scaled - scaled.max()) / params.temperature).exp_()
    if params.min_p > 0:
        weights = weights.masked_fill_(weights < params.min_p, 0)
    if 0 < params.top_k < vocab_size:
        threshold = logits.topk(params.top_k).values[-1]
        weights = weights.masked_fill_(~_largest(logits, threshold, params.top_k), 0)
    if params.top_p < 1:
        weights = weights.masked_fill_(~_nucleus(logits, weights, params.top_p), 0)
    return weights


def _nucleus(logits: torch.Tensor, weights: torch.Tensor, top_p: float) -> torch.Tensor:
    """Mask of the smallest set of likeliest tokens whose share of the weight reaches top_p."""
    target = top_p * weights.sum()
    # Most nuclei are small, and sorting a whole vocabulary takes 40 times as long on a CPU. A GPU
    # would have to wait for the comparison, and sorts faster than that.
    size = len(logits) if logits.is_cuda else min(256, len(logits))
    while True:
        ordered, ids = logits.topk(size)
        mass = weights[ids].cumsum(0)
        if size == len(logits) or mass[-1] >= target:
            break
        size = min(16 * size, len(logits))
    num_kept = (1 + (mass < target).sum()).clamp(max=size)
    return _largest(logits, ordered.take(num_kept - 1), num_kept)


def _largest(logits: torch.Tensor, threshold: torch.Tensor, n: int | torch.Tensor) -> torch.Tensor:
    """Mask of the n largest logits; `threshold` is the n-th. Of equal ones the lower ids are taken."""
    above, equal = logits > threshold, logits == threshold
    return above | (equal & (equal.cumsum(0) <= n - above.sum()))


def _score(logits: torch.Tensor, chosen: torch.Tensor, k: int) -> torch.Tensor:
    """Logprobs as one row of numbers for each chosen token, so that one transfer fetches them all.

    chosen: [count] → [count, 2 + 2k]: its logprob and rank, then the ids and logprobs of the k likeliest.
    Order is by logit, since the logprobs of two neighbouring logits can round to the same number.
    """
    logprobs = logits.log_softmax(-1, dtype=torch.float32).double()
    own, ids = logits[chosen][:, None], torch.arange(len(logits), device=logits.device)
    rank = 1 + ((logits > own) | ((logits == own) & (ids < chosen[:, None]))).sum(-1)
    top = _top_ids(logits, min(k, len(logits)))
    shared = torch.cat([top.double(), logprobs[top]]).expand(len(chosen), -1)
    return torch.cat([logprobs[chosen][:, None], rank[:, None].double(), shared], dim=-1)


def _top_ids(logits: torch.Tensor, k: int) -> torch.Tensor:
    """[vocab_size] → ids of the k largest logits, largest first, lower ids before equal ones."""
    if k == 0:
        return torch.empty(0, dtype=torch.int64, device=logits.device)
    mask = _largest(logits, logits.topk(k).values[-1], k)
    ids = logits.masked_fill(~mask, -torch.inf).topk(k).indices.sort().values
    return ids[logits[ids].argsort(descending=True, stable=True)]


def _with_logprobs(token: int, numbers: list[float]) -> SampledToken:
    """Read back one row of `_score`."""
    logprob, rank, *rest = numbers
    k = len(rest) // 2
    top = {token: (logprob, int(rank))}
    top |= {int(rest[i]): (rest[k + i], i + 1) for i in range(k)}
    return SampledToken(token, logprob, top)


def _on_device(values: list, dtype: torch.dtype, like: torch.Tensor) -> torch.Tensor:
    # Without non_blocking the host would wait for the device here, once a row.
    return torch.tensor(values, dtype=dtype).to(like.device, non_blocking=True)
