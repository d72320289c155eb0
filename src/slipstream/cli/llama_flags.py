"""llama-server's flags, as tables: what each is here, and what to do instead of refused ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# destination -> llama-server's names that the structs do not have
SHORT: Final[Mapping[str, tuple[str, ...]]] = {
    "draft_model": ("-md",),
    "parallel": ("-np",),
    "prefill_chunk": ("-ub",),
    "seed": ("-s",),
    "alias": ("-a",),
    "ngram_cache_static": ("-lcs",),
    "ngram_cache_dynamic": ("-lcd",),
}
# destination -> what llama-server writes where nothing is set
UNSET: Final[Mapping[str, tuple[str, ...]]] = {
    "context": ("0",),
    "threads": ("-1",),
    "parallel": ("-1",),
    "seed": ("-1",),
}
SPEC_DEFAULT: Final = "ngram-mod"

IDLE_SWITCHES: Final = (
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
IDLE_VALUES: Final = (
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
NEUTRAL: Final[Mapping[tuple[str, ...], tuple[str, ...]]] = {
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
FLASH: Final = ("-fa", "--flash-attn")

_GONE: Final = "It has left llama-server too"
# flags that cannot be obeyed and would change what the server does -> what to do instead
REFUSED_SWITCHES: Final[Mapping[tuple[str, ...], str]] = {
    ("--context-shift",): "An output ends where the context does: raise `--context`.",
    ("--no-jinja",): "The model's own template is always used.",
    ("--embedding", "--embeddings"): "Use llama-server for embeddings.",
    ("--rerank", "--reranking"): "Use llama-server for reranking.",
    ("--no-slots",): "`/slots` shows counts alone; shut the path in a proxy in front.",
    ("-sp", "--special"): "Control tokens are never part of the text.",
    ("--spm-infill",): "Prompts to fill in the middle have prefix, suffix, middle.",
    ("--agent",): "This server runs no tools.",
}
REFUSED_VALUES: Final[Mapping[tuple[str, ...], str]] = {
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
