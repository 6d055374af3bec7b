"""What a forward costs: against counts of a real decoder, against known numbers, and how costs behave."""

import math
import subprocess
import sys
from dataclasses import replace
from unittest.mock import patch

import pytest
import torch

from minivllm.attention.dense import causal_attention
from minivllm.executor.cost import (
    Cost,
    attention_pairs,
    flops_and_bytes,
    forward_cost,
    kv_bytes_per_token,
    matrix_weights,
    max_concurrent_requests,
    ttft_and_itl_floor,
)
from minivllm.executor.hardware import A100, H100
from minivllm.model.config import ModelConfig
from minivllm.model.linear import Linear
from minivllm.model.loader import load_model

LLAMA_70B = ModelConfig.from_dict(
    dict(
        architectures=["LlamaForCausalLM"],
        num_hidden_layers=80,
        hidden_size=8192,
        intermediate_size=28672,
        num_attention_heads=64,
        num_key_value_heads=8,
        vocab_size=128256,
    )
)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_flops_are_those_that_the_decoder_computes(checkpoints, family):
    decoder, counted, num_tokens = load_model(checkpoints[family]), [], 7
    multiply = Linear.__call__

    def counting(linear, x):
        counted.append(2 * len(x) * linear.in_features * linear.out_features)
        return multiply(linear, x)

    def attend(layer, q, k, v):
        counted.extend(4 * q.shape[1] * q.shape[2] * sees for sees in range(1, len(q) + 1))
        return causal_attention(q, k, v)

    with torch.inference_mode(), patch.object(Linear, "__call__", counting):
        tokens = torch.arange(num_tokens)
        decoder.logits(decoder.hidden(tokens, tokens, attend)[-1:])
    assert forward_cost(decoder.config, [(num_tokens, num_tokens)]).flops == sum(counted)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_matrix_weights_are_all_weights_but_embedding_norms_and_biases(checkpoints, family):
    config = ModelConfig.from_folder(checkpoints[family])
    bare = replace(config, qkv_bias=False, o_bias=False, mlp_bias=False, qk_norm=False)
    norms = (2 * config.num_layers + 1) * config.hidden_size
    embedding = 0 if config.tie_word_embeddings else config.vocab_size * config.hidden_size
    assert sum(matrix_weights(config)) == bare.num_parameters() - norms - embedding


def test_kv_bytes_are_those_of_the_model_config():
    for heads in (1, 8, 64):
        config = replace(LLAMA_70B, num_kv_heads=heads)
        assert kv_bytes_per_token(config, 2) == config.kv_bytes_per_token(2)
    assert kv_bytes_per_token(LLAMA_70B, 2) == 327_680


@pytest.mark.parametrize("num_tokens, context_len", [(1, 1), (1, 9), (4, 4), (3, 8)])
def test_attention_pairs_are_those_of_the_causal_mask(num_tokens, context_len):
    mask = torch.ones(num_tokens, context_len).tril(context_len - num_tokens)
    assert attention_pairs(num_tokens, context_len) == int(mask.sum())


@pytest.mark.parametrize("num_tokens, context_len", [(0, 5), (6, 5)])
def test_a_chunk_that_cannot_be_is_refused(num_tokens, context_len):
    with pytest.raises(ValueError, match=f"num_tokens is {num_tokens}, context_len is {context_len}"):
        forward_cost(LLAMA_70B, [(num_tokens, context_len)])


def test_a_mixed_step_shares_weights_and_nothing_else():
    parts = [forward_cost(LLAMA_70B, [chunk]) for chunk in ((512, 512), (1, 900))]
    mixed = forward_cost(LLAMA_70B, [(512, 512), (1, 900)])
    assert mixed.flops == sum(part.flops for part in parts)
    weights = 2 * sum(matrix_weights(LLAMA_70B))
    assert mixed.num_bytes == sum(part.num_bytes for part in parts) - weights


def test_chunks_of_a_prompt_compute_as_much_as_the_whole_but_for_the_head():
    head = 2 * matrix_weights(LLAMA_70B)[1]
    chunks = [forward_cost(LLAMA_70B, [(256, end)]).flops for end in (256, 512, 768, 1024)]
    assert sum(chunks) == forward_cost(LLAMA_70B, [(1024, 1024)]).flops + 3 * head


def test_a_uniform_batch_is_a_step_of_equal_chunks():
    cost = forward_cost(LLAMA_70B, [(3, 40)] * 5)
    assert flops_and_bytes(LLAMA_70B, 3, 40, 2, 5) == (cost.flops, cost.num_bytes)


def test_smaller_numbers_shrink_bytes_and_not_flops():
    whole = forward_cost(LLAMA_70B, [(1, 4096)])
    small = forward_cost(LLAMA_70B, [(1, 4096)], weight_dtype_bytes=0.5, kv_dtype_bytes=1)
    assert small.flops == whole.flops
    kv = 4097 * kv_bytes_per_token(LLAMA_70B, 2)
    assert small.num_bytes == (whole.num_bytes - kv) / 4 + kv / 2


def test_seconds_are_those_of_the_slower_side():
    compute, memory = Cost(H100.flops, 1), Cost(1, H100.bandwidth)
    assert compute.is_compute_bound(H100) and compute.seconds(H100) == 1
    assert not memory.is_compute_bound(H100) and memory.seconds(H100) == 1
    assert Cost(300, 2).arithmetic_intensity() == 150


def test_a_cost_bound_by_compute_lies_right_of_the_ridge():
    for gpu in (H100, A100):
        right, left = Cost(gpu.ridge * 1.01, 1), Cost(gpu.ridge * 0.99, 1)
        assert right.is_compute_bound(gpu) and not left.is_compute_bound(gpu)


def test_the_80_layer_case_of_c2():
    assert max_concurrent_requests(80 * 10**9, 42 * 10**9, LLAMA_70B, 4096) == 28
    assert max_concurrent_requests(38 * 2**30, 0, LLAMA_70B, 4096) == 30
    assert 4096 * kv_bytes_per_token(LLAMA_70B, 2) == 1_342_177_280 == 1.25 * 2**30
    assert max_concurrent_requests(H100.memory, 2 * LLAMA_70B.num_parameters(), LLAMA_70B, 4096) == 0


def test_floors_are_a_prefill_and_the_decode_step_after_it():
    ttft, itl = ttft_and_itl_floor(LLAMA_70B, H100, 1000, 8)
    assert ttft == forward_cost(LLAMA_70B, [(1000, 1000)]).seconds(H100)
    assert itl == forward_cost(LLAMA_70B, [(1, 1001)] * 8).seconds(H100)
    assert math.isclose(ttft, 2 * 70e9 * 1000 / H100.flops, rel_tol=0.05)


def test_counting_needs_no_torch():
    code = "import sys, minivllm.executor.cost; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
