"""The accuracy of 8-bit caches, measured on a tiny random model."""

import random

from minivllm.bench.kv_cache_accuracy import measure
from minivllm.model.loader import load_model


def test_8_bit_caches_are_close_and_not_exact(checkpoints):
    model = load_model(checkpoints["llama"])
    rng = random.Random(0)
    tokens = [rng.randrange(model.config.vocab_size) for _ in range(50)]
    fp8, int8 = (measure(model, tokens, name) for name in ("fp8", "int8"))
    assert 0 < int8["mean_error"] < fp8["mean_error"] < 0.1  # 7 bits against 4, both of the same scale
    assert 0 < int8["max_error"] < 0.1 and 0 < fp8["max_error"] < 0.2
    assert int8["num_tokens"] == 50 and int8["head_bytes"] == model.config.head_dim + 4
    unrounded = measure(model, tokens, "auto")
    assert unrounded["max_error"] == 0 and unrounded["same_top_token"] == 1
