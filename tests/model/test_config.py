import json
import subprocess
import sys

import pytest

from minivllm.model.config import ModelConfig, RopeConfig

from .checkpoints import write_checkpoint

BASE = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def config(**overrides):
    return ModelConfig.from_dict({**BASE, **overrides})


@pytest.mark.parametrize(
    ("kind", "overrides"),
    [
        ("llama", {}),
        ("llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
        ("qwen2", {"tie_word_embeddings": True}),
        ("qwen3", {"head_dim": 16}),
    ],
)
def test_number_of_parameters_is_that_of_transformers(tmp_path, kind, overrides):
    model = write_checkpoint(tmp_path, kind, **overrides)
    assert ModelConfig.from_folder(tmp_path).num_parameters() == model.num_parameters()


def test_kv_bytes_per_token_of_a_70b_model():
    big = config(num_hidden_layers=80, num_attention_heads=64, num_key_value_heads=8, head_dim=128)
    assert big.kv_bytes_per_token(2) == 327_680


def test_old_and_new_layout_say_the_same():
    old = config(rope_theta=5e5, rope_scaling=LLAMA3, torch_dtype="bfloat16")
    new = config(rope_parameters={**LLAMA3, "rope_theta": 5e5}, dtype="bfloat16")
    assert old == new
    assert old.rope == RopeConfig("llama3", 5e5, 8.0, 1.0, 4.0, 8192)
    assert old.dtype == "bfloat16"


def test_oldest_name_of_the_rope_type_is_understood():
    assert config(rope_scaling={"type": "linear", "factor": 2.0}).rope == RopeConfig("linear", 1e4, 2.0)


def test_head_dim_is_derived_unless_given():
    assert config().head_dim == 8
    assert config(head_dim=32).head_dim == 32


def test_biases_and_norms_by_architecture():
    llama = config(attention_bias=True)
    qwen2 = config(architectures=["Qwen2ForCausalLM"])
    qwen3 = config(architectures=["Qwen3ForCausalLM"])
    assert (llama.qkv_bias, llama.o_bias, llama.qk_norm) == (True, True, False)
    assert (qwen2.qkv_bias, qwen2.o_bias, qwen2.qk_norm) == (True, False, False)
    assert (qwen3.qkv_bias, qwen3.o_bias, qwen3.qk_norm) == (False, False, True)


def test_generation_config_decides_on_end_of_sequence(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**BASE, "eos_token_id": 2}))
    assert ModelConfig.from_folder(tmp_path).eos_token_ids == (2,)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 9]}')
    assert ModelConfig.from_folder(tmp_path).eos_token_ids == (7, 9)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": null}')
    assert ModelConfig.from_folder(tmp_path).eos_token_ids == (2,)


@pytest.mark.parametrize(("eos", "ids"), [(None, ()), (0, (0,)), ([0, 3], (0, 3))])
def test_end_of_sequence_may_be_absent_a_number_or_a_list(eos, ids):
    assert config(eos_token_id=eos).eos_token_ids == ids


def test_sliding_window_that_is_switched_off_is_no_obstacle():
    qwen2 = {"architectures": ["Qwen2ForCausalLM"], "sliding_window": 4096}
    assert config(**qwen2, use_sliding_window=False)
    assert config(**qwen2, use_sliding_window=True, max_window_layers=2)
    assert config(**qwen2, layer_types=["full_attention"] * 2, use_sliding_window=False)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"architectures": ["MistralForCausalLM"]}, ["MistralForCausalLM", "Qwen2ForCausalLM"]),
        ({"architectures": None, "model_type": "gpt2"}, ["gpt2"]),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, ["rope", "yarn"]),
        ({"rope_parameters": {"rope_type": "dynamic"}}, ["rope", "dynamic"]),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, ["llama3", "low_freq_factor"]),
        ({"partial_rotary_factor": 0.5}, ["partial_rotary_factor", "0.5"]),
        ({"rope_parameters": {"partial_rotary_factor": 0.25}}, ["partial_rotary_factor", "0.25"]),
        ({"quantization_config": {"quant_method": "awq"}}, ["quantization_config", "awq"]),
        ({"use_sliding_window": True, "sliding_window": 128}, ["sliding"]),
        ({"use_sliding_window": True, "sliding_window": 128, "max_window_layers": 1}, ["sliding"]),
        ({"layer_types": ["full_attention", "sliding_attention"]}, ["sliding_attention"]),
        ({"hidden_act": "gelu"}, ["hidden_act", "gelu"]),
        ({"vocab_size": None}, ["vocab_size", "missing"]),
        ({"num_hidden_layers": 0}, ["num_hidden_layers", "0"]),
        ({"hidden_size": "64"}, ["hidden_size", "'64'"]),
        ({"num_key_value_heads": 3}, ["num_attention_heads", "num_key_value_heads", "3"]),
        ({"head_dim": 7}, ["head_dim", "7"]),
    ],
)
def test_what_cannot_be_computed_is_refused_by_name(tmp_path, overrides, words):
    (tmp_path / "config.json").write_text(json.dumps({**BASE, **overrides}))
    with pytest.raises(ValueError) as caught:
        ModelConfig.from_folder(tmp_path)
    for word in [str(tmp_path), *words]:
        assert word in str(caught.value), str(caught.value)


@pytest.mark.parametrize("text", [None, "", "{", "[1]", "\x00\xff"])
def test_folder_that_is_no_checkpoint_is_named(tmp_path, text):
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match="config.json") as caught:
        ModelConfig.from_folder(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_reading_a_config_imports_no_torch():
    code = "import sys, minivllm.model.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
