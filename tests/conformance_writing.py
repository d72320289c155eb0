"""What ``conformance_server`` answers: texts made of the request alone, and the lies about them.

A lie is told where its check looks, and nowhere else where that can be.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

PASS = 3  # tokens of a verification step, two of them drafted
MARKER = "My secret word is "


class BadRequestError(Exception):
    pass


@dataclass
class Written:
    """An output: tokens, those that are drafted, and why it ended."""

    tokens: list[str]
    finish: str
    most: int
    drafted: int = 0
    accepted: int = 0
    steps: int = 0
    n_max: int = 0
    echoed: dict[str, Any] = field(default_factory=dict)


class Writer:
    """
    Args:
        lies: of ``LIES``, or ways of ``ConformanceServer.hostile``.
        drafts: whether it drafts unless a request says otherwise.
        chooses: whether a request may choose.
        key: that every request must bring; empty = none.
    """

    def __init__(
        self,
        *lies: str,
        flavour: str = "slipstream",
        drafts: bool = True,
        chooses: bool = True,
        key: str = "",
    ) -> None:
        self.lies, self.flavour, self.key = frozenset(lies), flavour, key
        self.drafts, self.chooses = drafts, chooses
        self.running = 0
        self.seen: set[tuple[str, str]] = set()
        self.numbers = itertools.count()

    def write(self, body: Mapping[str, Any]) -> Written:
        prompt = body["messages"][0]["content"]
        drafting, n_max, echoed = self.speculation(body)
        most = int(body.get("max_tokens", 16))
        texts, ends = self.texts(body, prompt, drafting)
        tokens = list(itertools.islice(texts, most))
        finish = "length" if len(tokens) == most and ends != most else "stop"
        written = Written(tokens, finish, most, n_max=n_max, echoed=echoed)
        self.stop(written, body, drafting)
        self.limit(written, body, texts, drafting)
        if drafting:
            self.count(written, body, prompt)
        return written

    def speculation(self, body: Mapping[str, Any]) -> tuple[bool, int, dict[str, Any]]:
        """(whether it drafts, n_max, what is echoed)."""
        wanted = body.get("speculative") or {}
        unknown = set(wanted) - {"type", "n_max"} - self.passed("ignored-own-key", {"n_maxx"})
        if unknown:
            raise BadRequestError("`speculative.n_maxx` is unknown")
        kind = wanted.get("type", "suffix" if self.drafts else "none")
        n_max = wanted.get("n_max", body.get("speculative.n_max", PASS - 1))
        if "ignored-n-max" in self.lies:
            n_max = PASS - 1
        drafting = kind != "none" and n_max > 0
        if "ignored-none" in self.lies:
            drafting, n_max = True, max(n_max, 1)
        told = n_max + 1 if "echo" in self.lies else wanted.get("n_max", n_max)
        kind = "suffix" if "echo-type" in self.lies else kind
        return drafting, n_max, {"type": kind, "n_max": told, "scope": "session"}

    def passed(self, lie: str, value: Any) -> Any:
        """The value where the lie is told, else an empty one of its type."""
        return value if lie in self.lies else type(value)()

    def texts(
        self, body: Mapping[str, Any], prompt: str, drafting: bool
    ) -> tuple[Iterator[str], int]:
        """Tokens in order, and at which count it ends by itself (-1 = never)."""
        warm = body.get("temperature", 1) > 0
        key = [prompt, self.seed(body, drafting) if warm else None]
        key.append(body.get("frequency_penalty") if self.punishes(drafting) else None)
        if "response_format" in body:
            pieces = self.json_pieces(key, warm and drafting)
        elif "grammar" in body:
            pieces = self.words(key, warm and drafting)
        elif prompt.startswith("Answer with one word"):
            pieces = ["Blue", ",", " of", " course", "."]
        else:
            return self.endless(body, key, prompt, drafting), -1
        return iter(pieces), len(pieces)

    def punishes(self, drafting: bool) -> bool:
        return not ("no-penalty" in self.lies and drafting)

    def seed(self, body: Mapping[str, Any], drafting: bool) -> Any:
        seed = body.get("seed")
        constrained = "response_format" in body or "grammar" in body
        if drafting and not constrained:
            if "seed-ignored" in self.lies:
                return next(self.numbers)
            if "seeds-alike" in self.lies:
                return 0
            if "seed-unlike" in self.lies:
                return f"{seed} drafted"
        return seed

    def endless(
        self, body: Mapping[str, Any], key: Any, prompt: str, drafting: bool
    ) -> Iterator[str]:
        marker = prompt.split(MARKER)[1].split(".")[0] if MARKER in prompt else ""
        plain = drafting and not marker and body.get("max_tokens") == 64
        plain = plain and body.get("temperature") == 0 and "frequency_penalty" not in body
        for place in itertools.count():
            stray: Any = ""
            if place >= 50 and plain and "stop" not in body:
                stray = "x" if "diverges" in self.lies else stray
                stray = next(self.numbers) if "unsteady" in self.lies else stray
            if place >= 20 and not drafting and not marker and "restless" in self.lies:
                stray = next(self.numbers)
            if place >= 20 and drafting and self.running > 1 and "disturbed" in self.lies:
                stray = "y"
            text = (
                f" {marker}" if marker and place % 5 == 4 else f" w{_number([key, place, stray])}"
            )
            if place == 9 and marker and self.running > 1 and "mixed" in self.lies:
                others = {"walnut-7391", "saffron-2846"} - {marker}
                text = f" {min(others)}"
            yield text

    def json_pieces(self, key: Any, lying: bool) -> list[str]:
        number = _number(key)
        value = {
            "kind": ("kite", "owl")[number % 2],
            "shelf": "Z99" if lying and "foreign-json" in self.lies else "A41",
            "count": (1, 2, 3)[number % 3],
            "tags": ["grey"],
        }
        text = json.dumps(value)
        text = text.replace('"count"', 'count"') if lying and "broken-json" in self.lies else text
        pieces = [text[start : start + 4] for start in range(0, len(text), 4)]
        return pieces[:-2] if lying and "cut-json" in self.lies else pieces

    def words(self, key: Any, lying: bool) -> list[str]:
        colour = ("red", "green")[_number(key) % 2]
        last = "mauve" if lying and "outside-grammar" in self.lies else "blue"
        return [colour, " 12", "; ", "red", " 34", "; ", last, " 56"]

    def stop(self, written: Written, body: Mapping[str, Any], drafting: bool) -> None:
        """Cut at a stop text, the last token in two."""
        for stop in body.get("stop", ()):
            text = "".join(written.tokens)
            place = text.find(stop)
            if place < 0:
                continue
            written.finish = "length" if "stop-reason" in self.lies and drafting else "stop"
            end = place + (len(stop) if "stop-kept" in self.lies and drafting else 0)
            end += len(stop) + 3 if "past-stop" in self.lies and drafting else 0
            end -= 2 if "before-stop" in self.lies and drafting else 0
            kept = []
            for token in written.tokens:
                kept.append(token[: max(end, 0)])
                end -= len(token)
                if end <= 0:
                    break
            if "past-stop" in self.lies and drafting:
                kept[-1] = kept[-1].replace(stop, "") + "!"
                kept = ["".join(kept).replace(stop, "")]
            written.tokens = kept

    def limit(
        self, written: Written, body: Mapping[str, Any], texts: Iterator[str], drafting: bool
    ) -> None:
        if written.most == 5 and drafting and "logprobs" not in body:
            if self.lies & {"one-more", "one-untold"}:
                written.tokens.append(next(texts))
            if "one-less" in self.lies:
                written.tokens.pop()
        if written.most == 8 and drafting:
            written.finish = "stop" if "stop-for-length" in self.lies else written.finish
            written.finish = "done" if "odd-reason" in self.lies else written.finish

    def count(self, written: Written, body: Mapping[str, Any], prompt: str) -> None:
        tokens = len(written.tokens)
        written.steps = tokens // (written.n_max + 1)
        written.drafted = written.accepted = written.steps * written.n_max
        session = str(body.get("session", ""))
        fresh = (session, prompt) not in self.seen
        if "shared-pool" in self.lies:
            fresh = all(known != prompt for _, known in self.seen)
        if fresh:
            written.accepted //= 4
        if written.most == 96:
            written.accepted += self.passed("more-accepted", 100)
            if "accepted-unseen" in self.lies:
                written.drafted = written.accepted = 200
            written.steps += self.passed("steps", 100)

    def cached(self, body: Mapping[str, Any], prompt: str) -> int:
        session = str(body.get("session", ""))
        hit = (session, prompt) in self.seen
        if "shared-cache" in self.lies:
            hit = any(known == prompt for _, known in self.seen)
        self.seen.add((session, prompt))
        return len(prompt.split()) - 1 if hit else 0


def _number(key: Any) -> int:
    digest = hashlib.sha256(json.dumps(key).encode()).digest()
    return int.from_bytes(digest[:4], "big") % 9000 + 1000
