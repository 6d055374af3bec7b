"""The bookkeeping benchmark runs and says what it promises; its times are never asserted."""

import json

import pytest

from minivllm.__main__ import main
from minivllm.bench.scheduler import measure


@pytest.mark.parametrize("cache", ["hash", "radix"])
def test_every_row_counts_what_it_was_asked_for(cache):
    row = measure(num_requests=6, context_len=70, num_steps=20, prefix_cache=cache)
    assert (row["num_requests"], row["context_len"], row["num_steps"]) == (6, 70, 20)
    assert row["ms_per_step"] > 0 and row["p99_ms"] > 0


def test_json_has_one_row_a_shape(capsys, monkeypatch):
    monkeypatch.setattr("minivllm.bench.scheduler.SHAPES", [(2, 40), (3, 40)])
    assert main(["bench", "scheduler", "--steps", "5", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(r["num_requests"], r["context_len"]) for r in rows] == [(2, 40), (3, 40)]
