"""slipstream bench decode"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from slipstream.cli.flags import add_flags, options
from slipstream.cli.identity import identity
from slipstream.cli.numbers import whole_number
from slipstream.cli.output import add_json, print_json, progress_bar
from slipstream.cli.statistics import precision_line
from slipstream.options import ModelOptions


def configure(parser: argparse.ArgumentParser) -> None:
    add_flags(parser, ModelOptions)
    parser.add_argument("--prompt", metavar="N", default="128", help="prompt tokens [128]")
    parser.add_argument("--count", metavar="N", default="32", help="tokens to decode [32]")
    parser.add_argument("--rounds", metavar="N", default="5", help="timed rounds [5]")
    add_json(parser)


def execute(arguments: argparse.Namespace) -> None:
    from slipstream.cli.opening import open_program
    from slipstream.measure.rows import decode_rates

    model_options = options(ModelOptions, arguments)
    prompt = whole_number("--prompt", arguments.prompt)
    count = whole_number("--count", arguments.count)
    rounds = whole_number("--rounds", arguments.rounds)
    loaded = open_program(model_options, quiet=arguments.json)
    with progress_bar("rounds") as progress:
        rates = decode_rates(loaded, prompt=prompt, count=count, rounds=rounds, progress=progress)
    print(f"prefill of {prompt} tokens: {rates.prefill_tok_s:.1f} tokens/s")
    print(f"decode of {count} tokens: {rates.decode_tok_s:.1f} tokens/s")
    print(f"medians of {rounds} rounds; largest - smallest = {100 * rates.spread:.0f} % of decode")
    print(precision_line(loaded.backend.precision))
    if arguments.json:
        measured = {"prompt": prompt, "count": count, "rounds": rounds, **asdict(rates)}
        print_json({**identity(model_options, loaded), **measured})
