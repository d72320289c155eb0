"""Every request of a server gives what the model gives alone, whatever else runs beside it."""

from __future__ import annotations

import itertools
import json
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conftest import Command
from servers import RunningServer, reference, server_events, serving, tiny_backend
from slipstream import Model

AT_ONCE = 8
CONTEXT = 1024
PROMPTS = (
    "one two three one two three one two",
    "the rain in and the train on",
    "Stock list:\nbolt-m3, shelf A1\nbolt-m4, shelf A2\n\nThe same again:\nbolt-m3,",
    "é and 東京 🙂 and",
    "the rain in and the train on, " * 6 + "one two three and",
)
SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green"]}, "count": {"enum": [1, 2, 3]}},
    "required": ["colour", "count"],
    "additionalProperties": False,
}
SAMPLING: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {"temperature": 1.0, "seed": 5},
    {"temperature": 0.7, "seed": 6, "top_p": 0.9, "top_k": 20},
    {"temperature": 1.2, "seed": 2**62, "min_p": 0.05, "repetition_penalty": 1.2},
    {"temperature": 1.0, "seed": 8, "stop": ["e", "an"]},
    {"temperature": 1.0, "seed": 9, "json_schema": SCHEMA},
    {"temperature": 0.8, "seed": 10, "grammar": 'start: ("one " | "two " | "and ")+'},
)
METHODS = ("none", "ngram-simple", "ngram-map-k4v", "ngram-mod", "ngram-cache", "suffix", "auto")
PATHS = ("/completion", "/v1/completions", "/v1/chat/completions")


@dataclass(frozen=True)
class Case:
    path: str
    prompt: str
    sampling: dict[str, Any]
    method: str
    stream: bool
    tokens: int

    @property
    def chat(self) -> bool:
        return "chat" in self.path

    def body(self) -> dict[str, Any]:
        asked: Any = {"messages": self.messages} if self.chat else {"prompt": self.prompt}
        more = {"max_tokens": self.tokens, "stream": self.stream}
        return {**asked, **self.sampling, **more, "speculative": {"type": self.method}}

    @property
    def messages(self) -> list[dict[str, str]]:
        return [{"role": "user", "content": self.prompt}]

    def wanted(self, model: Model) -> tuple[str, str]:
        options = {**self.sampling, "max_tokens": self.tokens, "spec": "none"}
        done = model.chat(self.messages, **options) if self.chat else None
        done = done or model.complete(self.prompt, **options)
        return done.text, done.finish_reason


def cases(count: int, tokens: int, seed: int = 0) -> list[Case]:
    """All combinations in a fixed shuffled order, so that neighbours differ in everything."""
    every = list(itertools.product(PATHS, PROMPTS, SAMPLING, METHODS, (False, True)))
    random.Random(seed).shuffle(every)
    return [Case(*parts, tokens + place % 7) for place, parts in enumerate(every[:count])]


def text_of(choice: dict[str, Any]) -> str:
    """Of a choice of either of OpenAI's endpoints, whole or a part."""
    if "text" in choice:
        return str(choice["text"])
    return (choice.get("delta") or choice.get("message") or {}).get("content") or ""


def asked(http: Any, case: Case) -> tuple[str, str]:
    """Text and finish reason."""
    if case.stream:
        with http.stream("POST", case.path, json=case.body()) as reply:
            assert reply.status_code == 200
            parts = [data for _, data in server_events(reply.iter_lines()) if data != "[DONE]"]
    else:
        reply = http.post(case.path, json=case.body())
        assert reply.status_code == 200, reply.text
        parts = [reply.json()]
    if case.path == "/completion":
        ended = {"limit": "length", "eos": "stop", "word": "stop"}
        return "".join(part["content"] for part in parts), ended[parts[-1]["stop_type"]]
    choices = [choice for part in parts for choice in part["choices"]]
    return "".join(text_of(choice) for choice in choices), choices[-1]["finish_reason"]


def disturb(server: RunningServer, over: threading.Event) -> None:
    """Clients that leave, and bodies that are no JSON, until it is over."""
    numbers = itertools.count()
    with server.client() as http:
        while not over.is_set():
            number = next(numbers)
            http.post("/completion", content=b"{" * (number % 50))
            body = {
                "prompt": f"{number} and",
                "max_tokens": 200,
                "temperature": 1.0,
                "stream": True,
            }
            with http.stream("POST", "/v1/completions", json=body) as reply:
                next(reply.iter_bytes(), None)


def judge(server: RunningServer, model: Model, tried: list[Case]) -> None:
    over = threading.Event()
    disturber = threading.Thread(target=disturb, args=(server, over))
    disturber.start()
    try:
        with server.client() as http, ThreadPoolExecutor(AT_ONCE) as pool:
            given = list(pool.map(lambda case: asked(http, case), tried))
    finally:
        over.set()
        disturber.join()
    for case, answer in zip(tried, given, strict=True):
        assert answer == case.wanted(model), case


@pytest.fixture(scope="module")
def server(chatty: Path) -> Iterator[RunningServer]:
    flags = ["--parallel", str(AT_ONCE), "--context", str(CONTEXT), "--queue", "64"]
    with serving(chatty, *flags, *tiny_backend()) as running:
        yield running


def test_of_a_tiny_model(server: RunningServer, chatty: Path) -> None:
    judge(server, reference(chatty, context=CONTEXT), cases(120, 20))


def test_with_few_places_and_little_memory(chatty: Path) -> None:
    flags = ["--parallel", "2", "--context", "256", "--queue", "64", "--prefill-chunk", "16"]
    with serving(chatty, *flags, *tiny_backend()) as server:
        judge(server, reference(chatty, context=256), cases(40, 12, seed=1))


@pytest.mark.model
@pytest.mark.native
@pytest.mark.slow
def test_of_a_real_model(model_path: Any) -> None:
    path = model_path("smollm2-135m")
    flags = ["--parallel", str(AT_ONCE), "--context", str(CONTEXT), "--queue", "64"]
    with serving(path, *flags) as server:
        judge(server, reference(path, context=CONTEXT), cases(32, 24, seed=2))


def test_it_is_the_output_of_run(server: RunningServer, chatty: Path, slipstream: Command) -> None:
    words = ["run", chatty, *tiny_backend(), "-p", PROMPTS[0], "-n", "20", "--temp", "1"]
    done = slipstream(*words, "--seed", "12", "--spec", "suffix", "--json")
    wanted = json.loads(done.stdout.splitlines()[-1])
    body = {"prompt": PROMPTS[0], "n_predict": 20, "temperature": 1.0, "seed": 12}
    with server.client() as http:
        made = http.post("/completion", json={**body, "return_tokens": True}).json()
    assert made["content"] == wanted["text"]
    assert made["tokens"] == wanted["ids"]
