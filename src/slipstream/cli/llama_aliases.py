"""llama-server's spellings for ``slipstream serve``: its command lines work as they are.

Long names that mean the same are aliases in the option structs already. Here are its short names,
its values for "unset", and the flags that have no meaning: those that change no result are
accepted and named in one line, the others are refused with what to do instead.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from slipstream.errors import OptionError, UnsupportedError

# destination -> llama-server's names that the structs do not have
_SHORT: Final[Mapping[str, tuple[str, ...]]] = {
    "draft_model": ("-md",),
    "parallel": ("-np",),
    "prefill_chunk": ("-ub",),
    "seed": ("-s",),
    "alias": ("-a",),
    "ngram_cache_static": ("-lcs",),
    "ngram_cache_dynamic": ("-lcd",),
}
# destination -> what llama-server writes where nothing is set
_UNSET: Final[Mapping[str, tuple[str, ...]]] = {
    "context": ("0",),
    "threads": ("-1",),
    "parallel": ("-1",),
    "seed": ("-1",),
}
_SPEC_DEFAULT: Final = "ngram-mod"

_IDLE_SWITCHES: Final = (
    ("-cb", "--cont-batching"),
    ("-nocb", "--no-cont-batching"),
    ("--jinja",),
    ("--webui", "--ui"),
    ("--no-webui", "--no-ui"),
    ("--warmup",),
    ("--no-warmup",),
    ("--mmap",),
    ("--no-mmap",),
    ("--mlock",),
    ("--perf",),
    ("--no-perf",),
    ("--slots",),
    ("--props",),
    ("--swa-full",),
    ("-kvu", "--kv-unified"),
    ("-no-kvu", "--no-kv-unified"),
    ("-kvo", "--kv-offload"),
    ("-nkvo", "--no-kv-offload"),
    ("--repack",),
    ("-nr", "--no-repack"),
    ("--op-offload",),
    ("--no-op-offload",),
    ("--cache-prompt",),
    ("--no-cache-prompt",),
    ("--cache-idle-slots",),
    ("--no-cache-idle-slots",),
    ("--no-context-shift",),
    ("--offline",),
    ("--check-tensors",),
    ("--no-mmproj",),
    ("--no-host",),
    ("--spec-draft-backend-sampling",),
    ("--no-spec-draft-backend-sampling",),
    ("-v", "--verbose", "--log-verbose"),
    ("--log-disable",),
    ("--log-prefix",),
    ("--log-timestamps",),
    ("--no-agent",),
)
_IDLE_VALUES: Final = (
    ("-ngl", "--gpu-layers", "--n-gpu-layers"),
    ("-ngld", "--spec-draft-ngl", "--gpu-layers-draft", "--n-gpu-layers-draft"),
    ("-b", "--batch-size"),
    ("-tb", "--threads-batch"),
    ("-td", "--spec-draft-threads", "--threads-draft"),
    ("-tbd", "--spec-draft-threads-batch", "--threads-batch-draft"),
    ("--threads-http",),
    ("-to", "--timeout"),
    ("-C", "--cpu-mask"),
    ("-Cr", "--cpu-range"),
    ("--cpu-strict",),
    ("--prio",),
    ("--poll",),
    ("--numa",),
    ("-dev", "--device"),
    ("-devd", "--spec-draft-device", "--device-draft"),
    ("-sm", "--split-mode"),
    ("-ts", "--tensor-split"),
    ("-mg", "--main-gpu"),
    ("-fit", "--fit"),
    ("-fitt", "--fit-target"),
    ("-fitc", "--fit-ctx"),
    ("-lm", "--load-mode"),
    ("-dt", "--defrag-thold"),
    ("-cram", "--cache-ram"),
    ("-ctxcp", "--ctx-checkpoints", "--swa-checkpoints"),
    ("-cms", "--checkpoint-min-step"),
    ("-sps", "--slot-prompt-similarity"),
    ("-lv", "--verbosity", "--log-verbosity"),
    ("--log-colors",),
    ("--keep",),
    ("--spec-draft-p-split", "--draft-p-split"),
    ("--sse-ping-interval",),
)
# flags -> the values that ask for nothing; with another one the output would differ
_NEUTRAL: Final[Mapping[tuple[str, ...], tuple[str, ...]]] = {
    ("--cache-reuse",): ("0",),
    ("--dry-multiplier",): ("0", "0.0"),
    ("--xtc-probability",): ("0", "0.0"),
    ("--typical", "--typical-p"): ("1", "1.0"),
    ("--top-nsigma", "--top-n-sigma"): ("-1", "-1.0"),
    ("--dynatemp-range",): ("0", "0.0"),
    ("--mirostat",): ("0",),
    ("--pooling",): ("none",),
    ("--reasoning-format",): ("none", "auto"),
    ("--reasoning-budget",): ("-1",),
    ("--rope-scaling",): ("none",),
    ("--spec-ngram-simple-min-hits",): ("1",),
    ("-ctkd", "--spec-draft-type-k", "--cache-type-k-draft"): ("f16",),
    ("-ctvd", "--spec-draft-type-v", "--cache-type-v-draft"): ("f16",),
}
_FLASH: Final = ("-fa", "--flash-attn")

_GONE: Final = "It has left llama-server too"
# flags that cannot be obeyed and would change what the server does -> what to do instead
_REFUSED_SWITCHES: Final[Mapping[tuple[str, ...], str]] = {
    ("--context-shift",): "An output ends where the context does: raise `--context`.",
    ("--no-jinja",): "The model's own template is always used.",
    ("--embedding", "--embeddings"): "Use llama-server for embeddings.",
    ("--rerank", "--reranking"): "Use llama-server for reranking.",
    ("--no-slots",): "`/slots` shows counts alone; shut the path in a proxy in front.",
    ("-sp", "--special"): "Control tokens are never part of the text.",
    ("--spm-infill",): "Prompts to fill in the middle have prefix, suffix, middle.",
    ("--agent",): "This server runs no tools.",
}
_REFUSED_VALUES: Final[Mapping[tuple[str, ...], str]] = {
    ("--api-key",): "A key on a command line can be read by others: use `--api-key-file`.",
    ("--ssl-key-file",): "Put a proxy with TLS in front.",
    ("--ssl-cert-file",): "Put a proxy with TLS in front.",
    ("--path",): "The page for chatting is built in.",
    ("--api-prefix",): "Put a proxy in front that knows the prefix.",
    ("--lora",): "Merge the adapter into the model.",
    ("--lora-scaled",): "Merge the adapter into the model.",
    ("--control-vector",): "Leave it out.",
    ("--override-kv",): "Convert the model again.",
    ("--rope-scale",): "Leave it out: the model's own positions are used.",
    ("--rope-freq-base",): "Leave it out: the model's own positions are used.",
    ("--rope-freq-scale",): "Leave it out: the model's own positions are used.",
    ("-mm", "--mmproj"): "Only text is supported.",
    ("--chat-template",): "The model's own template is used.",
    ("--chat-template-file",): "The model's own template is used.",
    ("--samplers",): "The order is penalties, top-k, top-p, min-p, temperature.",
    (
        "--sampler-seq",
        "--sampling-seq",
    ): "The order is penalties, top-k, top-p, min-p, temperature.",
    ("-hf", "-hfr", "--hf-repo"): "`slipstream pull owner/repo:file`, then name what it prints.",
    ("-hfd", "-hfrd", "--spec-draft-hf", "--hf-repo-draft"): (
        "`slipstream pull owner/repo:file`, then `--draft-model` with what it prints."
    ),
    ("-mu", "--model-url"): "`slipstream pull` fetches models.",
    ("--models-dir",): "A server has one model: start one for each.",
    ("--slot-save-path",): "Prefixes are kept in memory alone.",
    ("--tools",): "This server runs no tools; clients get the model's tool calls.",
    ("--draft", "--draft-n", "--draft-max"): (
        f"{_GONE}: use `--spec-draft-n-max` or `--spec-ngram-mod-n-max`."
    ),
    ("--draft-min", "--draft-n-min"): (
        f"{_GONE}: use `--spec-draft-n-min` or `--spec-ngram-mod-n-min`."
    ),
    ("--spec-ngram-size-n",): f"{_GONE}: use `--spec-ngram-..-size-n`.",
    ("--spec-ngram-size-m",): f"{_GONE}: use `--spec-ngram-..-size-m`.",
    ("--spec-ngram-min-hits",): f"{_GONE}: use `--spec-ngram-..-min-hits`.",
}


@dataclass(frozen=True)
class _Seen:
    """A flag of llama-server as it was given."""

    flag: str
    value: str | None


class _Collect(argparse.Action):
    """Keeps a flag and its value for ``settle``."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        del parser
        value = values if isinstance(values, str) else None
        seen = [*(getattr(namespace, self.dest, None) or ()), _Seen(str(option_string), value)]
        setattr(namespace, self.dest, seen)


def add_aliases(parser: argparse.ArgumentParser) -> None:
    """Let a parser, which has its own flags already, take llama-server's too.

    MODEL may then be given by ``-m``. ``settle`` must see what was parsed.
    """
    known = set(parser._option_string_actions)
    positional = {action.dest: action for action in parser._actions}
    if "model" in positional:
        positional["model"].nargs, positional["model"].required = "?", False
        _add(parser, known, ("-m", "--model"), dest="llama_model", metavar="MODEL")
    for dest, names in _SHORT.items():
        if dest in positional:
            _add(parser, known, names, dest=dest, metavar="VALUE")
    if "stop" in positional:
        _add(parser, known, ("-r",), dest="stop", metavar="TEXT", action="append")
    if "type" in positional:
        extra = {"action": "append_const", "const": _SPEC_DEFAULT}
        _add(parser, known, ("--spec-default",), dest="type", **extra)
    collect = {"action": _Collect, "metavar": "VALUE"}
    _add(parser, known, _FLASH, dest="llama_idle", nargs="?", **collect)
    for dest, switches, values in (
        ("llama_idle", _IDLE_SWITCHES, _IDLE_VALUES),
        ("llama_neutral", (), _NEUTRAL),
        ("llama_refused", _REFUSED_SWITCHES, _REFUSED_VALUES),
    ):
        for names in switches:
            _add(parser, known, names, dest=dest, nargs=0, **collect)
        for names in values:
            _add(parser, known, names, dest=dest, **collect)


def _add(
    parser: argparse.ArgumentParser, known: Iterable[str], names: tuple[str, ...], **extra: object
) -> None:
    """Names that the parser has already keep their meaning; help does not list the others."""
    new = [name for name in names if name not in known]
    if new:
        parser.add_argument(*new, help=argparse.SUPPRESS, **extra)  # type: ignore[arg-type]


def settle(arguments: argparse.Namespace, defaults: Mapping[str, Any] | None = None) -> list[str]:
    """Put llama-server's values into their places.

    Args:
        defaults: of ``add_flags``: what is in effect where llama-server's value means unset.

    Returns:
        What to tell the user, a line each: flags that have no effect here.

    Raises:
        OptionError: no model, two of them, or a value that llama-server would not take.
        UnsupportedError: a flag that would change what the server does, and cannot.
    """
    for seen in getattr(arguments, "llama_refused", None) or ():
        raise UnsupportedError(
            "flags that this server can obey", f"`{seen.flag}`", _remedy(seen.flag)
        )
    for seen in getattr(arguments, "llama_neutral", None) or ():
        _require_neutral(seen)
    idle = getattr(arguments, "llama_idle", None) or []
    _require_flash([seen for seen in idle if seen.flag in _FLASH])
    _settle_model(arguments)
    for dest, unset in _UNSET.items():
        if getattr(arguments, dest, None) in unset:
            setattr(arguments, dest, (defaults or {}).get(dest))
    flags = dict.fromkeys(seen.flag for seen in idle)
    return [f"{', '.join(flags)}: without effect here"] if flags else []


def _settle_model(arguments: argparse.Namespace) -> None:
    if not hasattr(arguments, "llama_model"):
        return
    given = {arguments.model, arguments.llama_model} - {None}
    if len(given) != 1:
        found = " and ".join(f"`{name}`" for name in sorted(given)) or "none"
        raise OptionError("one MODEL", found, "Name it once, as MODEL or with `-m`.")
    [arguments.model] = given


def _remedy(flag: str) -> str:
    refused = {**_REFUSED_SWITCHES, **_REFUSED_VALUES}
    return next(remedy for names, remedy in refused.items() if flag in names)


def _require_neutral(seen: _Seen) -> None:
    allowed = next(values for names, values in _NEUTRAL.items() if seen.flag in names)
    if seen.value not in allowed:
        raise UnsupportedError(
            f"`{seen.flag}` to be left out, or {allowed[0]}", f"{seen.value}", "Leave it out."
        )


def _require_flash(given: Iterable[_Seen]) -> None:
    """Attention is computed as flash attention does, in one way; old command lines have no value."""
    for seen in given:
        if seen.value not in (None, "on", "off", "auto", "1", "0"):
            raise OptionError(
                f"`{seen.flag}` on, off or auto", f"`{seen.value}`", "Give one of them, or none."
            )
