"""Rows drawn together get the tokens that they get alone."""

import random

import pytest
import torch

from minivllm import sampler_batch
from minivllm.sampler import SampleRow, _choose_each, _choose_together
from minivllm.sampling import SamplingParams


@pytest.mark.parametrize("most_numbers", [2**23, 40])  # all rows at once, and in small pieces
def test_drawing_together_is_drawing_one_by_one(monkeypatch, most_numbers):
    monkeypatch.setattr(sampler_batch, "MOST_NUMBERS", most_numbers)
    rng, num_rows = random.Random(0), 0
    generator = torch.Generator().manual_seed(0)
    for _ in range(120):
        vocab_size = rng.choice([1, 2, 5, 24, 300])
        # Rounded to quarters, so that ties are common.
        logits = (torch.randn(rng.randint(1, 6), vocab_size, generator=generator) * 12).round() / 4
        rows = []
        for _ in range(len(logits)):
            params = SamplingParams(
                temperature=rng.choice([0, 1e-6, 0.3, 1, 2.5]),
                top_k=rng.choice([0, 0, 1, 3, vocab_size, vocab_size + 5]),
                top_p=rng.choice([1.0, 1.0, 0.1, 0.5, 0.9]),
                min_p=rng.choice([0.0, 0.0, 0.1, 1.0]),
                repetition_penalty=rng.choice([1.0, 1.0, 1.3]),
                min_tokens=rng.choice([0, 4]),
            )
            rows.append(
                SampleRow(params, [0] * 3, 2, frozenset([0]), rng.randrange(10**6), rng.choice([1, 1, 3]))
            )
        greedy = logits.argmax(-1)
        alone, together = (choose(logits, greedy, rows) for choose in (_choose_each, _choose_together))
        assert [t.tolist() for t in alone] == [t.tolist() for t in together]
        num_rows += sum(len(t) for t in alone)
    assert num_rows > 400


def test_nan_logits_of_one_row_do_not_end_the_others():
    logits = torch.tensor([[1.0, float("nan")], [9.0, 0.0]])
    tokens = sampler_batch.draw(logits, [SamplingParams()] * 2, [0.5, 0.5])
    assert tokens[1] == 0 and 0 <= tokens[0] <= 1
