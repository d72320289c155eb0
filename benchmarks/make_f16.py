"""An F16 file of a model, for figures of the type: every matrix dequantised and rounded to half.

    python benchmarks/make_f16.py smollm2-135m

Writes derived/NAME-f16.gguf in the cache folder and prints its path. Needs the `gguf` package.
Vectors stay in float32. The file runs in any engine; its text is that of the original but for the
rounding to half.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gguf
import numpy as np

from slipstream.catalog import cache_directory, locate

_FILE_TYPE = "general.file_type"
# The writer adds these itself.
_WRITTEN = frozenset({"general.architecture", _FILE_TYPE})


def _copy_metadata(reader: gguf.GGUFReader, writer: gguf.GGUFWriter) -> None:
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in _WRITTEN:
            continue
        kind = field.types[0]
        if kind == gguf.GGUFValueType.ARRAY:
            writer.add_key_value(name, field.contents(), kind, sub_type=field.types[-1])
        else:
            writer.add_key_value(name, field.contents(), kind)


def _halves(tensor: gguf.ReaderTensor) -> np.ndarray:
    """float16 ``[rows, columns]`` of a matrix, float32 of a vector."""
    values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
    values = values.reshape([int(n) for n in reversed(tensor.shape)])
    return values.astype(np.float16) if values.ndim > 1 else values


def convert(source: Path, target: Path) -> None:
    """Write beside the target and move into place."""
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    writer = gguf.GGUFWriter(partial, architecture)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    _copy_metadata(reader, writer)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, _halves(tensor))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.replace(target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="smollm2-135m")
    parser.add_argument("--out", type=Path, help="[derived/NAME-f16.gguf in the cache folder]")
    arguments = parser.parse_args()
    source = locate(arguments.model)
    default = cache_directory() / "derived" / f"{source.stem}-f16.gguf"
    target: Path = arguments.out or default
    if not target.exists():
        convert(source, target)
    print(target)


if __name__ == "__main__":
    main()
