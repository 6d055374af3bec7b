"""Tiny random checkpoints of the three architectures, written by transformers itself.

They must bite: with default initialisation a model repeats one token whatever the prompt, and biases
and norms that are all 0 and 1 can be forgotten without notice. So weights are large (with 0.3 a
continuation of 30 tokens has about 24 different ones, while fp32 noise on the logits stays near 2e-5;
sharper attention raises the noise and bites no better), every bias and norm is random, and the shapes
differ between families, with num_heads · head_dim ≠ hidden_size in one of them.
"""

from __future__ import annotations

from pathlib import Path

import torch

SHAPES = {
    "llama": {"hidden_size": 48, "intermediate_size": 80, "num_attention_heads": 6, "num_key_value_heads": 2},
    "qwen2": {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2},
    "qwen3": {
        "hidden_size": 56, "intermediate_size": 88, "num_attention_heads": 5, "num_key_value_heads": 1,
        "head_dim": 16,
    },
}  # fmt: skip
COMMON = {
    "num_hidden_layers": 3,
    "vocab_size": 160,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


def make_checkpoint(path: str | Path, family: str, seed: int, *, tie: bool = False, **overrides) -> Path:
    """Write config.json and model.safetensors (fp32, no tokenizer) of a random model to `path`.

    `family` is "llama", "qwen2" or "qwen3"; `overrides` go into the transformers config as they are
    (`rope_parameters`, `attention_bias`, `eos_token_id`, …). The same arguments give the same weights.
    `save_pretrained` options `max_shard_size` and `dtype` are taken from the overrides, too.
    """
    import transformers

    name = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}[family]
    config_class, model_class = (getattr(transformers, name + end) for end in ("Config", "ForCausalLM"))
    saving = {"max_shard_size": overrides.pop("max_shard_size", "1GB")}
    dtype = overrides.pop("dtype", torch.float32)
    config = config_class(**{**COMMON, **SHAPES[family], "tie_word_embeddings": tie, **overrides})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = model_class(config)
        _randomise_what_starts_constant(model)
    model.to(dtype).save_pretrained(path, **saving)
    return Path(path)


@torch.no_grad()
def _randomise_what_starts_constant(model) -> None:
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.normal_(0, 0.3)
        elif name.endswith("norm.weight"):
            parameter.uniform_(0.6, 1.4)
