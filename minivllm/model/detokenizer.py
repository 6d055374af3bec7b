"""Text of a request, token by token, without ever showing half a character.

A token may end in the middle of a UTF-8 character, so tokens cannot be turned into text one by one;
and decoding everything again for each new token is quadratic. With a byte-level vocabulary (Llama
3, Qwen, SmolLM) a token is a byte string, and an incremental UTF-8 decoder keeps the unfinished
bytes. In other vocabularies (SentencePiece) a token's text depends on the token before it, and the
two are decoded together. Either way the work a token is constant.
"""

from __future__ import annotations

import codecs
import re
from typing import Protocol

from . import byte_level
from .tokenizer import Tokenizer

_BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")


class Detokenizer:
    """Collects one request's tokens. What the pieces from `add` make together is what
    `tokenizer.decode` makes of all ids, less a character that was never finished. (Bytes that are
    no UTF-8 become U+FFFD; how many may differ in a SentencePiece vocabulary.)"""

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool = True) -> None:
        kind = _ByteStream if tokenizer.is_byte_level else _NeighbourStream
        self._stream: _Stream = kind(tokenizer, skip_special_tokens)

    def add(self, token_id: int) -> str:
        """Take the next token; return the text that it completes, often one word, or ""."""
        return self._stream.add(token_id)


class _Stream(Protocol):
    def add(self, token_id: int) -> str: ...


class _ByteStream:
    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool) -> None:
        self._token_of = tokenizer.fast.id_to_token
        self._skipped = tokenizer.special_ids if skip_special_tokens else frozenset()
        self._decoder = _utf8_decoder()

    def add(self, token_id: int) -> str:
        token = None if token_id in self._skipped else self._token_of(token_id)
        return "" if token is None else self._decoder.decode(byte_level.to_bytes(token))


class _NeighbourStream:
    """A token's text is what it adds to the text of the token before it, which decides whether a
    leading space is kept. Tokens such as "<0xF0>" are single bytes."""

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._skipped = tokenizer.special_ids if skip_special_tokens else frozenset()
        self._decoder = _utf8_decoder()
        self._before: list[int] = []

    def add(self, token_id: int) -> str:
        # A skipped token must not become the neighbour: it has no text, so the next token's leading
        # space would be taken for the start of the whole text, and lost.
        token = None if token_id in self._skipped else self._tokenizer.fast.id_to_token(token_id)
        if token is None:
            return ""
        before, self._before = self._before, [token_id]
        byte = _BYTE_TOKEN.fullmatch(token)
        if byte:
            return self._decoder.decode(bytes([int(byte[1], 16)]))
        unfinished = self._decoder.decode(b"", final=True)
        return unfinished + self._decode([*before, token_id])[len(self._decode(before)) :]

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False)


def _utf8_decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")(errors="replace")
