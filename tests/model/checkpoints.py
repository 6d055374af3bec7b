"""Tiny random checkpoints, written by transformers itself, and its answer to compare with.

Default initialisation gives nearly constant logits that ignore the prompt, so weights are drawn
wide, and norms and biases, which would start at 1 and 0, are drawn too.
"""

import torch
import torch.nn.functional as F
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

CLASSES = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}
SHAPE = {
    "vocab_size": 101,
    "hidden_size": 48,
    "intermediate_size": 72,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def write_checkpoint(folder, kind="llama", dtype=torch.float32, max_shard_size="1GB", **overrides):
    """Save a random model of `kind` into `folder`; return the transformers model."""
    config_class, model_class = CLASSES[kind]
    torch.manual_seed(0)
    model = model_class(config_class(**{**SHAPE, **overrides})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    model = model.to(dtype)
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    return model


def causal_attention(layer, q, k, v):
    """`attend` for one whole sequence, without a cache. k and v: [num_tokens, num_kv_heads, head_dim]."""
    q, k, v = (x.transpose(0, 1).float() for x in (q, k, v))
    mixed = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True, enable_gqa=True)
    return mixed[0].transpose(0, 1)


def all_logits(decoder, token_ids):
    """Logits at every position of one sequence: [num_tokens, vocab_size]."""

    def attend(*args):
        return causal_attention(*args).to(decoder.dtype)

    ids = torch.tensor(token_ids)
    with torch.inference_mode():
        return decoder.logits(decoder.hidden(ids, torch.arange(len(ids)), attend))


def reference_logits(model, token_ids):
    with torch.inference_mode():
        return model(torch.tensor([token_ids])).logits[0].float()
