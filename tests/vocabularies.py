"""Small complete vocabularies for tests, as GGUF metadata."""

from __future__ import annotations

from typing import Any

from gguf_writer import Typed

NORMAL, UNKNOWN, CONTROL, UNUSED, BYTE = 1, 2, 3, 5, 6

BPE_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
BPE_MERGES = (
    ("Ġ", "t"),
    ("h", "e"),
    ("i", "n"),
    ("Ġt", "he"),
    ("e", "r"),
    ("Ġ", "a"),
    ("o", "n"),
    ("r", "e"),
    ("in", "g"),
    ("n", "d"),
    ("Ġa", "nd"),
    ("Ġ", "Ġ"),
    ("ĠĠ", "ĠĠ"),
    ("Ċ", "Ċ"),
)

SPM_SPECIAL = ("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>")
SPM_PIECES = ("▁t", "he", "in", "▁the", "er", "▁a", "on", "re", "ing", "nd", "▁and", "▁▁")
SPM_CHARACTERS = "▁\n etaoinshrdlucmfwygpbvkxqjzETAOINSHRDLUCMFWYGPBVKXQJZ0123456789.,:;!?'\"-()é"


def byte_characters() -> list[str]:
    """GPT-2's printable character for each byte: itself, or the next one from U+0100 up."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    shown = {byte: chr(byte) for byte in printable}
    shown |= {byte: chr(256 + index) for index, byte in enumerate(others)}
    return [shown[byte] for byte in range(256)]


def bpe_vocabulary(size: int | None = None, pre: str = "smollm") -> dict[str, Any]:
    """Byte-level BPE: three control tokens, 256 bytes, a few merges, unused tokens up to ``size``.

    BOS is ``<|im_start|>`` (1), EOS ``<|im_end|>`` (2); BOS is not added.
    """
    merged = [left + right for left, right in BPE_MERGES]
    tokens = [*BPE_SPECIAL, *byte_characters(), *merged]
    types = [CONTROL] * len(BPE_SPECIAL) + [NORMAL] * (256 + len(merged))
    _fill(tokens, types, size)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": Typed("i32", types),
        "tokenizer.ggml.merges": [f"{left} {right}" for left, right in BPE_MERGES],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.add_space_prefix": False,
    }


def spm_vocabulary(size: int | None = None) -> dict[str, Any]:
    """SentencePiece BPE with scores: control tokens, 256 bytes, pieces, characters, unused tokens.

    EOS is ``<eos>`` (1), BOS ``<bos>`` (2) and is added; no space is put in front.
    """
    pieces = [*SPM_PIECES, *dict.fromkeys(SPM_CHARACTERS)]
    tokens = [*SPM_SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    types = [CONTROL] * len(SPM_SPECIAL) + [BYTE] * 256 + [NORMAL] * len(pieces)
    types[SPM_SPECIAL.index("<unk>")] = UNKNOWN
    _fill(tokens, types, size)
    scores = [0.0] * len(tokens)
    first = tokens.index(pieces[0])
    scores[first : first + len(pieces)] = [float(-rank) for rank in range(len(pieces))]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": Typed("f32", scores),
        "tokenizer.ggml.token_type": Typed("i32", types),
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.unknown_token_id": 3,
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": False,
        "tokenizer.ggml.add_space_prefix": False,
    }


def _fill(tokens: list[str], types: list[int], size: int | None) -> None:
    missing = 0 if size is None else size - len(tokens)
    if missing < 0:
        raise ValueError(f"the vocabulary has {len(tokens)} tokens, more than {size}")
    tokens.extend(f"[UNUSED{index}]" for index in range(missing))
    types.extend([UNUSED] * missing)
