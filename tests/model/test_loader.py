import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

from minivllm.model.loader import load_model

from .checkpoints import all_logits, reference_logits, write_checkpoint

IDS = [5, 17, 3, 99, 42, 8, 64]


def _refused(folder, *words):
    with pytest.raises(ValueError) as caught:
        load_model(folder)
    for word in words:
        assert word in str(caught.value), str(caught.value)


def _edit_tensors(folder, edit):
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_sharded_checkpoint_loads_as_the_single_file_does(tmp_path, kind):
    model = write_checkpoint(tmp_path, kind, max_shard_size="50KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    assert (all_logits(load_model(tmp_path), IDS) - reference_logits(model, IDS)).abs().max() < 1e-4


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16])
def test_half_precision_files_are_cast_while_loading(tmp_path, stored):
    write_checkpoint(tmp_path, dtype=stored)
    reference = reference_logits(LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32), IDS)
    decoder = load_model(tmp_path, dtype=torch.float32)
    assert decoder.dtype == torch.float32
    assert (all_logits(decoder, IDS) - reference).abs().max() < 1e-4


def test_fp32_file_can_be_loaded_as_bfloat16(tmp_path):
    write_checkpoint(tmp_path)
    decoder = load_model(tmp_path, dtype=torch.bfloat16)
    assert decoder.embedding.dtype == torch.bfloat16
    assert decoder.layers[0].qkv.weight.dtype == torch.bfloat16


def test_model_outlives_its_file(tmp_path):
    reference = reference_logits(write_checkpoint(tmp_path), IDS)
    decoder = load_model(tmp_path)
    file = tmp_path / "model.safetensors"
    size = file.stat().st_size
    file.write_bytes(bytes(size))
    assert (all_logits(decoder, IDS) - reference).abs().max() < 1e-4


def test_folder_without_weights_is_refused(tmp_path):
    write_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    _refused(tmp_path, str(tmp_path), "model.safetensors", "fetch again")


def test_folder_with_old_pickle_weights_only_is_refused_by_name(tmp_path):
    write_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    _refused(tmp_path, "pytorch_model.bin", "save_pretrained")


@pytest.mark.parametrize("keep", [0, 4, 300, 0.5, 0.999])
def test_file_that_is_cut_off_is_refused(tmp_path, keep):
    write_checkpoint(tmp_path)
    file = tmp_path / "model.safetensors"
    data = file.read_bytes()
    file.write_bytes(data[: keep if isinstance(keep, int) else int(keep * len(data))])
    _refused(tmp_path, str(file), "damaged", "fetch again")


def test_missing_tensor_is_named(tmp_path):
    write_checkpoint(tmp_path)
    _edit_tensors(tmp_path, lambda tensors: tensors.pop("model.layers.1.mlp.up_proj.weight"))
    _refused(tmp_path, str(tmp_path), "model.layers.1.mlp.up_proj.weight")


def test_tensor_of_wrong_shape_is_named_with_both_shapes(tmp_path):
    write_checkpoint(tmp_path)
    name = "model.layers.2.self_attn.k_proj.weight"
    _edit_tensors(tmp_path, lambda tensors: tensors.update({name: torch.zeros(15, 48)}))
    _refused(tmp_path, str(tmp_path / "model.safetensors"), name, "[15, 48]", "[16, 48]")


def test_tensor_of_integers_is_refused(tmp_path):
    write_checkpoint(tmp_path)
    name = "model.layers.0.self_attn.o_proj.weight"
    _edit_tensors(tmp_path, lambda tensors: tensors.update({name: torch.zeros(48, 48, dtype=torch.int8)}))
    _refused(tmp_path, name, "torch.int8")


def test_missing_shard_is_named(tmp_path):
    write_checkpoint(tmp_path, max_shard_size="50KB")
    shard = sorted(tmp_path.glob("model-*.safetensors"))[1]
    shard.unlink()
    _refused(tmp_path, str(shard), "missing")


def test_shard_that_lacks_a_tensor_of_the_index_is_named(tmp_path):
    write_checkpoint(tmp_path, max_shard_size="50KB")
    index = tmp_path / "model.safetensors.index.json"
    data = json.loads(index.read_text())
    shards = sorted(set(data["weight_map"].values()))
    data["weight_map"]["model.norm.weight"] = next(
        shard for shard in shards if shard != data["weight_map"]["model.norm.weight"]
    )
    index.write_text(json.dumps(data))
    _refused(tmp_path, "model.norm.weight", data["weight_map"]["model.norm.weight"])


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"weight_map": 3}'])
def test_damaged_index_is_named(tmp_path, text):
    write_checkpoint(tmp_path, max_shard_size="50KB")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(text)
    _refused(tmp_path, str(index), "damaged")
