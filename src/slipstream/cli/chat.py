"""slipstream chat"""

from __future__ import annotations

import sys
from typing import Annotated

import msgspec
import typer

from slipstream.cli.flags import with_options
from slipstream.cli.output import Json, print_json
from slipstream.cli.run import completion_record, print_pieces
from slipstream.errors import ContextFullError
from slipstream.options import ModelOptions, SamplingOptions, SpeculationOptions

app = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)

_HELP = "/clear forgets the conversation, /exit or Ctrl-D ends it"


def _read() -> str | None:
    try:
        return input("> " if sys.stdin.isatty() else "")
    except EOFError:
        return None


@app.command()
@with_options(ModelOptions, SamplingOptions, SpeculationOptions)
def chat(
    model_options: ModelOptions,
    sampling_options: SamplingOptions,
    speculation_options: SpeculationOptions,
    system: Annotated[str | None, typer.Option(help="System message.")] = None,
    show_drafts: Annotated[
        bool, typer.Option("--show-drafts", help="Tint accepted draft tokens.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Talk to a model with its own template."""
    from slipstream.cli.opening import open_model
    from slipstream.cli.statistics import statistics_lines

    opened = open_model(model_options, speculation_options)
    opening = [{"role": "system", "content": system}] if system else []
    messages = list(opening)
    print(_HELP, file=sys.stderr)
    replies = []
    while (text := _read()) is not None and text.strip() != "/exit":
        if text.strip() == "/clear":
            messages = list(opening)
            continue
        if not text.strip():
            continue
        messages.append({"role": "user", "content": text})
        try:
            pieces = print_pieces(
                opened.stream_chat(messages, **msgspec.structs.asdict(sampling_options)),
                show_drafts=show_drafts,
            )
        except ContextFullError as error:
            print(f"{error}\n{_HELP}", file=sys.stderr)
            messages.pop()
            continue
        replies.append(completion_record(pieces))
        messages.append({"role": "assistant", "content": replies[-1]["text"]})
        assert pieces[-1].statistics is not None
        for line in statistics_lines(pieces[-1].statistics, speculation_options.type):
            print(line, file=sys.stderr)
    if as_json:
        print_json({"replies": replies})
