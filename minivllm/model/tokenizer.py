"""Text to token ids and back, on the `tokenizers` library alone.

Importing transformers takes longer than loading the model, so it is not used; tokenizer.json holds
everything that encoding needs, tokenizer_config.json the names of special tokens and the chat
template. A chat prompt already spells out its special tokens, so it is encoded with
`add_special_tokens=False`; otherwise a model with a beginning-of-sequence token would get it twice.
"""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders

from . import byte_level
from .chat_template import ChatTemplate

_WAY_OUT = "restore the file; if this is the default model, delete the folder and fetch again"
_SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class Tokenizer:
    """The tokenizer of the checkpoint in folder `path`. `ValueError` naming the folder if it has none.

    `fast` is the underlying `tokenizers.Tokenizer`; `special_tokens` maps names such as "eos_token"
    to their text; `special_ids` are the ids that `skip_special_tokens` leaves out.
    """

    def __init__(self, path: str | Path) -> None:
        self.folder = Path(path)
        self.fast = self._load()
        self.fast.no_truncation()
        self.fast.no_padding()
        self.config = self._read_config()
        self.special_tokens = _special_tokens(self.config)
        self.special_ids = frozenset(
            token_id for token_id, token in self.fast.get_added_tokens_decoder().items() if token.special
        )

    @property
    def is_byte_level(self) -> bool:
        """True if a token stands for bytes, so that it can be decoded without its neighbours."""
        return isinstance(self.fast.decoder, decoders.ByteLevel)

    @property
    def vocab_size(self) -> int:
        """Number of tokens, the added ones included. The model's own may be larger (padding)."""
        return self.fast.get_vocab_size(with_added_tokens=True)

    @property
    def eos_token_id(self) -> int | None:
        return self._special_id("eos_token")

    @property
    def bos_token_id(self) -> int | None:
        return self._special_id("bos_token")

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of `text`; with `add_special_tokens`, framed as the checkpoint's post-processor
        says. Special tokens that are spelled out in the text become their ids either way."""
        return self.fast.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        """Text of `ids`; bytes that are no UTF-8, such as half a character, become U+FFFD."""
        return self.fast.decode(ids, skip_special_tokens=skip_special_tokens)

    def token_text(self, token_id: int) -> str:
        """Text of one token by itself, special tokens included; "" for an id that has none."""
        token = self.fast.id_to_token(token_id)
        if token is None:
            return ""
        if self.is_byte_level:
            return byte_level.to_bytes(token).decode("utf-8", errors="replace")
        return token.replace("▁", " ")

    def apply_chat_template(
        self,
        messages: list[dict[str, Any]],
        add_generation_prompt: bool = True,
        tokenize: bool = False,
        **variables: Any,
    ) -> str | list[int]:
        """The prompt that the model was trained to answer: its text, or with `tokenize` its ids.
        messages: [{"role": "user", "content": "…"}, …]. `variables` are passed to the template
        (e.g. enable_thinking of Qwen3). `ValueError` if there is no template, or it objects."""
        text = self._chat_template.render(messages, add_generation_prompt, **variables)
        return self.encode(text, add_special_tokens=False) if tokenize else text

    @property
    def has_chat_template(self) -> bool:
        return bool(self._chat_template_source)

    @cached_property
    def _chat_template_source(self) -> str | None:
        file = self.folder / "chat_template.jinja"
        source = file.read_text(encoding="utf-8") if file.is_file() else self.config.get("chat_template")
        if isinstance(source, list):  # older checkpoints: several, by name
            source = {entry["name"]: entry["template"] for entry in source}.get("default")
        return source

    @cached_property
    def _chat_template(self) -> ChatTemplate:
        source = self._chat_template_source
        if not source:
            raise ValueError(
                f"{self.folder} has no chat template (chat_template in tokenizer_config.json, or "
                "chat_template.jinja); use an instruction-tuned checkpoint, or generate() from plain text"
            )
        return ChatTemplate(source, self.special_tokens)

    def _special_id(self, name: str) -> int | None:
        token = self.special_tokens.get(name)
        return None if token is None else self.fast.token_to_id(token)

    def _load(self) -> FastTokenizer:
        file = self.folder / "tokenizer.json"
        if not file.is_file():
            raise ValueError(
                f"{self.folder} has no tokenizer.json; save one there (transformers' AutoTokenizer and its "
                "save_pretrained), or set skip_tokenizer_init=True and pass prompt_token_ids"
            )
        try:
            return FastTokenizer.from_file(str(file))
        except Exception as error:  # the library raises plain Exception
            raise ValueError(f"{file} is damaged ({error}); {_WAY_OUT}") from None

    def _read_config(self) -> dict[str, Any]:
        file = self.folder / "tokenizer_config.json"
        if not file.is_file():
            return {}
        try:
            return json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{file} is damaged ({error}); {_WAY_OUT}") from None


def _special_tokens(config: dict[str, Any]) -> dict[str, str]:
    found = {}
    for name in _SPECIAL_NAMES:
        token = config.get(name)
        if isinstance(token, dict):
            token = token.get("content")
        if token is not None:
            found[name] = token
    return found
