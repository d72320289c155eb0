"""slipstream run"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slipstream.cli.flags import with_options
from slipstream.cli.output import Json, print_json, tinted
from slipstream.errors import RequestError
from slipstream.options import ModelOptions, SamplingOptions, SpeculationOptions

if TYPE_CHECKING:
    from slipstream.api import Model, Piece

app = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)

_MOST_PROMPT_BYTES = 64 << 20


def read_prompt(prompt: str | None, file: str | None) -> str:
    """The prompt of ``-p``, ``-f FILE`` or ``-`` (stdin); exactly one of them.

    Raises:
        RequestError: none or two were given, or the file cannot be read as UTF-8 text.
    """
    if (prompt is None) == (file is None):
        found = "neither" if prompt is None else "both"
        raise RequestError("a prompt from -p TEXT or -f FILE", found, "Give one of them.")
    if prompt not in (None, "-"):
        return str(prompt)
    try:
        if prompt == "-" or file == "-":
            data = sys.stdin.buffer.read(_MOST_PROMPT_BYTES + 1)
        else:
            with Path(str(file)).open("rb") as stream:
                data = stream.read(_MOST_PROMPT_BYTES + 1)
    except OSError as problem:
        reason = problem.strerror or "unreadable"
        raise RequestError("a readable prompt file", f"{file}: {reason}", "Check it.") from None
    if len(data) > _MOST_PROMPT_BYTES:
        raise RequestError("a prompt of at most 64 MiB", "more", "Shorten it.")
    try:
        return data.decode()
    except UnicodeDecodeError as problem:
        raise RequestError("UTF-8 text", str(problem), "Convert the file to UTF-8.") from None


def print_pieces(pieces: Iterator[Piece], *, show_drafts: bool) -> list[Piece]:
    """Print the text as it comes; returns the pieces."""
    seen = []
    for piece in pieces:
        seen.append(piece)
        if show_drafts:
            held = sum(len(t.text) for t in piece.tokens) != len(piece.text)
            parts = (
                [(piece.text, False)] if held else [(t.text, t.from_draft) for t in piece.tokens]
            )
            for text, accepted in parts:
                print(tinted(text, accepted=accepted and bool(text)), end="", flush=True)
        else:
            print(piece.text, end="", flush=True)
    print()
    return seen


def completion_record(pieces: list[Piece]) -> dict[str, Any]:
    """The JSON of ``run``: text, ids, finish_reason, stats, and log-probabilities if asked for."""
    tokens = [token for piece in pieces for token in piece.tokens]
    last = pieces[-1]
    assert last.statistics is not None
    record: dict[str, Any] = {
        "text": "".join(piece.text for piece in pieces),
        "ids": [token.id for token in tokens],
        "finish_reason": last.finish_reason,
        "stats": last.statistics.summary(),
    }
    if any(token.logprob is not None for token in tokens):
        record["logprobs"] = [{"id": t.id, "logprob": t.logprob, "top": t.top} for t in tokens]
    return record


def _pieces(model: Model, text: str, template: bool, sampling: SamplingOptions) -> Iterator[Piece]:
    import msgspec

    options = msgspec.structs.asdict(sampling)
    if template:
        return model.stream_chat([{"role": "user", "content": text}], **options)
    return model.generate(text, **options)


@app.command()
@with_options(ModelOptions, SamplingOptions, SpeculationOptions)
def run(
    model_options: ModelOptions,
    sampling_options: SamplingOptions,
    speculation_options: SpeculationOptions,
    prompt: Annotated[str | None, typer.Option("--prompt", "-p", help="Text; - = stdin.")] = None,
    file: Annotated[
        str | None, typer.Option("--file", "-f", help="Prompt file; - = stdin.")
    ] = None,
    template: Annotated[
        bool, typer.Option("--template", help="Send the prompt as a chat message.")
    ] = False,
    show_drafts: Annotated[
        bool, typer.Option("--show-drafts", help="Tint accepted draft tokens.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Generate from a prompt; statistics go to stderr."""
    from slipstream.cli.opening import open_model
    from slipstream.cli.statistics import statistics_lines

    text = read_prompt(prompt, file)
    opened = open_model(model_options, speculation_options)
    pieces = print_pieces(
        _pieces(opened, text, template, sampling_options), show_drafts=show_drafts
    )
    statistics = pieces[-1].statistics
    assert statistics is not None
    for line in statistics_lines(statistics, speculation_options.type):
        print(line, file=sys.stderr)
    if sampling_options.temperature > 0 and sampling_options.seed is None:
        print(f"seed {statistics.seed}", file=sys.stderr)
    if as_json:
        print_json(completion_record(pieces))
