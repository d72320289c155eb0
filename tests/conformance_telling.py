"""How ``conformance_server`` tells an output: whole or in chunks, with counts and probabilities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from conformance_writing import PASS, Writer, Written


class Teller(Writer):
    def entry(self, place: int, token: str, written: Written, top: int) -> dict[str, Any] | None:
        drafted = bool(written.drafted) and place % PASS > 0
        if drafted and "no-logprobs" in self.lies and top == 3:
            return None
        logprob = -0.7 if drafted and "other-logprobs" in self.lies and top == 3 else -0.1
        tops = [{"token": token, "logprob": logprob}]
        tops += [{"token": f"t{n}", "logprob": -3.0 - n} for n in range(1, top)]
        if top == 2 and "close" in self.lies:
            tops[1]["logprob"] = logprob - 0.02
        if drafted and top == 3:
            tops = [] if "no-tops" in self.lies else tops
            tops = tops[::-1] if "rising-tops" in self.lies else tops
            logprob = -2.9 if "unlikely" in self.lies else logprob
        data = list(token.encode())
        return {"token": token, "logprob": logprob, "bytes": data, "top_logprobs": tops}

    def entries(self, body: Mapping[str, Any], written: Written) -> list[dict[str, Any]]:
        top = int(body.get("top_logprobs") or 0)
        found = (self.entry(n, token, written, top) for n, token in enumerate(written.tokens))
        return [entry for entry in found if entry is not None]

    def usage(self, body: Mapping[str, Any], written: Written, cached: int) -> dict[str, Any]:
        prompt = len(body["messages"][0]["content"].split())
        tokens = len(written.tokens)
        if written.most == 5 and written.drafted:
            tokens -= self.passed("one-untold", int("logprobs" not in body))
        if written.drafted and written.most == 32:
            tokens -= self.passed("told-less", 9)
            tokens -= 1 if "streamed-usage" in self.lies and body.get("stream") else 0
            tokens -= 2 if "unseen-tokens" in self.lies and body.get("logprobs") else 0
        lying = "sum" in self.lies and written.drafted and written.most == 32
        return {
            "prompt_tokens": prompt,
            "completion_tokens": tokens,
            "total_tokens": prompt + tokens + bool(lying),
            "prompt_tokens_details": {"cached_tokens": cached},
        }

    def extras(self, written: Written) -> dict[str, Any]:
        if self.flavour == "plain":
            return {}
        tokens = len(written.tokens)
        timings: dict[str, Any] = {"predicted_ms": 1.0}
        if written.most == 32 and not self.lies & {"told-less", "unseen-tokens", "streamed-usage"}:
            timings["predicted_n"] = tokens + self.passed("other-timings", 1)
        if written.drafted:
            timings |= {"draft_n": written.drafted, "draft_n_accepted": written.accepted}
        if self.flavour == "llama.cpp":
            return {"timings": timings}
        places = written.n_max if written.drafted else 0
        timings |= {"verification_steps": written.steps, "acceptance_at": [0.5] * places}
        return {"timings": timings, "speculative": written.echoed}

    def whole(self, body: Mapping[str, Any], written: Written, cached: int) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": 0,
            "message": {"role": "assistant", "content": "".join(written.tokens)},
            "finish_reason": written.finish,
        }
        if body.get("logprobs"):
            choice["logprobs"] = {"content": self.entries(body, written)}
        usage = self.usage(body, written, cached)
        return {"id": "c1", "choices": [choice], "usage": usage, **self.extras(written)}

    def chunks(
        self, body: Mapping[str, Any], written: Written, cached: int
    ) -> Iterator[dict[str, Any]]:
        narrow = bool(written.drafted) and written.most == 48 and "logprobs" not in body
        yield {"id": "c1", "choices": [{"index": 0, "delta": {"role": "assistant"}}]}
        top = int(body.get("top_logprobs") or 0)
        last = len(written.tokens) - 1
        pieces = written.tokens
        if narrow and "one-piece" in self.lies:
            pieces = ["".join(pieces)]
        for place, token in enumerate(pieces):
            if narrow and place == last and "lost-piece" in self.lies:
                continue
            choice: dict[str, Any] = {"index": 0, "delta": {"content": token}}
            if body.get("logprobs"):
                entry = self.entry(place, token, written, top)
                choice["logprobs"] = {"content": [entry] if entry else []}
            name = "c2" if narrow and place == last and "two-ids" in self.lies else "c1"
            yield {"id": name, "choices": [choice]}
        end = {"index": 0, "delta": {}, "finish_reason": written.finish}
        yield {"id": "c1", "choices": [end]}
        if narrow and "two-ends" in self.lies:
            yield {"id": "c1", "choices": [end]}
        usage = self.usage(body, written, cached)
        yield {"id": "c1", "choices": [], "usage": usage, **self.extras(written)}
