"""The alphabet of byte-level BPE: one printable character for each of the 256 bytes.

GPT-2 (Radford et al., 2019) spells bytes as characters, so that a vocabulary of byte strings can be
kept in a text file: a byte that is a printable Latin-1 character stands for itself, and the other
68 for the characters from U+0100 on, in order. "Ġ" is thus the space.
"""

from __future__ import annotations

_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
_BYTE_OF = {chr(byte): byte for byte in _PRINTABLE} | {chr(0x100 + i): byte for i, byte in enumerate(_OTHERS)}


def to_bytes(token: str) -> bytes:
    """The bytes that a token of a byte-level vocabulary stands for. A token with a character outside
    the alphabet was added as plain text, and stands for itself in UTF-8."""
    try:
        return bytes([_BYTE_OF[character] for character in token])
    except KeyError:
        return token.encode("utf-8")
