"""What the fuzzer sends: bytes that are hardly HTTP, and HTTP whose JSON is hardly a request.

A case is made from its seed and number alone, so that one can be sent again.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any, Final

from http_exchange import request_bytes

_TOOL: Final = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
_SCHEMA: Final = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"]}
BODIES: Final[dict[str, tuple[Any, ...]]] = {
    "/completion": (
        {
            "prompt": "one two",
            "n_predict": 3,
            "temperature": 0.5,
            "seed": 7,
            "stop": ["x"],
            "n_probs": 2,
            "logit_bias": [[5, -1.0]],
            "speculative": {"type": "ngram-simple", "n_max": 4, "n_min": 0, "p_min": 0.0},
        },
        {"prompt": [1, 2, 3], "n_predict": 2, "stream": True, "cache_prompt": True},
        {"prompt": "a", "n_predict": 2, "json_schema": _SCHEMA},
        {"prompt": "a", "n_predict": 2, "repeat_penalty": 1.1, "top_k": 4, "min_p": 0.1},
    ),
    "/v1/completions": (
        {
            "model": "m",
            "prompt": ["a", "b"],
            "max_tokens": 2,
            "logprobs": 2,
            "n": 2,
            "echo": False,
            "stop": "x",
            "logit_bias": {"5": -1},
        },
        {"prompt": "a", "max_tokens": 2, "stream": True, "stream_options": {"include_usage": True}},
    ),
    "/v1/chat/completions": (
        {
            "model": "m",
            "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
            "max_tokens": 2,
            "logprobs": True,
            "top_logprobs": 2,
            "presence_penalty": 0.1,
            "frequency_penalty": 0.1,
            "seed": 3,
            "session": "s",
        },
        {
            "messages": [{"role": "user", "content": [{"type": "text", "text": "u"}]}],
            "max_completion_tokens": 3,
            "stream": True,
            "tools": [_TOOL],
            "tool_choice": "auto",
        },
        {
            "messages": [{"role": "user", "content": "u"}],
            "max_tokens": 3,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": _SCHEMA, "strict": True},
            },
        },
    ),
    "/v1/messages": (
        {
            "model": "m",
            "max_tokens": 2,
            "system": "s",
            "messages": [{"role": "user", "content": [{"type": "text", "text": "u"}]}],
            "stop_sequences": ["x"],
            "temperature": 0.5,
            "metadata": {"user_id": "u"},
        },
        {"max_tokens": 2, "messages": [{"role": "user", "content": "u"}], "stream": True},
    ),
    "/infill": ({"input_prefix": "def f(", "input_suffix": "return 1", "n_predict": 2},),
    "/tokenize": ({"content": "one two", "add_special": True, "with_pieces": True},),
    "/detokenize": ({"tokens": [1, 2, 3]},),
    "/apply-template": ({"messages": [{"role": "user", "content": "u"}]},),
}
"""Requests that a server answers well, by path."""
PATHS: Final = (
    *("/health", "/props", "/slots", "/metrics", "/v1/models", "/openapi.json", "/", "/v1/health"),
    *("/nothing", "/v1/models/none", "/..%2f..%2fetc/passwd", "/%00", "//", "/?a=b&a=c"),
)
NASTY_VALUES: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 10**30, 1e308, -0.0, 0.5),
    *("", " ", "a" * 5000, "\x00", "\ud800", "<|im_end|>", "🙂" * 50, "../../etc/passwd", "NaN"),
    *([], {}, [[]], {"": ""}, [None], [{}], {"type": "none"}, {"$ref": "#"}, list(range(300))),
)
NASTY_TEXTS: Final = (
    *(b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-", b"0x1", b"01", b"1" * 5000, b"'a'"),
    *(b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\u0000"', b'"\xff\xfe"', b'"\\x"', b"\xef\xbb\xbf1"),
    *(b"[" * 20000, b'{"a":' * 5000, b"[" * 200 + b"]" * 200, b"//", b"true false", b""),
)
"""JSON, or nearly, that no value stands for."""
NASTY_BYTES: Final = (
    *(b"\x00", b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\xff", b"~", b":", b" ", b"\t", b"%", b"\x80"),
    *(b"Content-Length: -1\r\n", b"Content-Length: 99999999999999999999\r\n"),
    *(b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip\r\n"),
    *(b"Expect: 100-continue\r\n", b"Connection: upgrade\r\nUpgrade: h2c\r\n", b"Host: a\r\n"),
    *(b"Connection: upgrade\r\nUpgrade: websocket\r\n", b"Authorization: Bearer \xff\r\n"),
    *(b"Content-Encoding: gzip\r\n", b"Content-Type: text/plain\r\n", b"X: " + b"y" * 70000),
    *(b"HTTP/9.9", b"HTTP/0.9", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"),
    *(b"GET /health HTTP/1.1\r\n\r\n", b"ffffffffffffffff\r\n", b"-1\r\n", b"0\r\n\r\n"),
)


def _request(rng: random.Random) -> bytes:
    """A good one."""
    if rng.random() < 0.2:
        method = rng.choice(("GET", "HEAD", "OPTIONS", "PUT", "DELETE", "POST"))
        return request_bytes(method, rng.choice(PATHS))
    path = rng.choice(list(BODIES))
    body = json.dumps(rng.choice(BODIES[path])).encode()
    if rng.random() < 0.2:
        chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        head = request_bytes("POST", path, headers={"Transfer-Encoding": "chunked"})
        return head.replace(b"Content-Length: 0\r\n", b"") + chunks
    return request_bytes("POST", path, body)


def _flip(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _insert(data: bytearray, rng: random.Random) -> None:
    place = rng.randrange(len(data))
    data[place:place] = rng.choice(NASTY_BYTES)


def _header(data: bytearray, rng: random.Random) -> None:
    """Something between the request line and the rest."""
    place = data.find(b"\r\n") + 2
    data[place:place] = rng.choice(NASTY_BYTES)


def _drop(data: bytearray, rng: random.Random) -> None:
    begin = rng.randrange(len(data))
    del data[begin : begin + rng.randrange(1, 40)]


def _repeat(data: bytearray, rng: random.Random) -> None:
    begin = rng.randrange(len(data))
    part = data[begin : begin + rng.randrange(1, 200)]
    data[begin:begin] = part * rng.randrange(1, 20)


def _truncate(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(1, len(data)) :]


def _replace(data: bytearray, rng: random.Random) -> None:
    begin = rng.randrange(len(data))
    data[begin : begin + rng.randrange(1, 10)] = rng.randbytes(rng.randrange(1, 10))


def _pipeline(data: bytearray, rng: random.Random) -> None:
    data += _request(rng)


MUTATIONS: Final[tuple[Callable[[bytearray, random.Random], None], ...]] = (
    *(_flip, _insert, _header, _drop, _repeat, _truncate, _replace, _pipeline),
)


def byte_case(seed: int, number: int) -> bytes:
    """A request spoilt as bytes; now and then nothing but noise."""
    rng = random.Random(f"{seed}/bytes/{number}")
    if rng.random() < 0.03:
        return rng.randbytes(rng.randrange(1, 3000))
    data = bytearray(_request(rng))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        if data:
            rng.choice(MUTATIONS)(data, rng)
        if len(data) < 2:  # nothing left to spoil
            break
    return bytes(data) or b"\r\n"


_HOLE: Final = "@hole@"


def body_case(seed: int, number: int) -> bytes:
    """A well-formed request with a body that is spoilt as JSON."""
    rng = random.Random(f"{seed}/bodies/{number}")
    path = rng.choice(list(BODIES))
    value = json.loads(json.dumps(rng.choice(BODIES[path])))
    for _ in range(rng.choice((1, 1, 2, 3))):
        value = _spoilt(value, rng)
    text = json.dumps(value).encode()
    hole = json.dumps(_HOLE).encode()
    while hole in text:
        text = text.replace(hole, rng.choice(NASTY_TEXTS), 1)
    return request_bytes("POST", path, text)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of keys and indexes to every value within."""
    inner = value.items() if isinstance(value, dict) else ()
    inner = enumerate(value) if isinstance(value, list) else inner
    found = [path]
    for key, item in inner:
        found += _places(item, (*path, key))
    return found


def _nasty(rng: random.Random) -> Any:
    return copy.deepcopy(rng.choice((*NASTY_VALUES, _HOLE)))


def _spoilt(value: Any, rng: random.Random) -> Any:
    """With one value replaced, doubled or dropped, or a key added."""
    path = rng.choice(_places(value))
    if not path:
        return _nasty(rng) if rng.random() < 0.3 else [value]
    holder = value
    for key in path[:-1]:
        holder = holder[key]
    choice = rng.random()
    if choice < 0.55:
        holder[path[-1]] = _nasty(rng)
    elif choice < 0.75:
        holder[path[-1]] = _HOLE
    elif choice < 0.85:
        del holder[path[-1]]
    elif choice < 0.93 and isinstance(holder, dict):
        holder[f"{path[-1]}_"] = holder[path[-1]]
    else:
        holder[path[-1]] = [holder[path[-1]]] * rng.randrange(1, 20)
    return value
