"""Structured output: JSON schemas, regular expressions and grammars, by the llguidance library.

A grammar speaks of bytes; llguidance turns it into masks over the vocabulary. Where the next bytes
are dictated, the mask holds the one token that the tokeniser makes of them. Everything that a
grammar's author may do wrong, or on purpose, ends in a GrammarError after bounded work.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from threading import Lock
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from slipstream.constraint import Mask
from slipstream.errors import GrammarError, UnsupportedError
from slipstream.grammar_budget import GrammarBudget
from slipstream.grammar_text import check_grammar, check_regex, check_schema, grammar_texts
from slipstream.grammar_tokens import GrammarVocabulary, TokenTable
from slipstream.grammar_trial import Trials, is_plain, limits, shown, uncompiled
from slipstream.options import SamplingOptions

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer
    from llguidance._lib import JsonCompileOptions

# llama.cpp's rule: nothing, a space, or up to two line ends and an indentation. Without a bound a
# small model may emit spaces for ever.
WHITESPACE: Final = r"(?: |\n{1,2}[ \t]{0,20})"
MOST_UNTRIED_REGEX: Final = 1000


class Grammars:
    """Compiles grammars for one vocabulary; safe to use from several threads.

    Args:
        vocabulary: read at the first grammar (about a second per 150,000 tokens).
        budget: makes that of each output, whose first mask is then found while compiling; None =
            outputs share no steps.
    """

    def __init__(
        self, vocabulary: GrammarVocabulary, budget: Callable[[], GrammarBudget] | None = None
    ) -> None:
        self._vocabulary = vocabulary
        self._budget = budget
        self._lock = Lock()
        self._trials = Trials()
        self._tokenizer: LLTokenizer | None = None
        self._ends = np.array(sorted(vocabulary.end_ids), np.int64)

    def constraint(self, sampling: SamplingOptions) -> GuidedConstraint | None:
        """What the options demand of the output, at its beginning; None = nothing.

        Raises:
            GrammarError: the grammar is invalid, uses what is not supported, or is too large;
                with a budget, also where no token can begin its text.
            UnsupportedError: the vocabulary has no end-of-generation token.
        """
        for kind, text in grammar_texts(sampling):
            matcher = self._compile(kind, text)
            made = GuidedConstraint(matcher, self._vocabulary.vocabulary_size, self._ends)
            if self._budget is not None:
                made.mask()
                made.budget = self._budget()
            return made
        return None

    def prepare(self) -> None:
        """Read the vocabulary, where it can have grammars, before the first one comes."""
        with contextlib.suppress(UnsupportedError):
            self._read_vocabulary()

    def _compile(self, kind: str, text: str) -> LLMatcher:
        from llguidance import LLMatcher

        grammar = _guidance_grammar(kind, text)
        if not _harmless(kind, text):
            self._trials.require(kind, grammar)
        matcher = LLMatcher(self._read_vocabulary(), grammar, log_level=0, limits=limits())
        if matcher.is_error():
            raise uncompiled(kind, matcher.get_error())
        warnings = matcher.get_grammar_warnings()
        if warnings:
            raise GrammarError(
                f"a {kind} of which nothing is ignored", shown(warnings[0]), "Leave that out."
            )
        return matcher

    def _read_vocabulary(self) -> LLTokenizer:
        from llguidance import LLTokenizer

        with self._lock:
            if self._tokenizer is None:
                if not self._ends.size:
                    raise UnsupportedError(
                        "a vocabulary with an end-of-generation token",
                        "none",
                        "Use another model, or no grammar.",
                    )
                table = TokenTable(self._vocabulary)
                self._tokenizer = LLTokenizer(table, eos_token=table.eos_token_id)  # type: ignore[arg-type]
            return self._tokenizer


def _guidance_grammar(kind: str, text: str) -> str:
    """A checked text in the JSON form that llguidance compiles."""
    from llguidance import LLMatcher

    if kind == "JSON schema":
        schema = check_schema(text)
        return LLMatcher.grammar_from_json_schema(schema, _defaults(schema), {"lenient": False})
    if kind == "regular expression":
        return LLMatcher.grammar_from_regex(check_regex(text))
    return json.dumps({"grammars": [{"lark_grammar": check_grammar(text)}]})


def _harmless(kind: str, text: str) -> bool:
    """Whether a checked text is compiled in bounded time, whatever it says."""
    if kind == "JSON schema":
        return is_plain(text)
    return kind == "regular expression" and len(text) <= MOST_UNTRIED_REGEX


def _defaults(schema: str) -> JsonCompileOptions:
    """Where a schema says nothing on whitespace, a bound on it."""
    said = json.loads(schema).get("x-guidance")
    keys = ("whitespace_pattern", "whitespace_flexible")
    if isinstance(said, dict) and any(key in said for key in keys):
        return {}
    return {"whitespace_pattern": WHITESPACE}


class GuidedConstraint:
    """A ``Constraint`` by an llguidance matcher.

    Args:
        matcher: compiled; owned by this object.
        vocabulary: number of token ids.
        ends: int64 [n], end-of-generation ids, ascending; the matcher knows the first of them.
        budget: shared with forks; None = unlimited.
    """

    def __init__(
        self,
        matcher: LLMatcher,
        vocabulary: int,
        ends: NDArray[np.int64],
        budget: GrammarBudget | None = None,
    ) -> None:
        self.budget = budget
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._ends = ends
        self._mask: Mask | None = None
        self.finished = False

    @property
    def may_stop(self) -> bool:
        if self.finished:
            return True
        matcher = self._matcher
        return not matcher.is_error() and (matcher.is_accepting() or matcher.is_stopped())

    def mask(self) -> Mask:
        if self._mask is None:
            if self.budget is not None:
                self.budget.require()
            with self._spending():
                self._mask = self._computed()
            self._mask.flags.writeable = False
        return self._mask

    def _spending(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext() if self.budget is None else self.budget.spending()

    @property
    def _spent(self) -> bool:
        return self.budget is not None and self.budget.spent

    def _computed(self) -> Mask:
        if self.finished:
            allowed = np.zeros(self._vocabulary, np.bool_)
            allowed[self._ends] = True
            return allowed
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error():  # the bits then say that the end is allowed
            raise self._failure()
        flags = np.unpackbits(bits, bitorder="little")[: self._vocabulary]
        if flags[self._ends[0]]:
            flags[self._ends] = 1
        return flags.view(np.bool_)

    def only(self) -> int | None:
        mask = self.mask()
        return int(np.argmax(mask)) if np.count_nonzero(mask) == 1 else None

    def forced(self, most: int) -> list[int]:
        if self.finished or most <= 0 or self._spent:
            return []
        with self._spending():
            return self._matcher.compute_ff_tokens()[:most]

    def admitted(self, tokens: Sequence[int], parents: Sequence[int]) -> list[int]:
        if self.finished or not tokens or self._spent:
            return []
        with self._spending():
            if list(parents) == list(range(-1, len(tokens) - 1)):
                return list(range(self._matcher.validate_tokens(list(tokens))))
            return _walk(self._matcher.deep_copy(), tokens, parents)

    def advance(self, token: int) -> None:
        if token in self._ends:
            self.finished = True
        else:
            with self._spending():
                taken = not self.finished and self._matcher.consume_token(token)
            if not taken:
                raise self._failure(f"token {token}")
        if self.budget is not None:
            self.budget.token()
        self._mask = None

    def fork(self) -> GuidedConstraint:
        twin = GuidedConstraint(
            self._matcher.deep_copy(), self._vocabulary, self._ends, self.budget
        )
        twin.finished = self.finished
        twin._mask = self._mask
        return twin

    def _failure(self, found: str = "none") -> GrammarError:
        reason = shown(self._matcher.get_error()) or found
        return GrammarError(
            "a token that continues the output as its grammar demands",
            reason,
            "Simplify the grammar, or use one that the model's tokens can spell.",
        )


def _walk(matcher: LLMatcher, tokens: Sequence[int], parents: Sequence[int]) -> list[int]:
    """The admitted nodes of a tree; the matcher is used up."""
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(parents):
        children.setdefault(parent, []).append(node)
    left = children[-1][::-1]
    path: list[int] = []
    kept: list[int] = []
    while left and not matcher.is_error():
        node = left.pop()
        while path and path[-1] != parents[node]:
            path.pop()
            matcher.rollback(1)
        if matcher.try_consume_tokens([tokens[node]]) == 1:
            path.append(node)
            kept.append(node)
            left += children.get(node, [])[::-1]
    return sorted(kept)
