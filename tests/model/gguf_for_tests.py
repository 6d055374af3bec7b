"""A tiny GGUF file, laid out as llama.cpp lays out the default model."""

import json

import gguf
import numpy as np

from .checkpoints import write_checkpoint
from .tokenizers_for_tests import TEMPLATE, byte_level_folder

_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_HEADS = {"attn_q": 4, "attn_k": 2}


def write_gguf(folder, quantization=gguf.GGMLQuantizationType.F32, tied=True, **metadata):
    """Write folder/tiny.gguf; return its path, the transformers model it was made from (fp32, not
    quantized) and the folder of its tokenizer. `metadata` replaces string entries (dots as __)."""
    tokenizer = byte_level_folder(folder / "tokenizer")
    bpe = json.loads((tokenizer / "tokenizer.json").read_text())["model"]
    tokens = sorted(bpe["vocab"], key=bpe["vocab"].get)
    model = write_checkpoint(
        folder / "source",
        vocab_size=len(tokens),
        hidden_size=64,
        intermediate_size=96,
        num_attention_heads=4,
        tie_word_embeddings=tied,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 50_000.0},
    )
    writer = gguf.GGUFWriter(folder / "tiny.gguf", "llama")
    writer.add_block_count(3)
    writer.add_context_length(256)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_freq_base(50_000.0)
    writer.add_rope_dimension_count(16)
    writer.add_layer_norm_rms_eps(1e-5)
    texts = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm"}
    for key, value in {**texts, **{k.replace("__", "."): v for k, v in metadata.items()}}.items():
        writer.add_string(key, value)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token.startswith("<|") else 1 for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in bpe["merges"]])
    for name, token_id in (("bos", 1), ("eos", 2), ("unknown", 0), ("padding", 2)):
        writer.add_uint32(f"tokenizer.ggml.{name}_token_id", token_id)
    writer.add_chat_template(TEMPLATE)
    for name, weight in model.state_dict().items():
        if not (tied and name == "lm_head.weight"):
            _add_tensor(writer, name.removesuffix(".weight"), weight.numpy(), quantization)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder / "tiny.gguf", model, tokenizer


def _add_tensor(writer, name, weight, quantization):
    if name.startswith("model.layers."):
        _, _, layer, part = name.split(".", 3)
        part = _NAMES[part]
        name = f"blk.{layer}.{part}"
        if part in _HEADS:
            pairs = weight.reshape(_HEADS[part], 2, -1, weight.shape[1])
            weight = np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(weight.shape)
    else:
        name = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}[name]
    if weight.ndim == 1 or quantization == gguf.GGMLQuantizationType.F32:
        writer.add_tensor(f"{name}.weight", weight)
    else:
        data = gguf.quants.quantize(weight, quantization)
        writer.add_tensor(f"{name}.weight", data, raw_dtype=quantization)
