import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRMSNorm, LlamaRotaryEmbedding, apply_rotary_pos_emb

from minivllm.model.config import RopeConfig
from minivllm.model.layers import rms_norm, rotary_cos_sin, rotary_frequencies, rotate, silu_mul

ROPES = {
    "default": ({"rope_type": "default", "rope_theta": 1e5}, RopeConfig(theta=1e5)),
    "linear": (
        {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.5},
        RopeConfig("linear", 1e4, factor=2.5),
    ),
    "llama3": (
        {
            "rope_type": "llama3",
            "rope_theta": 5e5,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        RopeConfig("llama3", 5e5, 8.0, 1.0, 4.0, 8192),
    ),
}


@pytest.mark.parametrize("kind", ROPES)
def test_rotary_has_the_bits_of_transformers_up_to_far_positions(kind):
    parameters, rope = ROPES[kind]
    config = LlamaConfig(head_dim=64, num_attention_heads=4, hidden_size=256, rope_parameters=parameters)
    q, k = torch.randn(2, 1, 4, 50, 64, generator=torch.Generator().manual_seed(0))
    positions = torch.arange(0, 100_000, 2_000)
    theirs = apply_rotary_pos_emb(q, k, *LlamaRotaryEmbedding(config)(q, positions[None]))
    cos, sin = rotary_cos_sin(positions, rotary_frequencies(rope, 64), torch.float32)
    for ours, expected in zip((q, k), theirs, strict=True):
        assert torch.equal(rotate(ours[0].transpose(0, 1), cos, sin), expected[0].transpose(0, 1))


def test_rms_norm_is_that_of_transformers():
    x = torch.randn(7, 48, generator=torch.Generator().manual_seed(0)) * 5
    norm = LlamaRMSNorm(48, eps=1e-5)
    norm.weight.data.uniform_(-2, 2)
    assert torch.allclose(rms_norm(x, norm.weight, 1e-5), norm(x), rtol=1e-6, atol=1e-6)


def test_rms_norm_takes_one_weight_a_head():
    x, weight = torch.randn(5, 3, 8), torch.randn(3, 8)
    heads = torch.stack([rms_norm(x[:, head].contiguous(), weight[head], 1e-6) for head in range(3)], dim=1)
    assert torch.allclose(rms_norm(x, weight, 1e-6), heads, rtol=1e-6, atol=1e-6)


def test_silu_mul_takes_the_gate_from_the_first_half():
    gate, up = torch.tensor([[0.0, 2.0]]), torch.tensor([[5.0, 3.0]])
    expected = torch.tensor([[0.0, 2.0 / (1 + torch.e**-2.0) * 3.0]])
    assert torch.allclose(silu_mul(torch.cat((gate, up), dim=1)), expected)
