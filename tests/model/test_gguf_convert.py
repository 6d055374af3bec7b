import gguf
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from minivllm.model.config import ModelConfig
from minivllm.model.gguf_convert import convert
from minivllm.model.tokenizer import Tokenizer

from .checkpoints import reference_logits
from .gguf_for_tests import write_gguf

IDS = [5, 17, 3, 99, 42, 8, 64]


@pytest.fixture
def target(tmp_path):
    folder = tmp_path / "target"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("tied", [True, False])
def test_converted_model_is_the_one_that_went_in(tmp_path, target, tied):
    gguf_file, model, _ = write_gguf(tmp_path, tied=tied)
    convert(gguf_file, target)
    converted = AutoModelForCausalLM.from_pretrained(target)
    weights, expected = converted.state_dict(), model.state_dict()
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    assert torch.equal(reference_logits(converted, IDS), reference_logits(model, IDS))


@pytest.mark.parametrize("name", ["Q4_1", "Q8_0"])
def test_quantized_weights_come_out_near_what_went_in(tmp_path, target, name):
    gguf_file, model, _ = write_gguf(tmp_path, gguf.GGMLQuantizationType[name])
    convert(gguf_file, target)
    steps = {"Q4_1": 15, "Q8_0": 254}[name]
    for key, weight in load_file(target / "model.safetensors").items():
        original = model.state_dict()[key]
        assert weight.dtype == torch.float32
        assert (weight - original).abs().max() < 0.6 * (original.max() - original.min()) / steps + 2e-3


def test_config_says_what_the_file_says(tmp_path, target):
    gguf_file, _, _ = write_gguf(tmp_path)
    convert(gguf_file, target)
    config = ModelConfig.from_folder(target)
    assert config.architecture == "LlamaForCausalLM"
    assert (config.num_layers, config.num_heads, config.num_kv_heads, config.head_dim) == (3, 4, 2, 16)
    assert (config.rope.theta, config.rms_norm_eps, config.max_position_embeddings) == (50_000.0, 1e-5, 256)
    assert (config.bos_token_id, config.eos_token_ids, config.tie_word_embeddings) == (1, (2,), True)


def test_tokenizer_and_chat_template_survive(tmp_path, target):
    gguf_file, _, source = write_gguf(tmp_path)
    convert(gguf_file, target)
    ours, theirs, original = Tokenizer(target), AutoTokenizer.from_pretrained(target), Tokenizer(source)
    messages = [{"role": "user", "content": "the cat, 123 日本 🎉"}]
    text = original.apply_chat_template(messages)
    assert ours.apply_chat_template(messages) == text
    assert ours.encode(text) == original.encode(text) == theirs(text).input_ids
    assert ours.decode(ours.encode(text), skip_special_tokens=False) == text
    assert ours.eos_token_id == theirs.eos_token_id == 2


def test_tokenizer_of_another_kind_is_refused_by_name(tmp_path, target):
    gguf_file, _, _ = write_gguf(tmp_path, tokenizer__ggml__pre="llama-bpe")
    with pytest.raises(ValueError, match="tokenizer.ggml.pre is 'llama-bpe'"):
        convert(gguf_file, target)
