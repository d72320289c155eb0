"""slipstream lab conformance"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from slipstream.cli.output import add_json, print_json, printable, progress_bar
from slipstream.errors import OptionError

if TYPE_CHECKING:
    from slipstream.lab.conformance.outcomes import CheckResult, Conformance

_TIMEOUT_S = 120.0
_MOST_TIMEOUT_S = 86400.0
_MARKS = {"passed": "passed", "failed": "FAILED", "not measurable": "not measurable"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "url", metavar="URL", help="a running server, such as http://127.0.0.1:8080"
    )
    parser.add_argument(
        "--without",
        metavar="URL",
        help="the same server without speculation, where a request cannot switch it off",
    )
    parser.add_argument("--model", metavar="NAME", help="to ask for [the first that it lists]")
    parser.add_argument("--api-key-file", metavar="F", help="file whose first line is the key")
    parser.add_argument(
        "--timeout", metavar="S", type=float, default=_TIMEOUT_S, help="seconds per check [120]"
    )
    parser.add_argument("--out", metavar="F", help="write what was found as JSON")
    add_json(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Exit codes: 0 all passed, 1 one failed, 2 none failed and one could not be measured."""
    import msgspec

    from slipstream.lab.conformance.suite import conformance

    if not 0 < arguments.timeout <= _MOST_TIMEOUT_S:
        given = f"{arguments.timeout:g}"
        raise OptionError("`--timeout` of more than 0 seconds, at most a day", given, "Correct it.")
    out = Path(arguments.out) if arguments.out else None
    if out is not None:
        _write(out, "", mode="a")  # what cannot be written is said before minutes of asking
    with progress_bar("checks") as progress:
        found = conformance(
            arguments.url,
            without=arguments.without or "",
            model=arguments.model or "",
            api_key_file=arguments.api_key_file or "",
            timeout_s=arguments.timeout,
            progress=progress,
        )
    record = {**msgspec.to_builtins(found), "exit_code": found.exit_code}
    print(printable("\n".join(lines(found))))
    if out is not None:
        _write(out, json.dumps(record, ensure_ascii=False, indent=2) + "\n")
    if arguments.json:
        print_json(record)
    return found.exit_code


def _write(path: Path, text: str, mode: str = "w") -> None:
    try:
        with path.open(mode, encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError as problem:
        found = problem.strerror or type(problem).__name__
        raise OptionError(
            "`--out` that can be written", f"{path}: {found}", "Name another."
        ) from None


def lines(found: Conformance) -> Iterator[str]:
    """What the suite found, for reading."""
    yield f"{found.url}: {found.flavour}, model {found.model or 'unknown'}"
    yield f"with speculation: {found.speculation}"
    yield f"without: {found.without}"
    yield ""
    for result in found.results:
        yield from _result_lines(result)
    yield ""
    counts = [f"{found.count('passed')} passed", f"{found.count('failed')} failed"]
    yield f"{', '.join(counts)}, {found.count('not measurable')} not measurable"


def _result_lines(result: CheckResult) -> Iterator[str]:
    drafted = "" if result.drafted is None else f", {result.drafted} tokens drafted"
    compared = f"; compared: {result.compared}" if result.comparison == "passed" else ""
    if result.outcome == "passed":
        yield f"{result.check:14} passed{drafted}{compared}"
        return
    yield f"{result.check:14} {_MARKS[result.outcome]}{drafted}: {result.found}"
    if result.outcome == "failed":
        yield f"{'':14} expected: {result.expected}"
        if result.compared and result.compared != result.found:
            yield f"{'':14} compared: {result.compared}"
        if result.request is not None:
            yield f"{'':14} request:  {json.dumps(result.request, ensure_ascii=False)}"
