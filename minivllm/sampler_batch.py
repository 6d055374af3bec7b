"""Drawing for many rows at once: the sampler's formula with a row dimension.

A GPU takes as long to launch an operation for one row as for a hundred, so drawing row by row would take
longer than the model. A CPU is quicker row by row, where it can look for the nucleus among a few tokens.
Both give the same tokens: the same weights in float64, the same uniform numbers, lower ids before equal ones.
"""

from __future__ import annotations

import torch

from .sampling import SamplingParams

MOST_NUMBERS = 2**23  # rows · vocab_size at once: 64 MiB for each tensor of float64


def draw(logits: torch.Tensor, params: list[SamplingParams], draws: list[float]) -> torch.Tensor:
    """logits: [num_rows, vocab_size], penalties included; `draws`: a uniform number a row
    → [num_rows] token ids on the same device. Nothing waits for the device."""
    step = max(1, MOST_NUMBERS // logits.shape[1])
    pieces = [
        _draw(logits[i : i + step], params[i : i + step], draws[i : i + step])
        for i in range(0, len(params), step)
    ]
    return torch.cat(pieces)


def _draw(logits: torch.Tensor, params: list[SamplingParams], draws: list[float]) -> torch.Tensor:
    vocab_size = logits.shape[1]
    numbers = [
        [p.temperature, p.min_p, p.top_k if p.top_k > 0 else vocab_size, p.top_p, number]
        for p, number in zip(params, draws, strict=True)
    ]
    on_device = torch.tensor(numbers, dtype=torch.float64).to(logits.device, non_blocking=True)
    temperature, min_p, top_k, top_p, number = on_device[:, :, None].unbind(1)
    scaled = logits.double()
    weights = ((scaled - scaled.amax(-1, keepdim=True)) / temperature).exp_()
    if any(p.min_p > 0 for p in params):
        weights = weights.masked_fill_(weights < min_p, 0)
    if any(p.top_p < 1 or 0 < p.top_k < vocab_size for p in params):
        weights = _truncate(logits, weights, top_k, top_p)
    cdf = weights.cumsum(-1)
    places = torch.searchsorted(cdf, number * cdf[:, -1:], right=True)
    return places[:, 0].clamp_(max=vocab_size - 1)


def _truncate(logits, weights, top_k, top_p) -> torch.Tensor:
    """Weights of the top_k likeliest tokens, and of those the fewest whose share reaches top_p; 0 for the
    others. top_k, top_p: [num_rows, 1], vocab_size and 1 where a row has none."""
    order = logits.sort(dim=-1, descending=True, stable=True).indices
    place = torch.arange(logits.shape[1], device=logits.device)
    ordered = weights.gather(-1, order).masked_fill_(place >= top_k, 0)
    mass = ordered.cumsum(-1)
    kept = torch.cat(
        [torch.ones_like(mass[:, :1], dtype=torch.bool), mass[:, :-1] < top_p * mass[:, -1:]], -1
    )
    ordered = ordered.masked_fill_(~(kept | (top_p >= 1)), 0)
    return torch.zeros_like(weights).scatter_(-1, order, ordered)
