"""slipstream run"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from slipstream.cli.completion import completion_record, print_pieces
from slipstream.cli.flags import add_flags, options
from slipstream.cli.output import add_json, print_json, printable
from slipstream.cli.prompt import add_prompt, read_prompt
from slipstream.cli.trace import add_trace
from slipstream.options import ModelOptions, SamplingOptions, SpeculationOptions

if TYPE_CHECKING:
    from slipstream.api import Model, Piece
    from slipstream.engine.controller import Decision


def configure(parser: argparse.ArgumentParser) -> None:
    add_flags(parser, ModelOptions, SamplingOptions, SpeculationOptions)
    add_prompt(parser)
    parser.add_argument("--template", action="store_true", help="send the prompt as a chat message")
    add_show_drafts(parser)
    add_trace(parser)
    parser.add_argument(
        "--explain-drafts",
        action="store_true",
        help="after the output, a line per round: candidates, rows, accepted, or why none",
    )
    add_json(parser)


def add_show_drafts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--show-drafts",
        action="store_true",
        help="tint accepted draft tokens; in [brackets] where stdout is no terminal",
    )


def execute(arguments: argparse.Namespace) -> None:
    from slipstream.cli.draft_lines import decision_lines
    from slipstream.cli.opening import open_model, require_whole_trace
    from slipstream.cli.statistics import (
        backend_record,
        caveats,
        draft_lines,
        draft_record,
        statistics_lines,
        warn_of_pretence,
    )

    sampling = options(SamplingOptions, arguments)
    speculation = options(SpeculationOptions, arguments)
    model_options = options(ModelOptions, arguments)
    text = read_prompt(arguments)
    model = open_model(model_options, speculation, quiet=arguments.json, trace=arguments.trace)
    warn_of_pretence(speculation)
    decisions: list[Decision] = []
    if arguments.explain_drafts:
        model.on_decision = lambda decision, _: decisions.append(decision)
    pieces = print_pieces(
        _pieces(model, text, arguments.template, sampling), drafts=arguments.show_drafts
    )
    for line in decision_lines(decisions) if arguments.explain_drafts else ():
        print(line, file=sys.stderr)
    for line in statistics_lines(pieces[-1], drawn=drew_seed(sampling)):
        print(line, file=sys.stderr)
    draft_model = model.draft_model(model.speculation)
    for line in (*draft_lines(draft_model), *caveats(model.loaded)):
        print(printable(line), file=sys.stderr)
    if arguments.json:
        record = completion_record(pieces) | backend_record(model.loaded)
        print_json(record | draft_record(draft_model))
    require_whole_trace(model)


def drew_seed(sampling: SamplingOptions) -> bool:
    return sampling.temperature > 0 and sampling.seed is None


def _pieces(model: Model, text: str, template: bool, sampling: SamplingOptions) -> Iterator[Piece]:
    keywords = msgspec.structs.asdict(sampling)
    if template:
        return model.stream_chat([{"role": "user", "content": text}], **keywords)
    return model.generate(text, **keywords)
