"""What one sitting of speculation.py measures, section by section."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from peer_grid import GRID, PLAIN, Setting, command, setting
from server_worker import Answer, Server, ServerEndedError
from workers import HERE, Worker

from slipstream.measure.interleave import mirrored_order
from slipstream.measure.workload import WorkloadPrompt, read_workloads

NEVER_SLOWER_TASKS: Final = (
    "code_edit",
    "csv_to_json",
    "code",
    "chat",
    "reasoning",
    "prose",
    "random",
)
SET_TASKS: Final = ("code", "chat", "reasoning", "code_edit", "csv_to_json")
PEER_TASKS: Final = ("code_edit", "csv_to_json")
AUTO, SIMPLE, CHAIN = "auto", "draft-simple", "draft-simple chain"
OWN: Final = "slipstream"
FINALISTS: Final = 3
"""Settings of a peer that are tried on all prompts of a task."""
DRAFT_VOCAB: Final = 32768
"""Of the draft model of our own conditions: its head is a third of a pass at 152 k ids."""

Conditions = dict[str, dict[str, Any]]
Prompts = Mapping[str, Sequence[WorkloadPrompt]]


@dataclass(frozen=True)
class Sitting:
    """What all sections of a run share.

    Attributes:
        model, draft: files; without a draft model the conditions that need one are left out.
        servers: peer -> its llama-server; a peer without one is not measured.
        prompts: most of each task, in the order of the file.
        rounds: interleaved pairs of the section never_slower; the others take fewer.
        quick: a smoke test: little of everything, and no figure.
    """

    model: str
    draft: str | None
    servers: Mapping[str, str]
    workloads: Path
    threads: int
    context: int
    backend: str
    tokens: int
    prompts: int
    rounds: int
    set_rounds: int
    duel_rounds: int
    quick: bool = False

    def read(self, tasks: Sequence[str]) -> Prompts:
        there = [t for t in tasks if not self.quick or (self.workloads / f"{t}.jsonl").exists()]
        groups = read_workloads(self.workloads, there)
        return {task: prompts[: self.prompts] for task, prompts in groups.items()}


def own_conditions(sitting: Sitting) -> Conditions:
    """``auto``, and a draft model alone: with trees and with chains only."""
    if sitting.quick:
        return {AUTO: {"type": ["ngram-simple"], "ngram_simple_size_n": 2}}
    if sitting.draft is None:
        return {AUTO: {"type": [AUTO]}}
    drafting = {"draft_model": sitting.draft, "draft_vocab": DRAFT_VOCAB}
    simple = {"type": [SIMPLE], **drafting}
    return {
        AUTO: {"type": [AUTO], **drafting},
        SIMPLE: simple,
        CHAIN: {**simple, "draft_branches": 1},
    }


def own_worker(sitting: Sitting) -> Worker:
    options = ["--threads", str(sitting.threads), "--context", str(sitting.context)]
    options += ["--backend", sitting.backend]
    script = str(HERE / "completion_worker.py")
    return Worker(OWN, [sys.executable, script, sitting.model, *options])


def _request(prompt: WorkloadPrompt, sitting: Sitting) -> dict[str, Any]:
    return {"prompt": msgspec.to_builtins(prompt), "tokens": sitting.tokens}


def _progress() -> None:
    print(".", end="", file=sys.stderr, flush=True)


def _pairs(
    sitting: Sitting,
    tasks: Sequence[str],
    conditions: Conditions,
    rounds: int,
    earlier: Mapping[str, Any],
) -> Iterator[dict[str, Any]]:
    """The record so far after every prompt: prompt -> its samples, interleaved in one process.

    Args:
        earlier: the record of a run of the same program that was stopped, or nothing; its prompts
            stand where it measured the same.
    """
    compared = {"none": {"type": ["none"]}, **conditions}
    same = {
        "conditions": {name: _recorded(options) for name, options in compared.items()},
        "rounds": rounds,
        "tokens": sitting.tokens,
    }
    kept = all(earlier.get(key) == value for key, value in same.items())
    samples: dict[str, Any] = dict(earlier["prompts"]) if kept else {}
    with own_worker(sitting) as worker:
        engine = worker.ask(op="identity")
        for task, prompts in sitting.read(tasks).items():
            for prompt in prompts:
                if prompt.id in samples:
                    continue
                wanted = _request(prompt, sitting)
                answer = worker.ask(op="pairs", conditions=compared, rounds=rounds, **wanted)
                samples[prompt.id] = {"task": task, "samples": answer["samples"]}
                _progress()
                yield {"engines": {OWN: engine}, **same, "prompts": samples}


def _recorded(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as a record keeps them: of a draft model its file's name, without this machine's."""
    draft = options.get("draft_model")
    return {**options, **({"draft_model": Path(draft).name} if draft else {})}


def never_slower(sitting: Sitting, earlier: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """``auto`` against plain on every prompt; ``earlier`` as in ``sets``."""
    auto = {AUTO: own_conditions(sitting)[AUTO]}
    yield from _pairs(sitting, NEVER_SLOWER_TASKS, auto, sitting.rounds, earlier)


def sets(sitting: Sitting, earlier: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A draft model alone, with trees and with chains; ``auto`` is in ``never_slower``.

    Args:
        earlier: the record of a run of the same program that was stopped, or nothing.
    """
    made = own_conditions(sitting)
    alone = {name: made[name] for name in (SIMPLE, CHAIN) if name in made}
    yield from _pairs(sitting, SET_TASKS, alone or made, sitting.set_rounds, earlier)


def _settings(peer: str, sitting: Sitting) -> list[Setting]:
    usable = [s for s in GRID[peer] if sitting.draft is not None or not s.drafts]
    return usable[:2] if sitting.quick else usable


class Peer:
    """A peer's server under one setting; one that learns over requests starts anew for each."""

    def __init__(self, peer: str, chosen: Setting, sitting: Sitting) -> None:
        self._name = f"{peer} {chosen.name}"
        self._remembers = chosen.remembers
        self._tokens = sitting.tokens
        self._command = command(
            peer,
            sitting.servers[peer],
            chosen,
            model=sitting.model,
            draft=sitting.draft,
            threads=sitting.threads,
            context=sitting.context,
        )
        self._server: Server | None = None

    def complete(self, ids: list[int]) -> Answer:
        """As cold as our own outputs."""
        if self._remembers:
            self.close()
        if self._server is None:
            self._server = Server(self._name, self._command)
        return self._server.complete(ids, self._tokens)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _token_ids(sitting: Sitting, groups: Prompts) -> dict[str, list[int]]:
    """By our own tokenizer and template, so that all engines read the same ids."""
    with own_worker(sitting) as worker:
        return {
            prompt.id: worker.ask(op="ids", **_request(prompt, sitting))["ids"]
            for prompts in groups.values()
            for prompt in prompts
        }


def grid(sitting: Sitting, earlier: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every setting of every peer on the first prompt of each task, the best ones on all.

    One output each; one server runs at a time.

    Args:
        earlier: the record of a run that was stopped, or nothing: its outputs stand.
    """
    groups = sitting.read(PEER_TASKS)
    ids = _token_ids(sitting, groups)
    kept = earlier.get("peers", {}) if earlier.get("tokens") == sitting.tokens else {}
    found: dict[str, Any] = {peer: dict(kept.get(peer, {})) for peer in sitting.servers}
    for peer in sitting.servers:
        for chosen, wanted in _rounds(peer, sitting, groups, found[peer]):
            before = found[peer].get(chosen.name)
            found[peer][chosen.name] = _setting(peer, chosen, sitting, wanted, ids, before)
            _progress()
            yield {"tokens": sitting.tokens, "finalists": FINALISTS, "peers": found}


def _rounds(
    peer: str, sitting: Sitting, groups: Prompts, found: Mapping[str, Any]
) -> Iterator[tuple[Setting, Prompts]]:
    """All settings with the first prompts, then those that did best, and plain, with all."""
    first = {task: prompts[:1] for task, prompts in groups.items()}
    for chosen in _settings(peer, sitting):
        yield chosen, first
    for task, prompts in groups.items():
        for name in dict.fromkeys([*_ranked(found, task)[:FINALISTS], PLAIN]):
            if name in found and found[name]["failed"] is None:
                yield setting(peer, name), {task: prompts}


def _setting(
    peer: str,
    chosen: Setting,
    sitting: Sitting,
    groups: Prompts,
    ids: Mapping[str, list[int]],
    before: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Outputs by prompt, or why there are none; what remembers starts anew for each prompt."""
    outputs: dict[str, Any] = dict(before["outputs"]) if before else {}
    record = {"flags": list(chosen.flags), "outputs": outputs, "failed": None}
    if before and (before["failed"] or all(p.id in outputs for g in groups.values() for p in g)):
        return dict(before)
    try:
        with Peer(peer, chosen, sitting) as server:
            for task, prompts in groups.items():
                for prompt in prompts:
                    if prompt.id in outputs:
                        continue
                    answer = server.complete(ids[prompt.id])
                    outputs[prompt.id] = {"task": task, **_of(answer)}
    except ServerEndedError as problem:
        record["failed"] = _reason(problem, sitting)
    return record


def _of(answer: Answer) -> dict[str, Any]:
    """Without the text, which is kept as a digest to be compared."""
    digest = hashlib.sha256(answer.text.encode()).hexdigest()[:16]
    numbers = {key: value for key, value in asdict(answer).items() if key != "text"}
    return {**numbers, "tok_s": answer.tok_s, "text_sha256": digest}


def _reason(problem: Exception, sitting: Sitting) -> str:
    """What a server said at last, without the paths of this machine."""
    text = str(problem)
    for path in filter(None, (sitting.model, sitting.draft, *sitting.servers.values())):
        text = text.replace(path, Path(path).name)
    return "\n".join(text.splitlines()[-3:])


def _ranked(settings: Mapping[str, Any], task: str) -> list[str]:
    """The fastest first: those with most prompts of the task, then by tokens over seconds."""
    rates: dict[str, tuple[int, float]] = {}
    for name, record in settings.items():
        outputs = [o for o in record["outputs"].values() if o["task"] == task]
        seconds = sum(o["decode_s"] for o in outputs)
        if record["failed"] is None and seconds > 0:
            rates[name] = len(outputs), sum(o["tokens"] - 1 for o in outputs) / seconds
    return sorted(rates, key=lambda name: rates[name], reverse=True)


def best_setting(settings: Mapping[str, Any], task: str) -> str | None:
    """The fastest over a task's prompts; plain decoding counts too."""
    return next(iter(_ranked(settings, task)), None)


def duel(sitting: Sitting, measured: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Our ``auto`` and each peer's best setting in turns; all but the one asked are stopped.

    Args:
        measured: the record of ``grid``.
    """
    groups = sitting.read(PEER_TASKS)
    record: dict[str, Any] = {"tokens": sitting.tokens, "tasks": {}}
    options = own_conditions(sitting)[AUTO]
    for task, prompts in groups.items():
        best = {
            peer: name
            for peer in sitting.servers
            if (name := best_setting(measured["peers"].get(peer, {}), task)) is not None
        }
        samples = _duel(sitting, prompts, options, best)
        record["tasks"][task] = {"best": best, "prompts": samples}
        yield record


def _duel(
    sitting: Sitting,
    prompts: Sequence[WorkloadPrompt],
    options: Mapping[str, Any],
    best: Mapping[str, str],
) -> dict[str, Any]:
    """Prompt -> engine -> tokens per second, in the order of the rounds."""
    rates: dict[str, Any] = {}
    with ExitStack() as stack:
        own = stack.enter_context(own_worker(sitting))
        servers = {
            peer: stack.enter_context(Peer(peer, setting(peer, name), sitting))
            for peer, name in best.items()
        }
        for prompt in prompts:
            wanted = _request(prompt, sitting)
            ids = own.ask(op="ids", **wanted)["ids"]
            by_engine: dict[str, list[float]] = {name: [] for name in (OWN, *servers)}
            for _, name in mirrored_order(list(by_engine), sitting.duel_rounds):
                if name == OWN:
                    taken = own.ask(op="one", options=options, **wanted)["sample"]
                    seconds = max(taken["decode_s"], 1e-9)
                    by_engine[name].append((taken["emitted"] - 1) / seconds)
                else:
                    by_engine[name].append(servers[name].complete(ids).tok_s)
                _progress()
            rates[prompt.id] = by_engine
    return rates


SECTIONS: Final = ("never_slower", "sets", "grid", "duel")
