"""What ``lying_runtime`` says: its help, and events in the two dialects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

COMMIT = "abcdef1234567890"
DRAFTED, ACCEPTED = 4, 2  # of every step
NGRAM = ("simple", "map-k", "map-k4v")
HELP = """\
----- common params -----

-h,    --help, --usage                  print usage and exit
--version                               show version and build info
--list-devices                          print list of available devices and exit
-t,    --threads N                      number of threads (default: -1)
-tb,   --threads-batch N                threads for prompts (default: same as --threads)
-c,    --ctx-size N                     size of the context (default: 0, 0 = loaded from model)
-m,    --model FNAME                    model path to load
-v,    --verbose, --log-verbose         log everything
-lv,   --verbosity, --log-verbosity N   threshold. Values:
                                         - 3: info
                                         - 4: trace (more info)
                                        (default: 3)
-ctk,  --cache-type-k TYPE              KV cache data type for K
                                        allowed values: f32, f16, q8_0
                                        (default: f16)
-np,   --parallel N                     number of slots (default: -1, -1 = auto)
--models-dir PATH                       models of a router
--host HOST                             address (default: 127.0.0.1)
--port PORT                             port (default: 8080)
--metrics                               offer /metrics (default: disabled)
--slots, --no-slots                     offer /slots (default: enabled)
--ui,  --webui, --no-ui, --no-webui     whether to enable the Web UI (default: enabled)
-cram, --cache-ram N                    maximum cache size in MiB (default: 8192, 0 - disable)[(more
                                        info)](https://example.org)
--spec-type none,draft-simple,ngram-simple,ngram-map-k,ngram-map-k4v,ngram-mod,ngram-cache
                                        types of speculative decoding (default: none)
--spec-draft-model, -md, --model-draft FNAME
                                        draft model (default: unused)
--spec-draft-n-max N                    most tokens to draft (default: 3)
--spec-draft-n-min N                    fewest tokens to draft (default: 0)
--spec-draft-p-min, --draft-p-min P     least probability (default: 0.00)
--spec-ngram-mod-n-min N                fewest tokens (default: 48)
--spec-ngram-mod-n-max N                most tokens (default: 64)
--spec-ngram-mod-n-match N              lookup length (default: 24)
--draft, --draft-n, --draft-max N       the argument has been removed. use --spec-draft-n-max
"""


def help_text(lies: frozenset[str]) -> str:
    """In the layout of llama.cpp's programs."""
    kinds = [kind for kind in NGRAM if kind != "simple" or "missing-flag" not in lies]
    sizes = (("size-n", 12), ("size-m", 48), ("min-hits", 1))
    more = [
        f"--spec-ngram-{kind}-{size} N".ljust(40) + f"{size} (default: {value})"
        for kind in kinds
        for size, value in sizes
    ]
    return HELP + "\n".join([*more, ""])


def whole(writer: asyncio.StreamWriter, status: int, text: str) -> None:
    data = text.encode()
    writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def candidates(token: int, text: str) -> list[dict[str, Any]]:
    """The two likeliest at a place, 0.5 apart."""
    return [
        {"id": token, "token": text, "logprob": -0.25},
        {"id": token + 1, "token": f"{text}x", "logprob": -0.75},
    ]


def from_llama(token: int, text: str, place: int, body: Mapping[str, Any]) -> bytes:
    made: dict[str, Any] = {"content": text, "tokens": [token], "stop": False, "index": 0}
    if body.get("n_probs"):
        best = candidates(token, text)
        made["completion_probabilities"] = [{**best[0], "top_logprobs": best}]
    return event({**made, "tokens_predicted": place + 1})


def from_chat(token: int, text: str, body: Mapping[str, Any]) -> bytes:
    choice: dict[str, Any] = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    if body.get("logprobs"):
        best = candidates(token, text)
        choice["logprobs"] = {"content": [{**best[0], "top_logprobs": best}]}
    if body.get("return_token_ids"):
        choice["token_ids"] = [token]
    return event({"choices": [choice]})
