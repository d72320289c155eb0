"""What a GGUF file says of itself, as an identity needs it; nothing is guessed from its name."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from slipstream.gguf import SHARD_NAME, GGUFFile, StringArray, open_gguf
from slipstream.quants import type_name

TEMPLATE_KEY: Final = "tokenizer.chat_template"
TOKENIZER_PREFIX: Final = "tokenizer.ggml."
UNKNOWN: Final = "unknown"
_LONGEST: Final = 200
_CONVERTER_KEYS: Final = (
    "general.quantized_by",
    "general.converter",
    "general.converted_by",
    "quantize.imatrix.file",
)
FILE_TYPES: Final = MappingProxyType(
    dict(enumerate(("F32", "F16", "Q4_0", "Q4_1")))
    | dict(
        enumerate(
            (
                *("Q8_0", "Q5_0", "Q5_1", "Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_K_S"),
                *("Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K", "IQ2_XXS", "IQ2_XS", "Q2_K_S"),
                *("IQ3_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ3_M", "IQ2_S", "IQ2_M"),
                *("IQ4_XS", "IQ1_M", "BF16"),
            ),
            start=7,
        )
    )
    | {36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4_MOE"}
)
"""Values of ``general.file_type`` (GGUF specification; the type that most matrices have)."""


@dataclass(frozen=True)
class ModelFacts:
    """
    Attributes:
        quantisation: by ``general.file_type``.
        weight_types: names of the tensors' types, most bytes first.
        converter: who converted and how, as keys of the file name it.
        tokenizer_sha256: of all ``tokenizer.ggml.`` keys: equal digests are equal tokenizers.
        cache_bytes: of keys and values per position at 16 bits; None where the file does not tell.
    """

    architecture: str
    quantisation: str
    weight_types: tuple[str, ...]
    weight_bytes: int
    converter: str
    tokenizer_sha256: str
    template_sha256: str
    licence: str
    terms: str
    source: str
    trained_by: str
    cache_bytes: int | None


def read_facts(path: Path) -> ModelFacts:
    """
    Raises:
        ModelFileError: the file is no sound GGUF file.
        UnsupportedError: a tensor has a type id in no known table.
    """
    with open_gguf(path) as file:
        return facts_of(file)


def facts_of(file: GGUFFile) -> ModelFacts:
    """As ``read_facts``, of an open file."""
    types: Counter[str] = Counter()
    for info in file.tensors.values():
        types[type_name(info.type_id)] += info.nbytes
    metadata = file.metadata
    template = metadata.get(TEMPLATE_KEY)
    return ModelFacts(
        architecture=_text(metadata, "general.architecture") or UNKNOWN,
        quantisation=_quantisation(metadata.get("general.file_type")),
        weight_types=tuple(name for name, _ in types.most_common()),
        weight_bytes=sum(types.values()),
        converter="; ".join(_named(metadata, *_CONVERTER_KEYS)) or UNKNOWN,
        tokenizer_sha256=tokenizer_digest(metadata),
        template_sha256=_digest(template) if isinstance(template, str) else UNKNOWN,
        licence=_first(metadata, "general.license", "general.license.name"),
        terms=_first(metadata, "general.license.link"),
        source=_first(
            metadata,
            *("general.repo_url", "general.url", "general.source.repo_url", "general.source.url"),
            "general.source.huggingface.repository",
        ),
        trained_by=_first(metadata, "general.organization", "general.author"),
        cache_bytes=cache_bytes(metadata),
    )


def shards_of(path: Path) -> tuple[Path, ...]:
    """All files of a split model by the name of any one; the file itself where it is whole."""
    name = SHARD_NAME.fullmatch(path.name)
    if name is None:
        return (path,)
    count = int(name["count"])
    names = [f"{name['stem']}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)]
    return tuple(path.with_name(shard) for shard in names)


def tokenizer_digest(metadata: Mapping[str, Any]) -> str:
    """SHA-256 over the tokenizer's keys and values, sorted by key; ``unknown`` without any."""
    keys = sorted(key for key in metadata if key.startswith(TOKENIZER_PREFIX))
    if not keys:
        return UNKNOWN
    digest = hashlib.sha256()
    for key in keys:
        for part in (key.encode(), *_parts(metadata[key])):
            digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def _parts(value: Any) -> Iterator[bytes]:
    if isinstance(value, np.ndarray):
        yield value.dtype.str.encode()
        yield value.tobytes()
    elif isinstance(value, StringArray | tuple | list):
        yield str(len(value)).encode()
        for item in value:
            yield from _parts(item)
    else:
        yield f"{type(value).__name__} {value}".encode("utf-8", "surrogatepass")


def _quantisation(file_type: object) -> str:
    """Some tools add 1024 where they guessed the type: then it is not known."""
    if isinstance(file_type, bool) or not isinstance(file_type, int):
        return UNKNOWN
    return FILE_TYPES.get(file_type, f"general.file_type {file_type}"[:_LONGEST])


def _first(metadata: Mapping[str, Any], *keys: str) -> str:
    """The first key that is there, marked as the file's own word."""
    return next(_named(metadata, *keys), UNKNOWN)


def _named(metadata: Mapping[str, Any], *keys: str) -> Iterator[str]:
    for key in keys:
        if text := _text(metadata, key):
            yield f"{text} ({key} of the file)"


def _text(metadata: Mapping[str, Any], key: str) -> str:
    value = metadata.get(key)
    if isinstance(value, bool) or not isinstance(value, str | int):
        return ""
    return " ".join(str(value).split())[:_LONGEST]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def cache_bytes(metadata: Mapping[str, Any]) -> int | None:
    """Of keys and values per position: 16 bits each over all layers, windows counted in full."""
    prefix = f"{_text(metadata, 'general.architecture')}."
    layers, width = _number(metadata, f"{prefix}block_count"), None
    heads = _number(metadata, f"{prefix}attention.head_count")
    shared = _number(metadata, f"{prefix}attention.head_count_kv") or heads
    if heads:
        width = (_number(metadata, f"{prefix}embedding_length") or 0) // heads
    keys = _number(metadata, f"{prefix}attention.key_length") or width
    values = _number(metadata, f"{prefix}attention.value_length") or width
    if not layers or not shared or not keys or not values:
        return None
    return 2 * layers * shared * (keys + values)


def _number(metadata: Mapping[str, Any], key: str) -> int | None:
    value = metadata.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
