"""The bytes that a token stands for."""

from __future__ import annotations

from functools import cache

from slipstream.vocabulary.metadata import TokenType, Vocabulary
from slipstream.vocabulary.spm import SPACE


@cache
def byte_of_character() -> dict[str, int]:
    """GPT-2's printable alphabet of bytes: printable Latin-1 stands for itself, others follow.

    Source: ``bytes_to_unicode`` of the GPT-2 release (Radford et al. 2019).
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(256 + index): byte for index, byte in enumerate(others)}


def piece(vocabulary: Vocabulary, token: int) -> bytes:
    """Exact bytes of a token: a special token's text, nothing for an unused one (llama.cpp).

    A byte-pair token with a character outside GPT-2's alphabet stands for its own UTF-8.
    """
    text, kind = vocabulary.tokens[token], vocabulary.types[token]
    if kind == TokenType.UNUSED:
        return b""
    if kind == TokenType.BYTE:
        return _byte(text)
    if kind != TokenType.NORMAL:
        return text.encode()
    if vocabulary.model == "llama":
        return text.replace(SPACE, " ").encode()
    alphabet = byte_of_character()
    try:
        return bytes([alphabet[character] for character in text])
    except KeyError:
        return text.encode()


def _byte(text: str) -> bytes:
    """A byte token is spelled ``<0x0A>``; any other text stands for itself."""
    if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
        try:
            return bytes.fromhex(text[3:5])
        except ValueError:
            pass
    return text.encode()
