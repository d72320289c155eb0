"""A compilation tried in a process of its own, which may crash, hang or run out of memory.

llguidance bounds most of its work, but intersections of patterns can take exponential time and
long chains of references can exhaust the stack. What may do so is tried first, with single bytes
for a vocabulary. Run as a program, this module is that process: it reads a grammar from standard
input and prints its verdict.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import OrderedDict
from hashlib import sha256
from threading import Lock, Thread, stack_size
from typing import TYPE_CHECKING, Any, Final

from slipstream.errors import BackendError, GrammarError

if TYPE_CHECKING:
    from llguidance import LLParserLimits

CPU_S: Final = 1
START_S: Final = 5  # of the processor, to get going
NICE: Final = 4  # those who wait for tokens come first, and leave it a third
WALL_S: Final = 60.0
MEMORY_BYTES: Final = 1 << 30
STACK_BYTES: Final = 2 << 20  # a quarter of what the compiling thread has
REMEMBERED: Final = 256
SHOWN_CHARACTERS: Final = 200
PASSED: Final = "compiled"
REFUSED: Final = "refused: "

MOST_ITEMS: Final = 15_000
"""Of a mask."""

MOST_UNTRIED_CHARACTERS: Final = 1 << 14
MOST_UNTRIED_REFERENCES: Final = 50
MOST_UNTRIED_NUMBER: Final = 1 << 53
"""Beyond it not every integer is a float; constants near -2**63 end llguidance 1.9.1 itself."""
# keywords that intersect or compare languages, or hold regular expressions
RISKY: Final = frozenset(
    """allOf oneOf not pattern patternProperties propertyNames multipleOf if dependentSchemas
    unevaluatedProperties unevaluatedItems x-guidance""".split()  # noqa: SIM905
)


def is_plain(schema: str) -> bool:
    """Whether a checked JSON schema is of the kind that compiles in time linear in its size."""
    if len(schema) > MOST_UNTRIED_CHARACTERS:
        return False
    references = 0
    left: list[Any] = [json.loads(schema)]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            if not RISKY.isdisjoint(value):
                return False
            references += "$ref" in value
            left += value.values()
        elif isinstance(value, list):
            left += value
        elif isinstance(value, int | float) and abs(value) > MOST_UNTRIED_NUMBER:
            return False
    return references <= MOST_UNTRIED_REFERENCES


class Trials:
    """Trials, each passed once; safe to use from several threads."""

    def __init__(self) -> None:
        self._passed: OrderedDict[bytes, None] = OrderedDict()
        self._lock = Lock()

    def require(self, kind: str, grammar: str) -> None:
        """
        Args:
            kind: what the grammar is, in words.
            grammar: in the form that llguidance compiles.

        Raises:
            GrammarError: it cannot be compiled, or not within ``CPU_S`` and ``MEMORY_BYTES``.
            BackendError: the process could not run.
        """
        digest = sha256(grammar.encode()).digest()
        with self._lock:
            if digest in self._passed:
                return
        _try(kind, grammar)
        with self._lock:
            self._passed[digest] = None
            if len(self._passed) > REMEMBERED:
                self._passed.popitem(last=False)


def _try(kind: str, grammar: str) -> None:
    path = os.pathsep.join(filter(None, sys.path))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "slipstream.grammar_trial"],
            input=grammar.encode(),
            capture_output=True,
            timeout=WALL_S,
            env={**os.environ, "PYTHONPATH": path},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _too_much(kind) from None
    except OSError as error:
        raise _not_run(str(error)) from None
    verdict = done.stdout.decode(errors="replace")
    if done.returncode < 0:
        raise _too_much(kind)
    if verdict.startswith(REFUSED):
        raise uncompiled(kind, verdict.removeprefix(REFUSED))
    if verdict != PASSED:
        raise _not_run(shown(done.stderr.decode(errors="replace")[-SHOWN_CHARACTERS:]))


def uncompiled(kind: str, message: str) -> GrammarError:
    """What llguidance says of a grammar that it does not take."""
    return GrammarError(f"a {kind} that can be compiled", shown(message), "Correct or simplify it.")


def _too_much(kind: str) -> GrammarError:
    return GrammarError(
        f"a {kind} that is compiled within {CPU_S} s and {MEMORY_BYTES >> 30} GiB of memory",
        "one that takes more, or ends the compiler",
        "Simplify it: fewer patterns that must hold together, shorter chains of references, "
        "smaller numbers.",
    )


def _not_run(reason: str) -> BackendError:
    return BackendError(
        "a process in which a grammar is tried", reason, "Simplify the grammar, or see the reason."
    )


def shown(message: str) -> str:
    """The beginning of a message, on one line."""
    text = " ".join(message.split())
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 3]}..."


def limits() -> LLParserLimits:
    """llguidance's own limits on work per compilation (20 ms) and of its lexer per mask (14 ms); a
    tenth of its lexer states, of 1 to 2 kB each.

    Items of an ambiguous grammar take time quadratic in their number: 15,000 take 50 ms. An object
    of 490 optional properties, as many as a row of its own limit may hold, takes 14,700.
    """
    from llguidance import LLParserLimits

    return LLParserLimits(max_lexer_states=25_000, step_max_items=MOST_ITEMS, verbose_errors=False)


class _Bytes:
    """A vocabulary of single bytes, in the form that llguidance reads."""

    is_tokenizer_wrapper = True
    bos_token_id = None
    eos_token_id = 255
    special_token_ids = (255,)
    tokens = (*(bytes([byte]) for byte in range(255)), b"<end>")

    def __call__(self, text: str) -> list[int]:
        return list(text.encode())


def _bound_this_process() -> None:
    try:
        import resource
    except ImportError:  # not on this system; the caller's clock remains
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S + START_S, CPU_S + START_S))
    signal.setitimer(signal.ITIMER_PROF, CPU_S)  # ends the process
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def _compile(grammar: str) -> None:
    from llguidance import LLMatcher, LLTokenizer

    tokenizer = LLTokenizer(_Bytes(), slices=[])  # type: ignore[arg-type]
    matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=limits())
    fault = matcher.get_error()
    print(REFUSED + shown(fault) if matcher.is_error() else PASSED, end="", flush=True)


def _main() -> None:
    if hasattr(os, "nice"):
        os.nice(NICE)
    grammar = sys.stdin.buffer.read().decode()
    _bound_this_process()
    stack_size(STACK_BYTES)
    thread = Thread(target=_compile, args=(grammar,))
    thread.start()
    thread.join()


if __name__ == "__main__":
    _main()
