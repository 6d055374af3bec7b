"""What a checkpoint's config.json says about the model, in one frozen dataclass.

One decoder serves Llama, Qwen2 and Qwen3, because they differ in a handful of numbers and switches:
biases, the norm of q and k, the rotary table. Everything that this decoder would compute wrongly is
refused here, by name, before a weight is read. Both layouts of config.json are understood: that of
transformers 5 (`rope_parameters`, `dtype`) and the older one (`rope_theta`, `rope_scaling`,
`torch_dtype`). No torch here, so that a memory calculator can use it alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# architecture -> (model_type, head_dim that transformers assumes when config.json names none)
_ARCHITECTURES = {
    "LlamaForCausalLM": ("llama", None),
    "Qwen2ForCausalLM": ("qwen2", None),
    "Qwen3ForCausalLM": ("qwen3", 128),
}


@dataclass(frozen=True)
class RopeConfig:
    """Rotary embedding: `type` is "default", "linear" (positions divided by `factor`) or "llama3"
    (low frequencies divided by `factor`, high ones kept, a blend between; lengths in tokens)."""

    type: str = "default"
    theta: float = 10_000.0
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192


@dataclass(frozen=True)
class ModelConfig:
    """Shape of a decoder-only model. `dtype` is the name in the checkpoint, e.g. "bfloat16"."""

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope: RopeConfig
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool
    tie_word_embeddings: bool
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None
    dtype: str

    @classmethod
    def from_folder(cls, path: str | Path) -> ModelConfig:
        """Read config.json, and generation_config.json where there is one: its end-of-sequence ids
        are the ones that generation uses. `ValueError` naming the folder if it is no checkpoint."""
        folder = Path(path)
        raw = _read_json(folder / "config.json")
        if raw is None:
            raise ValueError(
                f"{folder} is no checkpoint: it has no config.json; "
                "give a folder in Hugging Face format (config.json and *.safetensors)"
            )
        generation = _read_json(folder / "generation_config.json") or {}
        if generation.get("eos_token_id") is not None:
            raw = {**raw, "eos_token_id": generation["eos_token_id"]}
        try:
            return cls.from_dict(raw)
        except ValueError as error:
            raise ValueError(f"{folder / 'config.json'}: {error}") from None

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> ModelConfig:
        """From the contents of config.json. `ValueError` for what is missing or not supported."""
        architecture = _architecture(d)
        model_type, assumed_head_dim = _ARCHITECTURES[architecture]
        num_layers = _size(d, "num_hidden_layers")
        num_heads = _size(d, "num_attention_heads")
        hidden_size = _size(d, "hidden_size")
        _refuse_unsupported(d, num_layers)
        num_kv_heads = _size(d, "num_key_value_heads", num_heads)
        if num_heads % num_kv_heads:
            raise ValueError(
                f"num_attention_heads is {num_heads}, num_key_value_heads is {num_kv_heads}; "
                "the first must be a multiple of the second"
            )
        head_dim = _size(d, "head_dim", assumed_head_dim or hidden_size // num_heads)
        if head_dim % 2:
            raise ValueError(f"head_dim is {head_dim}; rotary embedding needs an even one")
        attention_bias = bool(d.get("attention_bias", False))
        is_qwen2 = model_type == "qwen2"
        return cls(
            architecture=architecture,
            vocab_size=_size(d, "vocab_size"),
            hidden_size=hidden_size,
            intermediate_size=_size(d, "intermediate_size"),
            num_layers=num_layers,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            max_position_embeddings=_size(d, "max_position_embeddings", 2048),
            rms_norm_eps=float(d.get("rms_norm_eps", 1e-6)),
            rope=_rope(d),
            qkv_bias=is_qwen2 or attention_bias,
            o_bias=attention_bias and not is_qwen2,
            mlp_bias=model_type == "llama" and bool(d.get("mlp_bias", False)),
            qk_norm=model_type == "qwen3",
            tie_word_embeddings=bool(d.get("tie_word_embeddings", False)),
            eos_token_ids=_token_ids(d.get("eos_token_id")),
            bos_token_id=d.get("bos_token_id"),
            dtype=str(d.get("dtype") or d.get("torch_dtype") or "float32").removeprefix("torch."),
        )

    def kv_bytes_per_token(self, dtype_bytes: int) -> int:
        """Bytes of keys and values that one token takes in all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * dtype_bytes

    def num_parameters(self) -> int:
        """Weights of the whole model; a head that is tied to the embedding counts once."""
        hidden, inner = self.hidden_size, self.intermediate_size
        q_size, kv_size = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        attention = hidden * (q_size + 2 * kv_size) + q_size * hidden
        attention += self.qkv_bias * (q_size + 2 * kv_size) + self.o_bias * hidden
        attention += self.qk_norm * 2 * self.head_dim
        mlp = 3 * hidden * inner + self.mlp_bias * (2 * inner + hidden)
        embeddings = (1 if self.tie_word_embeddings else 2) * self.vocab_size * hidden
        return embeddings + self.num_layers * (attention + mlp + 2 * hidden) + hidden


def _read_json(file: Path) -> dict[str, Any] | None:
    """None if there is no such file; `ValueError` naming it if it holds no JSON object."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise ValueError(f"{file} cannot be read as JSON ({error}); restore it or fetch again") from None
    if not isinstance(data, dict):
        raise ValueError(f"{file} holds no JSON object; restore it or fetch again")
    return data


def _architecture(d: dict[str, Any]) -> str:
    names = d.get("architectures")
    if not names:
        by_type = {model_type: name for name, (model_type, _) in _ARCHITECTURES.items()}
        names = [by_type.get(d.get("model_type"), d.get("model_type"))]
    if names[0] not in _ARCHITECTURES:
        raise ValueError(
            f"architecture {names[0]!r} is not supported; this engine runs {', '.join(_ARCHITECTURES)}"
        )
    return names[0]


def _size(d: dict[str, Any], key: str, default: int | None = None) -> int:
    value = d.get(key)
    if value is None:
        value = default
    if value is None:
        raise ValueError(f"{key} is missing; the checkpoint's config.json must give it")
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{key} is {value!r}; it must be a whole number of at least 1")
    return value


def _refuse_unsupported(d: dict[str, Any], num_layers: int) -> None:
    if d.get("quantization_config"):
        method = d["quantization_config"].get("quant_method", "unnamed")
        raise ValueError(
            f"quantization_config ({method}) is not supported; use the unquantized checkpoint of this model"
        )
    activation = d.get("hidden_act", "silu")
    if activation != "silu":
        raise ValueError(f"hidden_act is {activation!r}; this engine computes 'silu' only")
    layer_types = d.get("layer_types")
    if layer_types is None and d.get("use_sliding_window") and d.get("sliding_window") is not None:
        sliding = d.get("max_window_layers", 0) < num_layers
        layer_types = ["sliding_attention"] if sliding else []
    others = sorted(set(layer_types or []) - {"full_attention"})
    if others:
        raise ValueError(
            f"layer type {others[0]!r} is not supported; every layer must attend to all tokens "
            "(no sliding window)"
        )


def _rope(d: dict[str, Any]) -> RopeConfig:
    given = d.get("rope_parameters") or d.get("rope_scaling") or {}
    kind = given.get("rope_type") or given.get("type") or "default"
    if kind not in ("default", "linear", "llama3") or any(isinstance(v, dict) for v in given.values()):
        raise ValueError(f"rope type {kind!r} is not supported; this engine knows default, linear, llama3")
    partial = given.get("partial_rotary_factor", d.get("partial_rotary_factor"))
    if partial not in (None, 1, 1.0):
        raise ValueError(f"partial_rotary_factor is {partial}; this engine rotates whole heads only")
    theta = float(given.get("rope_theta") or d.get("rope_theta") or 10_000.0)
    if kind == "default":
        return RopeConfig(theta=theta)
    try:
        if kind == "linear":
            return RopeConfig("linear", theta, float(given["factor"]))
        return RopeConfig(
            "llama3",
            theta,
            factor=float(given["factor"]),
            low_freq_factor=float(given["low_freq_factor"]),
            high_freq_factor=float(given["high_freq_factor"]),
            original_max_position_embeddings=int(given["original_max_position_embeddings"]),
        )
    except KeyError as error:
        raise ValueError(f"rope type {kind!r} needs {error.args[0]}; config.json does not give it") from None


def _token_ids(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list | tuple) else (value,)
