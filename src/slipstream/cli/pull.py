"""slipstream pull"""

from __future__ import annotations

import argparse

from slipstream.cli.output import add_json, megabytes, print_json, printable, progress_bar


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", metavar="MODEL", help="catalogue name, or owner/repo:file[@revision]"
    )
    parser.add_argument("--token", metavar="TEXT", help="hub token for gated files [$HF_TOKEN]")
    add_json(parser)


def execute(arguments: argparse.Namespace) -> None:
    from slipstream.catalog import pull

    with progress_bar() as progress:
        pulled = pull(arguments.model, token=arguments.token, progress=progress)
    for refusal in pulled.refusals:
        print(printable(f"passed over {refusal.source}: {refusal.reason}"))
    checked = "verified" if pulled.digest_known else "computed (the source announces none)"
    print(printable(f"{pulled.description}\n{megabytes(pulled.bytes)} from {pulled.source}"))
    print(f"sha256 {pulled.sha256} ({checked})")
    print(printable(f"licence: {pulled.licence}  terms: {pulled.terms}"))
    print(pulled.path)
    if arguments.json:
        print_json(pulled.to_mapping())
