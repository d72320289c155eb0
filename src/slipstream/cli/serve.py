"""slipstream serve"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from slipstream.cli.flags import add_flags, in_flags, options
from slipstream.cli.llama_aliases import add_aliases, settle
from slipstream.cli.output import add_json, print_json, printable
from slipstream.options import (
    METHODS,
    EngineOptions,
    ModelOptions,
    SamplingOptions,
    SpeculationOptions,
)
from slipstream.server_options import ServerOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from slipstream.server.auth import Keys
    from slipstream.server.engine_process import EngineProcess
    from slipstream.server.lifecycle import Serving
    from slipstream.server.plan import Plan
    from slipstream.server.service import Rules

# an output of a server ends by itself; the context bounds it
DEFAULTS = {"parallel": 4, "max_tokens": -1}


def configure(parser: argparse.ArgumentParser) -> None:
    structs = (ServerOptions, ModelOptions, EngineOptions, SamplingOptions, SpeculationOptions)
    add_flags(parser, *structs, defaults=DEFAULTS)
    add_json(parser)
    add_aliases(parser)


def execute(arguments: argparse.Namespace) -> int:
    from slipstream.cli.opening import fetch_if_wanted
    from slipstream.cli.statistics import warn_of_pretence
    from slipstream.server.auth import require_safe_address
    from slipstream.server.engine_process import EngineProcess
    from slipstream.server.lifecycle import listening
    from slipstream.server.offers import offered
    from slipstream.server.plan import Plan

    for line in settle(arguments, DEFAULTS):
        print(line, file=sys.stderr)
    server = options(ServerOptions, arguments)
    # a request may choose methods that ``--spec`` does not name, so their options are read
    speculation = options(SpeculationOptions, arguments, others=METHODS)
    plan = Plan(
        model=options(ModelOptions, arguments),
        engine=options(EngineOptions, arguments),
        speculation=speculation,
        queue=server.queue,
    )
    sampling = options(SamplingOptions, arguments)
    with in_flags(SpeculationOptions):
        offered(speculation)  # a mistake is told before the model loads
    with in_flags(ServerOptions):
        require_safe_address(server)
        keys, rules = _keys(server), _rules(server)
    for model in filter(None, (plan.model.model, speculation.draft_model)):
        fetch_if_wanted(model)
    warn_of_pretence(speculation)
    with listening(server) as bound, EngineProcess(plan) as process:
        serving = _opened(process, plan, sampling, server, keys, rules, quiet=arguments.json)
        return _run(serving, bound, as_json=arguments.json)


def _run(serving: Serving, bound: socket.socket, *, as_json: bool) -> int:
    from slipstream.server.lifecycle import run

    return run(serving, bound, _announcer(serving, bound, as_json=as_json))


def _keys(server: ServerOptions) -> Keys:
    from slipstream.server.auth import Keys, key_warnings, read_keys

    if server.api_key_file is None:
        return Keys()
    keys = read_keys(server.api_key_file)
    for warning in key_warnings(server.api_key_file):
        print(f"warning: {warning}", file=sys.stderr)
    return keys


def _rules(server: ServerOptions) -> Rules | None:
    """The profile, or None."""
    from slipstream.server.profile import Profile

    if server.profile is None:
        return None
    profile = Profile.load(server.profile)
    if not profile:
        print("warning: the profile is empty: it drafts nothing", file=sys.stderr)
    return profile


def _opened(
    process: EngineProcess,
    plan: Plan,
    sampling: SamplingOptions,
    server: ServerOptions,
    keys: Keys,
    rules: Rules | None,
    *,
    quiet: bool,
) -> Serving:
    """The model's texts, read while the other process loads its weights."""
    from slipstream.cli.opening import loading
    from slipstream.server.lifecycle import Serving
    from slipstream.server.meters import Meters
    from slipstream.server.prompts import open_text

    text = open_text(plan.model.model)
    with loading(quiet) as progress:
        ready = process.wait_until_ready(progress)
    if rules is not None:
        rules.require_offered(ready.methods)
    name = server.alias or PurePath(plan.model.model).name.removesuffix(".gguf")
    meters = Meters(ready.speculation.methods or (), ready.facts["parallel"])
    return Serving(process, ready, text, sampling, server, keys, name, meters, rules)


def _announcer(serving: Serving, bound: socket.socket, *, as_json: bool) -> Callable[[], None]:
    def announce() -> None:
        if as_json:
            print_json(ready_record(serving, bound))
            return
        for line in summary_lines(serving, bound):
            print(printable(line))
        print("ready", flush=True)

    return announce


def ready_record(serving: Serving, bound: socket.socket) -> dict[str, Any]:
    """The JSON line that says that requests are answered."""
    from slipstream.server.lifecycle import url_of
    from slipstream.server.method_choice import echo

    host, port = bound.getsockname()[:2]
    facts = serving.ready.facts
    return {
        "ready": True,
        "url": url_of(bound),
        "host": host,
        "port": port,
        "model": serving.name,
        "context": facts["context"],
        "parallel": facts["parallel"],
        "keys": len(serving.keys),
        "speculative": echo(serving.ready.speculation, serving.ready.methods),
        "methods": serving.ready.methods,
        "facts": facts,
        "pid": os.getpid(),
        "engine_pid": serving.process.process.pid,
    }


def summary_lines(serving: Serving, bound: socket.socket) -> list[str]:
    """What a user wants to know of a server that is ready."""
    from slipstream.server.lifecycle import url_of
    from slipstream.server.method_choice import echo

    ready, url = serving.ready, url_of(bound)
    facts = ready.facts
    offered = [name for name, entry in ready.methods.items() if entry["offered"]]
    chosen = echo(ready.speculation)["type"]
    varying = [] if facts["exact"] is True else [f"exact: {facts['exact']}"]
    return [
        f"{serving.name} ({facts['architecture']}, {facts['backend']} {facts['isa']}, "
        f"{facts['threads'] or 1} threads) on {url}",
        f"{facts['parallel']} sequences at a time of {facts['context']} tokens each, "
        f"{serving.options.queue} more may wait",
        f"drafting: {chosen}; a request may choose {', '.join(offered)}",
        *varying,
        *_access_lines(serving),
        f"chat: open {url} in a browser",
        f"try it: {example(serving, url)}",
    ]


def _access_lines(serving: Serving) -> list[str]:
    if serving.keys:
        return [f"API keys: {len(serving.keys)}"]
    open_to = "anyone who reaches it" if serving.options.allow_public else "this machine only"
    scope = serving.ready.speculation.scope
    shared = ["drafters learn across all sessions (--draft-scope all)"] if scope == "all" else []
    return [f"no API key: for {open_to}", *shared]


def example(serving: Serving, url: str) -> str:
    """A command that tries the server."""
    from slipstream.errors import TemplateError

    key = " -H 'Authorization: Bearer KEY'" if serving.keys else ""
    kind = " -H 'Content-Type: application/json'"
    if isinstance(serving.text.template, TemplateError):
        body, path = '{"prompt": "Once upon a time", "max_tokens": 32}', "/v1/completions"
    else:
        body = '{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 64}'
        path = "/v1/chat/completions"
    return f"curl {url}{path}{key}{kind} -d '{body}'"
