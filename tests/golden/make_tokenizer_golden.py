"""Record what libllama does to a fixed set of strings: the reference for the tokeniser.

Run where `llama_cpp` (llama-cpp-python) is installed:

    python tests/golden/make_tokenizer_golden.py MODEL.gguf NAME [KEY=VALUE ...]

Writes `tests/golden/tokenizer_NAME.json.gz`. Each KEY=VALUE replaces that `tokenizer.ggml.` key
in one more record of the same strings, so that one vocabulary checks every pre-tokeniser
(`pre=qwen2`) and the space prefix (`add_space_prefix=true`).
"""

from __future__ import annotations

import ctypes
import gzip
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from tokenizer_strings import strings


class Vocabulary:
    """A vocabulary-only libllama model."""

    def __init__(self, path: str, override: str | None = None) -> None:
        import llama_cpp

        self.library = llama_cpp
        llama_cpp.llama_backend_init()
        parameters = llama_cpp.llama_model_default_params()
        parameters.vocab_only = True
        if override is not None:
            self.overrides = self._override(*override.split("="))
            parameters.kv_overrides = self.overrides
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), parameters)
        self.vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        self.size: int = llama_cpp.llama_vocab_n_tokens(self.vocabulary)

    def _override(self, key: str, value: str) -> Any:
        array = (self.library.llama_model_kv_override * 2)()
        array[0].key = f"tokenizer.ggml.{key}".encode()
        if value in ("true", "false"):
            array[0].tag = self.library.LLAMA_KV_OVERRIDE_TYPE_BOOL
            array[0].value.val_bool = value == "true"
        else:
            array[0].tag = self.library.LLAMA_KV_OVERRIDE_TYPE_STR
            array[0].value.val_str = value.encode()
        array[1].key = b""
        return array

    def encode(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        data = text.encode()
        limit = 3 * len(data) + 16  # a space prefix may follow every special token
        ids = (self.library.llama_token * limit)()
        count = self.library.llama_tokenize(
            self.vocabulary, data, len(data), ids, limit, add_special, parse_special
        )
        if count < 0:
            raise RuntimeError(f"llama_tokenize refused {text!r}")
        return list(ids[:count])

    def piece(self, token: int) -> bytes:
        buffer = ctypes.create_string_buffer(4096)
        count = self.library.llama_token_to_piece(self.vocabulary, token, buffer, 4096, 0, True)
        return buffer.raw[:count]


def pieces_digest(pieces: list[bytes]) -> str:
    """SHA-256 over every piece, each behind its length (4 bytes, little-endian)."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(len(piece).to_bytes(4, "little") + piece)
    return digest.hexdigest()


def encodings(vocabulary: Vocabulary, texts: list[str]) -> dict[str, list[list[int]]]:
    return {
        "plain": [vocabulary.encode(text, True, False) for text in texts],
        "parsed": [vocabulary.encode(text, False, True) for text in texts],
    }


def record(path: str, overrides: list[str]) -> dict[str, Any]:
    texts = strings()
    own = Vocabulary(path)
    library = own.library
    return {
        "reference": f"llama-cpp-python {library.__version__}",
        "vocabulary_size": own.size,
        "bos_id": library.llama_vocab_bos(own.vocabulary),
        "eos_id": library.llama_vocab_eos(own.vocabulary),
        "add_bos": bool(library.llama_vocab_get_add_bos(own.vocabulary)),
        "add_eos": bool(library.llama_vocab_get_add_eos(own.vocabulary)),
        "end_ids": [i for i in range(own.size) if library.llama_vocab_is_eog(own.vocabulary, i)],
        "pieces_sha256": pieces_digest([own.piece(i) for i in range(own.size)]),
        "texts": texts,
        "encodings": encodings(own, texts),
        "overrides": {o: encodings(Vocabulary(path, o), texts) for o in overrides},
    }


def main() -> None:
    path, name, *overrides = sys.argv[1:]
    data = json.dumps(record(path, overrides), separators=(",", ":")).encode()
    target = Path(__file__).with_name(f"tokenizer_{name}.json.gz")
    target.write_bytes(gzip.compress(data, 9, mtime=0))
    print(f"{target.name}: {len(strings())} strings, {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
