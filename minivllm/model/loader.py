"""Weights from safetensors files straight into the decoder's own layout.

The files are mapped, not read: a tensor's pages come from disk when it is copied to where it
belongs, e.g. q, k and v into their rows of one fused tensor, cast on the way. So there is never a
second full copy, and a model whose file is in the page cache loads in a fraction of a second. What
is missing, damaged or of the wrong shape is refused with the names of file and tensor.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from .config import ModelConfig
from .decoder import Decoder, LayerWeights
from .linear import Linear, can_pack

_WAY_OUT = "restore the file; if this is the default model, delete the folder and fetch again"
_STORED_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class Checkpoint:
    """The tensors of a folder, by name, whether they lie in one file or in shards."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._files: dict[Path, safe_open] = {}
        self._index = self._read_index()

    def read(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """The stored tensor, as a view of the mapped file. `ValueError` if it is not there, or not
        of `shape`, or not a floating-point type that this engine casts."""
        file = self._index.get(name)
        if file is None:
            raise ValueError(f"{self.folder} has no tensor {name!r}, which config.json calls for; {_WAY_OUT}")
        try:
            tensor = self._open(file).get_tensor(name)
        except SafetensorError as error:
            raise ValueError(f"{file}: tensor {name!r} cannot be read ({error}); {_WAY_OUT}") from None
        if tuple(tensor.shape) != shape:
            raise ValueError(
                f"{file}: tensor {name!r} is {list(tensor.shape)}, config.json calls for {list(shape)}; "
                "file and config.json are not of the same model"
            )
        if tensor.dtype not in _STORED_DTYPES:
            raise ValueError(
                f"{file}: tensor {name!r} is stored as {tensor.dtype}; "
                "use a checkpoint in float32, bfloat16 or float16"
            )
        return tensor

    def _read_index(self) -> dict[str, Path]:
        """File of each tensor."""
        single = self.folder / "model.safetensors"
        if single.is_file():
            return dict.fromkeys(self._open(single).keys(), single)
        index = self.folder / "model.safetensors.index.json"
        if index.is_file():
            try:
                weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
                return {name: self.folder / file for name, file in weight_map.items()}
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ValueError(f"{index} is damaged ({error!r}); {_WAY_OUT}") from None
        old = next(iter(sorted(self.folder.glob("*.bin"))), None)
        if old is not None:
            raise ValueError(
                f"{self.folder} holds weights as {old.name} only, a pickle that can run code; "
                "save it as safetensors (transformers' save_pretrained does) and give that folder"
            )
        raise ValueError(f"{self.folder} has no model.safetensors and no {index.name}; {_WAY_OUT}")

    def _open(self, file: Path) -> safe_open:
        if file not in self._files:
            try:
                self._files[file] = safe_open(file, framework="pt")
            except FileNotFoundError:
                raise ValueError(f"{file} is missing; {_WAY_OUT}") from None
            except (SafetensorError, OSError) as error:
                raise ValueError(f"{file} is damaged or cut off ({error}); {_WAY_OUT}") from None
        return self._files[file]


def load_model(
    path: str | Path, dtype: torch.dtype = torch.float32, device: str | torch.device = "cpu"
) -> Decoder:
    """Load the checkpoint in folder `path`, cast to `dtype`, onto `device`. `ValueError` for what
    `ModelConfig` refuses, and for files that are missing, damaged or do not fit config.json."""
    config = ModelConfig.from_folder(path)
    return _Builder(config, Checkpoint(path), dtype, torch.device(device)).decoder()


class _Builder:
    def __init__(
        self, config: ModelConfig, checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.config, self.checkpoint = config, checkpoint
        self.dtype, self.device = dtype, device

    def decoder(self) -> Decoder:
        config = self.config
        vocab_size, hidden_size = config.vocab_size, config.hidden_size
        embedding = self._fused({"model.embed_tokens.weight": (vocab_size, hidden_size)})
        if config.tie_word_embeddings:
            head = Linear(embedding)
        else:
            head = self._linear({"lm_head": vocab_size}, hidden_size)
        return Decoder(
            config,
            embedding,
            [self._layer(f"model.layers.{i}.") for i in range(config.num_layers)],
            self._fused({"model.norm.weight": (hidden_size,)}),
            head,
        )

    def _layer(self, prefix: str) -> LayerWeights:
        config = self.config
        hidden, inner = config.hidden_size, config.intermediate_size
        q_size, kv_size = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        attention, mlp = f"{prefix}self_attn.", f"{prefix}mlp."
        qkv = {f"{attention}q_proj": q_size, f"{attention}k_proj": kv_size, f"{attention}v_proj": kv_size}
        return LayerWeights(
            input_norm=self._fused({f"{prefix}input_layernorm.weight": (hidden,)}),
            qkv=self._linear(qkv, hidden, config.qkv_bias),
            qk_norm=self._qk_norm(attention) if config.qk_norm else None,
            o=self._linear({f"{attention}o_proj": hidden}, q_size, config.o_bias),
            post_attention_norm=self._fused({f"{prefix}post_attention_layernorm.weight": (hidden,)}),
            gate_up=self._linear({f"{mlp}gate_proj": inner, f"{mlp}up_proj": inner}, hidden, config.mlp_bias),
            down=self._linear({f"{mlp}down_proj": hidden}, inner, config.mlp_bias),
        )

    def _linear(self, parts: dict[str, int], in_features: int, has_bias: bool = False) -> Linear:
        """One layer from the stacked rows of `parts`, a mapping from name to number of rows."""
        weights = {f"{name}.weight": (rows, in_features) for name, rows in parts.items()}
        biases = {f"{name}.bias": (rows,) for name, rows in parts.items()} if has_bias else {}
        return Linear(self._unpacked(weights), self._fused(biases) if has_bias else None)

    def _unpacked(self, tensors: dict[str, tuple[int, ...]]) -> torch.Tensor:
        """A weight that `Linear` takes. What packing will copy anyway is packed from the mapped file."""
        if len(tensors) == 1 and self.dtype == torch.float32 and self.device.type == "cpu":
            ((name, shape),) = tensors.items()
            stored = self.checkpoint.read(name, shape)
            if can_pack(stored):
                return stored
        return self._fused(tensors)

    def _qk_norm(self, attention: str) -> torch.Tensor:
        shape = (self.config.head_dim,)
        q_weight = self._fused({f"{attention}q_norm.weight": shape})
        k_weight = self._fused({f"{attention}k_norm.weight": shape})
        rows = [q_weight.expand(self.config.num_heads, -1), k_weight.expand(self.config.num_kv_heads, -1)]
        return torch.cat(rows)

    def _fused(self, tensors: dict[str, tuple[int, ...]]) -> torch.Tensor:
        """The named tensors, of these shapes, one below the other, in memory of their own."""
        rows = [shape[0] for shape in tensors.values()]
        columns = next(iter(tensors.values()))[1:]
        fused = torch.empty((sum(rows), *columns), dtype=self.dtype, device=self.device)
        for piece, (name, shape) in zip(fused.split(rows), tensors.items(), strict=True):
            piece.copy_(self.checkpoint.read(name, shape))
        return fused
