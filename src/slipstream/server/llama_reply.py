"""Replies of llama-server's endpoints: a chunk, the last chunk, a whole reply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slipstream.server.line_limits import LineLimits
from slipstream.server.llama_body import LlamaBody
from slipstream.server.llama_output import LlamaOutput
from slipstream.server.llama_settings import generation_settings
from slipstream.server.order import Generation, Service
from slipstream.server.outputs import new_timing
from slipstream.server.timings import timings
from slipstream.server.wire import WireToken
from slipstream.tokenizer import Tokenizer


class LlamaReply:
    """
    Args:
        body: of the request.
        generations: one per prompt.
        texts: the prompts, where they were texts.
    """

    def __init__(
        self,
        service: Service,
        body: LlamaBody,
        generations: Sequence[Generation],
        texts: Sequence[str | None],
    ) -> None:
        self._service = service
        self._body = body
        self._generations = generations
        self._texts = texts

    def outputs(self, arrived_s: float, *, silent: bool) -> list[LlamaOutput]:
        """One per prompt and choice, in this order."""
        places = [
            place
            for place, generation in enumerate(self._generations)
            for _ in range(generation.order.choices)
        ]
        return [
            LlamaOutput(
                index,
                place,
                new_timing(self._generations[place], arrived_s),
                LineLimits(self._body.n_indent, self._body.t_max_predict_ms / 1e3),
                silent=silent,
            )
            for index, place in enumerate(places)
        ]

    def part(self, output: LlamaOutput) -> dict[str, Any]:
        """A chunk: what is new."""
        text, tokens = output.news()
        made = {
            "index": output.index,
            "content": text,
            "tokens": [token.id for token in tokens],
            "stop": False,
            "id_slot": self._body.id_slot,
            "tokens_predicted": output.timing.tokens,
            "tokens_evaluated": len(self._prompt(output)),
        }
        if self._body.timings_per_token:
            made["timings"] = timings(output.timing, self._service.facts)
        return made | self._about(tokens)

    def last(self, output: LlamaOutput) -> dict[str, Any]:
        """The last chunk: everything but the text, which is out."""
        return self._selected({**self._ending(output), "content": "", "tokens": []})

    def whole(self, output: LlamaOutput) -> dict[str, Any]:
        """The reply of a request without ``stream``."""
        made = self._ending(output)
        if self._body.return_tokens:
            made["tokens"] = [token.id for token in output.tokens]
        return self._selected(made | self._about(output.tokens))

    def _about(self, tokens: Sequence[WireToken]) -> dict[str, Any]:
        """Probabilities and origins of tokens, where they were asked for."""
        made: dict[str, Any] = {}
        if self._body.n_probs:
            tokenizer = self._service.tokenizer
            made["completion_probabilities"] = [_probability(t, tokenizer) for t in tokens]
        if self._body.show_drafts:
            made["from_draft"] = [token.from_draft for token in tokens]
        return made

    def _ending(self, output: LlamaOutput) -> dict[str, Any]:
        generation, prompt = self._generations[output.prompt], self._prompt(output)
        order, timing, content = generation.order, output.timing, output.text
        predicted = 0 if output.silent else timing.tokens
        full = len(prompt) + timing.tokens >= self._service.context
        return {
            "index": output.index,
            "content": content,
            "tokens": [],
            "id_slot": self._body.id_slot,
            "stop": True,
            "model": self._service.name,
            "tokens_predicted": predicted,
            "tokens_evaluated": len(prompt),
            "generation_settings": {
                "n_ctx": self._service.context,
                **generation_settings(
                    order.sampling, generation.speculation, stream=self._body.stream
                ),
                **({"n_predict": 0, "max_tokens": 0} if output.silent else {}),
            },
            "prompt": self._prompt_text(output),
            "has_new_line": "\n" in content,
            "truncated": output.finish_reason == "length" and full,
            "stop_type": _stop_type(output),
            "stopping_word": output.stop or "",
            "tokens_cached": timing.summary.get("reused_tokens", 0),
            "timings": timings(timing, self._service.facts) | {"predicted_n": predicted},
            "speculative": generation.speculation,
        }

    def _prompt(self, output: LlamaOutput) -> Sequence[int]:
        return self._generations[output.prompt].order.prompt

    def _prompt_text(self, output: LlamaOutput) -> str:
        text = self._texts[output.prompt]
        return self._service.tokenizer.decode(self._prompt(output)) if text is None else text

    def _selected(self, made: dict[str, Any]) -> dict[str, Any]:
        """The fields that the request wants; ``a/b`` moves up as ``b``, unknown ones are left
        out."""
        fields = self._body.response_fields
        if fields is None:
            return made
        found: dict[str, Any] = {}
        for field in fields:
            value: Any = made
            for name in (names := field.split("/")):
                value = value[name] if isinstance(value, dict) and name in value else _MISSING
            if value is not _MISSING:
                found[names[-1]] = value
        return found


_MISSING = object()


def _stop_type(output: LlamaOutput) -> str:
    if output.silent or output.cut or output.finish_reason == "length":
        return "limit"
    return "eos" if output.stop is None else "word"


def _probability(token: WireToken, tokenizer: Tokenizer) -> dict[str, Any]:
    """Of the model's own distribution: before temperature, filters, penalties and grammar."""
    top = [_candidate(token_id, logprob, tokenizer) for token_id, logprob in token.top]
    return _candidate(token.id, token.logprob, tokenizer) | {"top_logprobs": top}


def _candidate(token: int, logprob: float | None, tokenizer: Tokenizer) -> dict[str, Any]:
    known = token < tokenizer.vocabulary_size
    data = tokenizer.token_bytes(token) if known else b""
    return {
        "id": token,
        "token": data.decode("utf-8", "replace"),
        "bytes": list(data),
        "logprob": logprob,
    }
