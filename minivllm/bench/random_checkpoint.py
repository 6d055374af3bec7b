"""A checkpoint of a real model's shape with random weights, for machines that have no network.

Speed does not depend on what the weights say, only on how many there are: a decode step reads every one.
The folder is in Hugging Face format, one file, without a tokenizer.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from ..model.config import ModelConfig

# Shapes of models that people run; tied embeddings, as in the originals.
LLAMA_1B = {
    "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": 64, "intermediate_size": 8192, "vocab_size": 128256, "max_position_embeddings": 8192,
}  # fmt: skip
LLAMA_3B = {
    **LLAMA_1B,
    "hidden_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 24,
    "head_dim": 128,
}


def write(folder: Path, shape: dict[str, Any], dtype: torch.dtype, device: str = "cpu") -> int:
    """Write config.json and model.safetensors; the random numbers are drawn on `device`. → number of
    weights."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "tie_word_embeddings": True,
        "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu", **shape,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    sizes = tensor_shapes(ModelConfig.from_folder(folder))
    generator = torch.Generator(device).manual_seed(0)
    tensors = {}
    for name, size in sizes.items():
        tensor = torch.empty(size, dtype=dtype, device=device)
        if len(size) == 1:
            tensor.fill_(1)
        else:
            tensor.normal_(0, size[1] ** -0.5, generator=generator)
        tensors[name] = tensor.cpu()
    save_file(tensors, folder / "model.safetensors")
    return sum(tensor.numel() for tensor in tensors.values())


def tensor_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a Llama checkpoint with tied embeddings."""
    hidden, inner = config.hidden_size, config.intermediate_size
    q_size, kv_size = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    sizes = {"model.embed_tokens.weight": (config.vocab_size, hidden), "model.norm.weight": (hidden,)}
    for i in range(config.num_layers):
        layer = f"model.layers.{i}."
        sizes |= {
            f"{layer}input_layernorm.weight": (hidden,),
            f"{layer}post_attention_layernorm.weight": (hidden,),
            f"{layer}self_attn.q_proj.weight": (q_size, hidden),
            f"{layer}self_attn.k_proj.weight": (kv_size, hidden),
            f"{layer}self_attn.v_proj.weight": (kv_size, hidden),
            f"{layer}self_attn.o_proj.weight": (hidden, q_size),
            f"{layer}mlp.gate_proj.weight": (inner, hidden),
            f"{layer}mlp.up_proj.weight": (inner, hidden),
            f"{layer}mlp.down_proj.weight": (hidden, inner),
        }
    return sizes
