"""slipstream chat"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.cli.completion import completion_record, show
from slipstream.cli.flags import add_flags, options
from slipstream.cli.output import add_json, print_json, printable
from slipstream.cli.run import add_show_drafts, drew_seed
from slipstream.cli.trace import add_trace
from slipstream.errors import ContextFullError
from slipstream.options import ModelOptions, SamplingOptions, SpeculationOptions

if TYPE_CHECKING:
    from slipstream.api import Model, Piece

_HELP = (
    "/clear forgets the conversation, /remembered shows what drafters learned, /forget erases it,\n"
    "/exit or Ctrl-D ends it, Ctrl-C stops a reply"
)
Message = dict[str, str]


def configure(parser: argparse.ArgumentParser) -> None:
    # a reply ends by itself; the context bounds it
    defaults = {"max_tokens": -1}
    add_flags(parser, ModelOptions, SamplingOptions, SpeculationOptions, defaults=defaults)
    parser.add_argument("--system", metavar="TEXT", help="system message")
    add_show_drafts(parser)
    add_trace(parser)
    add_json(parser)


def execute(arguments: argparse.Namespace) -> None:
    from slipstream.cli.opening import open_model, require_whole_trace
    from slipstream.cli.statistics import caveats, draft_lines, warn_of_pretence

    sampling = options(SamplingOptions, arguments)
    speculation = options(SpeculationOptions, arguments)
    model_options = options(ModelOptions, arguments)
    model = open_model(model_options, speculation, quiet=arguments.json, trace=arguments.trace)
    chat = Conversation(model, sampling, arguments.system, drafts=arguments.show_drafts)
    model.chat_ids([*chat.messages, {"role": "user", "content": "?"}])  # has it a template?
    print(_HELP, file=sys.stderr)
    warn_of_pretence(speculation)
    for line in (*draft_lines(model.draft_model(speculation)), *caveats(model.loaded)):
        print(printable(line), file=sys.stderr)
    while (text := _read()) is not None and text != "/exit":
        if text == "/clear":
            chat.clear()
        elif text == "/forget":
            model.forget()
        elif text == "/remembered":
            print("\n".join(_remembered(model)), file=sys.stderr)
        elif text.startswith("/"):
            print(f"no such command; {_HELP}", file=sys.stderr)
        elif text:
            chat.say(text)
    if arguments.json:
        print_json({"replies": chat.replies})
    require_whole_trace(model)


def _remembered(model: Model) -> list[str]:
    """A line for each drafter and scope."""
    lines = [
        f"{printable(name)}, {printable(scope)}: {pool.tokens} tokens, {pool.bytes} bytes"
        for name, scopes in model.remembered().items()
        for scope, pool in scopes.items()
    ]
    return lines or ["drafters remember nothing"]


def _read() -> str | None:
    """A line, or None at its end (Ctrl-D)."""
    interactive = sys.stdin.isatty()
    if interactive:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  (gives input() line editing and history)
    try:
        return input("> " if interactive else "").strip()
    except EOFError:
        if interactive:
            print()
        return None
    except KeyboardInterrupt:
        print()
        raise


class Conversation:
    """The messages so far.

    Args:
        system: text of a system message, or None.
        drafts: tint accepted draft tokens.

    Attributes:
        replies: the JSON of each.
    """

    def __init__(
        self, model: Model, sampling: SamplingOptions, system: str | None, *, drafts: bool
    ) -> None:
        self._model = model
        self._sampling = sampling
        self._opening: list[Message] = (
            [{"role": "system", "content": system}] if system is not None else []
        )
        self._drafts = drafts
        self.messages = list(self._opening)
        self.replies: list[dict[str, Any]] = []

    def clear(self) -> None:
        self.messages = list(self._opening)

    def say(self, text: str) -> None:
        """Print the reply; what is cut short by Ctrl-C stays in the conversation."""
        self.messages.append({"role": "user", "content": text})
        try:
            pieces = self._reply()
        except ContextFullError as error:
            print(f"{error}\n{_HELP}", file=sys.stderr)
            pieces = []
        reply = "".join(piece.text for piece in pieces)
        if not reply:
            self.messages.pop()
            return
        self.messages.append({"role": "assistant", "content": reply})
        self._conclude(pieces)

    def _reply(self) -> list[Piece]:
        keywords = msgspec.structs.asdict(self._sampling)
        seen: list[Piece] = []
        stream = self._model.stream_chat(self.messages, **keywords)
        with _interruptible() as interrupt, contextlib.closing(stream):  # type: ignore[type-var]
            try:
                for piece in stream:
                    seen.append(piece)
                    show(piece, drafts=self._drafts)
                    interrupt.generating = True
                    if interrupt.wanted:
                        break
            except KeyboardInterrupt:
                interrupt.wanted = True
        print(flush=True)
        if interrupt.wanted:
            print("stopped", file=sys.stderr)
        return seen

    def _conclude(self, pieces: list[Piece]) -> None:
        from slipstream.cli.statistics import statistics_lines

        if pieces[-1].statistics is None:
            return
        self.replies.append(completion_record(pieces))
        for line in statistics_lines(pieces[-1], drawn=drew_seed(self._sampling)):
            print(line, file=sys.stderr)


class _Interrupt:
    """Ctrl-C during a reply: between tokens once it has begun, at once before that.

    Attributes:
        wanted: it was pressed.
        generating: the reply has begun, so that the next token is near.
    """

    def __init__(self) -> None:
        self.wanted = False
        self.generating = False

    def __call__(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self.wanted or not self.generating:
            raise KeyboardInterrupt
        self.wanted = True


@contextlib.contextmanager
def _interruptible() -> Iterator[_Interrupt]:
    interrupt = _Interrupt()
    previous = signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, previous)
