"""``llama-server`` out of the wheel ``xllamacpp``; run by the interpreter that has the wheel.

It needs nothing else. It takes llama-server's spellings of the flags that this version of the
wheel can set, and its ``--help`` lists those alone: a flag that the wheel cannot set is not there,
so that nothing asked for is dropped. Speed of these wheels says nothing of a native build: they are
compiled for AVX2 alone.

Source: the wheel's own reference of parameters (https://github.com/xorbitsai/xllamacpp).
"""

from __future__ import annotations

import importlib
import signal
import sys
import threading
from typing import Any, Final

# flag -> spellings of the attribute below CommonParams in different versions, type, help
FLAGS: Final[dict[str, tuple[tuple[str, ...], type, str]]] = {
    "-m, --model": (("model.path",), str, "model file"),
    "-c, --ctx-size": (("n_ctx",), int, "positions of all slots together"),
    "-np, --parallel": (("n_parallel",), int, "slots"),
    "-t, --threads": (("cpuparams.n_threads",), int, "threads"),
    "-tb, --threads-batch": (("cpuparams_batch.n_threads",), int, "threads for prompts"),
    "-b, --batch-size": (("n_batch",), int, "logical batch"),
    "-ub, --ubatch-size": (("n_ubatch",), int, "physical batch"),
    "-ngl, --n-gpu-layers": (("n_gpu_layers",), int, "layers on the device"),
    "-lv, --verbosity, --log-verbosity": (("verbosity",), int, "3: info, 4: trace, 5: debug"),
    "--host": (("hostname", "hostnames"), str, "address"),
    "--port": (("port",), int, "port"),
    "--cache-ram": (("cache_ram_mib",), int, "MiB of prompts kept"),
    "--metrics": (("endpoint_metrics",), bool, "offer /metrics"),
    "--slots": (("endpoint_slots",), bool, "offer /slots"),
    "--spec-draft-model, --model-draft": (
        ("speculative.draft.mparams.path", "speculative.mparams_dft.path"),
        str,
        "draft model",
    ),
    "--spec-draft-n-max": (("speculative.draft.n_max", "speculative.n_max"), int, "most"),
    "--spec-draft-n-min": (("speculative.draft.n_min", "speculative.n_min"), int, "least"),
    "--spec-draft-p-min": (("speculative.draft.p_min", "speculative.p_min"), float, "least p"),
    **{
        f"--spec-ngram-{kind}-{name}": (
            (f"speculative.ngram_{kind.replace('-', '_')}.{name.replace('-', '_')}",),
            int,
            name,
        )
        for kind in ("simple", "map-k", "map-k4v")
        for name in ("size-n", "size-m", "min-hits")
    },
    **{
        f"--spec-ngram-mod-{name}": (
            (f"speculative.ngram_mod.{name.replace('-', '_')}",),
            int,
            name,
        )
        for name in ("n-match", "n-min", "n-max")
    },
}
TYPE: Final = "--spec-type"
OFF: Final = {"--no-ui": ("ui", "webui"), "--no-context-shift": ("ctx_shift",)}
TYPES: Final = (
    *("none", "draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark"),
    *("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache"),
)


def wheel() -> Any:
    """The wheel's module."""
    return importlib.import_module("xllamacpp")


def holder(params: Any, paths: tuple[str, ...]) -> tuple[Any, str] | None:
    """The object and attribute that a path names, the first that this version has."""
    for path in paths:
        *steps, last = path.split(".")
        at = params
        for step in steps:
            at = getattr(at, step, None)
        if at is not None and hasattr(at, last):
            return at, last
    return None


def kinds(module: Any) -> dict[str, Any]:
    """Drafting methods of this version -> the wheel's value."""
    values = getattr(module, "common_speculative_type", None)
    names = {name: f"COMMON_SPECULATIVE_TYPE_{name.replace('-', '_').upper()}" for name in TYPES}
    return {name: getattr(values, const) for name, const in names.items() if hasattr(values, const)}


def help_text(module: Any) -> str:
    """Flags that this version can set, in llama-server's layout."""
    params = module.CommonParams()
    lines = []
    for names, (paths, kind, about) in FLAGS.items():
        place = holder(params, paths)
        if place is not None:
            hint = "" if kind is bool else " N"
            default = "" if kind is bool else f" (default: {_told(getattr(*place))})"
            lines.append(f"{names}{hint}    {about}{default}")
    known = kinds(module)
    if hasattr(params.speculative, "types") and known:
        lines.append(f"{TYPE} {','.join(known)}    drafting (default: none)")
    lines += [f"{flag}    switch it off" for flag, paths in OFF.items() if holder(params, paths)]
    lines += ["--library    print the path of the native library", "--version    print the version"]
    return "\n".join(["----- flags of this wheel -----", "", *lines, ""])


def _told(value: Any) -> str:
    """A value as llama-server's help shows it."""
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def configure(module: Any, words: list[str]) -> Any:
    """``CommonParams`` of a command line.

    Raises:
        SystemExit: an unknown flag or a value of another type.
    """
    params = module.CommonParams()
    table = {name: entry for names, entry in FLAGS.items() for name in names.split(", ")}
    left = list(words)
    while left:
        word = left.pop(0)
        place = holder(params, table[word][0] if word in table else OFF.get(word, ()))
        if word == TYPE:
            params.speculative.types = [
                kinds(module)[name] for name in value_of(word, left).split(",")
            ]
        elif place is None:
            raise SystemExit(f"error: invalid argument: {word}")
        elif word in OFF:
            setattr(*place, False)
        else:
            kind = table[word][1]
            value = True if kind is bool else kind(value_of(word, left))
            setattr(*place, [value] if isinstance(getattr(*place), list) else value)
    return params


def value_of(word: str, left: list[str]) -> str:
    """
    Raises:
        SystemExit: nothing follows.
    """
    if not left:
        raise SystemExit(f"error: {word} lacks its value")
    return left.pop(0)


def library(module: Any) -> str:
    """Path of the native library; its digest is the program's identity."""
    return str(importlib.import_module(f"{module.__name__}.xllamacpp").__file__)


def main(words: list[str]) -> None:
    """Print what was asked for, or serve until SIGTERM."""
    module = wheel()
    if words in (["--help"], ["-h"]):
        print(help_text(module))
    elif words == ["--version"]:
        print(f"version: xllamacpp {getattr(module, '__version__', 'unknown')}")
    elif words == ["--library"]:
        print(library(module))
    else:
        over = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: over.set())
        server = module.Server(configure(module, words))
        print(f"listening on {server.listening_address}", flush=True)
        over.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
