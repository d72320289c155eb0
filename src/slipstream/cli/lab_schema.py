"""slipstream lab schema"""

from __future__ import annotations

import argparse
import json

from slipstream.cli.output import add_json, print_json


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--docs", action="store_true", help="the page docs/lab-manifest.md instead (Markdown)"
    )
    add_json(parser)


def execute(arguments: argparse.Namespace) -> int:
    from slipstream.lab.contract.manifest import schema
    from slipstream.lab.freezing.manifest_page import manifest_page

    if arguments.docs:
        print(manifest_page(), end="")
    elif not arguments.json:
        print(json.dumps(schema(), indent=2, ensure_ascii=False))
    if arguments.json:
        print_json(schema())
    return 0
