"""From a GGUF file (llama.cpp's format) to a folder in Hugging Face format.

GGUF holds everything in one file: quantized weights, the shape of the model, the tokenizer and the
chat template. The weights become fp32 safetensors, which the loader maps straight into memory, and
the rest the usual JSON files. One thing is not a matter of names: llama.cpp rotates neighbouring
pairs (0, 1), (2, 3) … of a head where Hugging Face rotates (0, d/2), (1, d/2 + 1) …, so its q and k
rows are stored in another order, which is undone here. Only what the default model needs is
understood (Llama weights, byte-level BPE of SmolLM); anything else is refused by name.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

_TENSOR_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_CONTROL = 3  # tokenizer.ggml.token_type of special tokens


def convert(gguf_file: str | Path, folder: str | Path, progress: bool = False) -> None:
    """Write config, generation config, weights and tokenizer of `gguf_file` into `folder`, which
    must exist. Takes seconds for 135 M weights. `ValueError` naming what it does not understand."""
    from gguf import GGUFReader

    folder = Path(folder)
    reader = GGUFReader(gguf_file)
    meta = {name: field.contents() for name, field in reader.fields.items()}
    for key, known in (
        ("general.architecture", "llama"),
        ("tokenizer.ggml.model", "gpt2"),
        ("tokenizer.ggml.pre", "smollm"),
    ):
        if meta.get(key) != known:
            raise ValueError(f"{gguf_file}: {key} is {meta.get(key)!r}; only {known!r} can be converted")
    tied = all(tensor.name != "output.weight" for tensor in reader.tensors)
    _write_configs(folder, meta, tied)
    _write_tokenizer(folder, meta)
    _write_weights(folder, reader.tensors, meta, progress)


def _write_configs(folder: Path, meta: dict[str, Any], tied: bool) -> None:
    num_heads = meta["llama.attention.head_count"]
    hidden_size = meta["llama.embedding_length"]
    tokens = {
        "bos_token_id": meta["tokenizer.ggml.bos_token_id"],
        "eos_token_id": meta["tokenizer.ggml.eos_token_id"],
        "pad_token_id": meta["tokenizer.ggml.padding_token_id"],
    }
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(meta["tokenizer.ggml.tokens"]),
        "hidden_size": hidden_size,
        "intermediate_size": meta["llama.feed_forward_length"],
        "num_hidden_layers": meta["llama.block_count"],
        "num_attention_heads": num_heads,
        "num_key_value_heads": meta["llama.attention.head_count_kv"],
        "head_dim": meta.get("llama.rope.dimension_count", hidden_size // num_heads),
        "max_position_embeddings": meta["llama.context_length"],
        "rms_norm_eps": _shortest(meta["llama.attention.layer_norm_rms_epsilon"]),
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": _shortest(meta.get("llama.rope.freq_base", 10_000.0)),
        },
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "dtype": "float32",
        **tokens,
    }
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", tokens)


def _shortest(value: float) -> float:
    """GGUF stores float32: 1e-5 comes back as 9.99999975e-06, and is meant as 1e-5."""
    return float(str(np.float32(value)))


def _write_tokenizer(folder: Path, meta: dict[str, Any]) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens = meta["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in meta["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = meta["tokenizer.ggml.token_type"]
    special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    tokenizer.save(str(folder / "tokenizer.json"))
    named = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    config = {
        f"{short}_token": tokens[meta[f"tokenizer.ggml.{long}_token_id"]]
        for short, long in named.items()
        if f"tokenizer.ggml.{long}_token_id" in meta
    }
    config |= {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": meta["llama.context_length"],
    }
    if "tokenizer.chat_template" in meta:
        config["chat_template"] = meta["tokenizer.chat_template"]
    _write_json(folder / "tokenizer_config.json", config)


def _write_weights(folder: Path, tensors: list, meta: dict[str, Any], progress: bool) -> None:
    from gguf.quants import dequantize
    from safetensors.numpy import save_file
    from tqdm import tqdm

    heads = {
        "attn_q": meta["llama.attention.head_count"],
        "attn_k": meta["llama.attention.head_count_kv"],
    }
    weights: dict[str, np.ndarray] = {}
    for tensor in tqdm(tensors, desc="converting the weights", unit="tensor", disable=not progress):
        *block, part, kind = tensor.name.split(".")
        if part not in _TENSOR_NAMES or kind != "weight":
            raise ValueError(f"tensor {tensor.name!r} of the GGUF file is not one of a plain Llama model")
        weight = dequantize(tensor.data, tensor.tensor_type)
        if part in heads:
            weight = _split_pairs(weight, heads[part])
        prefix = f"model.layers.{block[1]}." if block else ""
        weights[f"{prefix}{_TENSOR_NAMES[part]}.{kind}"] = np.ascontiguousarray(weight, np.float32)
    file = folder / "model.safetensors"
    save_file(weights, file, metadata={"format": "pt"})
    # The library makes it readable to its owner alone; a cache may be shared, as its other files are.
    file.chmod((folder / "config.json").stat().st_mode)


def _split_pairs(weight: np.ndarray, num_heads: int) -> np.ndarray:
    """Rows of each head from (0, d/2, 1, d/2 + 1, …) back to (0, 1, 2, …)."""
    pairs = weight.reshape(num_heads, -1, 2, weight.shape[1])
    return pairs.swapaxes(1, 2).reshape(weight.shape)


def _write_json(file: Path, data: dict[str, Any]) -> None:
    file.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
