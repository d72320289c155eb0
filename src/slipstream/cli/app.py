"""The ``slipstream`` command: a verb is imported only when it runs."""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from slipstream.errors import OperationError, OptionError, SlipstreamError
from slipstream.paths import shown

# verb -> one-line help; the module of `bench rows` is slipstream.cli.bench_rows
VERBS = {
    "pull": "Fetch a model, verify its SHA-256, show its licence.",
    "run": "Generate from a prompt.",
    "chat": "Talk to a model through its own template.",
    "serve": "Answer HTTP clients: OpenAI's, llama.cpp's and Anthropic's endpoints.",
    "inspect": "What a file is, what it offers, what it needs.",
    "explain": "Which kernels would run, and why.",
    "trace": "Recompute a trace's statistics, replay another drafting policy.",
    "bench": "Measure: rows, decode, ops or speculate.",
    "lab": "A verdict per workload, with evidence: init, run, report, compare, gate, conformance.",
}
BENCH_VERBS = {
    "rows": "What a pass of R rows costs.",
    "decode": "Prefill and one-row decoding speed, without drafts.",
    "ops": "A matrix product by type, shape, rows and instruction-set level.",
    "speculate": "Every workload with speculation off and on; the output must be identical.",
}
LAB_VERBS = {
    "init": "Write a commented plan that works as it is.",
    "run": "Freeze a plan's manifest and run it; --dry-run starts nothing.",
    "report": "What the records say: HTML, Markdown and JSON.",
    "compare": "Two builds under one condition inside the few-row range and one outside.",
    "gate": "Exit non-zero unless the verdicts are those asked for.",
    "conformance": "Whether a server answers alike with and without speculation.",
    "schema": "JSON schema of the manifest.",
}
_GROUPS = {"": VERBS, "bench": BENCH_VERBS, "lab": LAB_VERBS}
_ABOUT = {
    "": "Run GGUF language models with speculative decoding, exactly, and see whether it pays.",
    "bench": "Measure; figures hold for this machine and this moment.",
    "lab": "Decide per workload whether speculation pays: plan, manifest, run, gates, verdict.",
}

ENDED_BY_SIGTERM = frozenset({"serve"})
"""Verbs for which SIGTERM is an end that was asked for, also before they handle it themselves."""

MOST_SHOWN = 8000
"""Characters of each of an error's texts: what a user gave, or a program said, may be endless."""

INTERRUPTED = 130  # 128 + SIGINT, as shells report it
WRITE_FAULTS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
PATH_FAULTS = frozenset({errno.ENAMETOOLONG, errno.ELOOP})
BROKEN_PIPE = 141  # 128 + SIGPIPE


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point. Exit codes: a user's mistake 2, a failure around us 1, Ctrl-C 130."""
    _open_missing_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 is no failure
    given = list(sys.argv[1:] if arguments is None else arguments)
    if ENDED_BY_SIGTERM.intersection(given[:1]):
        _end_on_sigterm()
    try:
        code = dispatch(given)
        sys.stdout.flush()
    except SlipstreamError as error:
        code = report(error)
    except MemoryError:
        print("error: not enough memory", file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        code = _interrupted()
    except BrokenPipeError:
        code = BROKEN_PIPE
        _discard_output()
    except OSError as problem:
        if problem.errno in PATH_FAULTS:
            sys.exit(report(_no_path(problem)))
        if problem.errno not in WRITE_FAULTS:
            raise
        code = report(_unwritable(problem))
        _discard_output()
    sys.exit(code)


def _end_on_sigterm() -> None:
    """SIGTERM ends the process where it stands, in success, until the verb handles it itself.

    Nothing is raised: an exception amid the import of an extension module can crash the
    interpreter. An engine process that was started sees its socket close and ends.
    """
    import signal

    def terminated(number: int, frame: object) -> NoReturn:
        del number, frame
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, RuntimeError, ValueError):  # amid a write, or closed
                stream.flush()
        with contextlib.suppress(OSError):
            os.write(2, b"ended before it was ready\n")
        os._exit(0)

    signal.signal(signal.SIGTERM, terminated)


def _open_missing_streams() -> None:
    """A stream that the caller closed reads and writes nothing."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115


def _discard_output() -> None:
    """The interpreter must not flush again into a pipe or file that failed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _unwritable(problem: OSError) -> OperationError:
    found = problem.strerror or type(problem).__name__
    return OperationError("output that can be written", found, "Free space or write elsewhere.")


def _no_path(problem: OSError) -> OptionError:
    """A path that a user gave and that no file can have."""
    found = f"`{shown(str(problem.filename))}`: {problem.strerror}"
    return OptionError("a path that this system has", found, "Correct the path.")


def _interrupted() -> int:
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print("interrupted", file=sys.stderr)
    return INTERRUPTED


def report(error: SlipstreamError) -> int:
    """Print an error the way every verb does; returns its exit code."""
    from slipstream.cli.output import printable

    texts = (error.expected, error.found, error.remedy)
    expected, found, remedy = (printable(shown(text, MOST_SHOWN)) for text in texts)
    print(f"error: expected {expected}", file=sys.stderr)
    print(f"       found    {found}", file=sys.stderr)
    print(f"hint:  {remedy}", file=sys.stderr)
    return error.exit_code


def dispatch(arguments: list[str], group: str = "") -> int:
    """Run the verb that the arguments name; returns the exit code.

    Raises:
        OptionError: an unknown verb, or whatever the verb raises.
    """
    name = f"slipstream {group}".strip()
    verb, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if verb in ("", "-h", "--help"):
        print(_help(group, name), file=sys.stdout if verb else sys.stderr)
        return 0 if verb else 2
    if verb == "--version" and not group:
        print(_version())
        return 0
    if verb in _GROUPS and not group:
        return dispatch(rest, verb)
    if verb not in _GROUPS[group]:
        raise _unknown(verb, group, name)
    return _run(f"{name} {verb}", _GROUPS[group][verb], rest)


def _run(name: str, about: str, arguments: list[str]) -> int:
    from slipstream.cli.parser import Parser

    words = name.split()[1:]
    module: Any = importlib.import_module(f"slipstream.cli.{'_'.join(words)}")
    parser = Parser(name, about)
    module.configure(parser)
    return int(module.execute(parser.parse(arguments)) or 0)


def _help(group: str, name: str) -> str:
    verbs = _GROUPS[group]
    width = max(map(len, verbs)) + 2
    lines = [f"Usage: {name} VERB [OPTIONS]", "", _ABOUT[group], "", "Verbs:"]
    lines += [f"  {verb.ljust(width)}{about}" for verb, about in verbs.items()]
    lines += ["", f"`{name} VERB --help` lists a verb's options."]
    if not group:
        lines += ["`slipstream --version` prints the version."]
    return "\n".join(lines)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"slipstream {version('slipstream')}"
    except PackageNotFoundError:
        return "slipstream (not installed: running from its source)"


def _unknown(verb: str, group: str, name: str) -> OptionError:
    import difflib

    near = difflib.get_close_matches(verb, _GROUPS[group], 1, 0.5)
    hint = f"Did you mean `{name} {near[0]}`?" if near else f"See `{name} --help`."
    return OptionError(f"one of the verbs {', '.join(_GROUPS[group])}", f"`{verb}`", hint)


if __name__ == "__main__":
    main()
