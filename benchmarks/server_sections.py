"""What one sitting of server.py measures, section by section.

A sitting is that of speculation.py. ``rounds`` are those of ``streams`` and ``overhead``,
``duel_rounds`` those of ``single`` and ``editing``, ``tokens`` those of ``editing``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec
from contestants import Contestant, Llama, Own
from http_exchange import BrokenReplyError
from peer_grid import PLAIN
from peer_grid import setting as drafting_setting
from server_grid import PEER, STREAMS, Setting, best, command, named, settings
from server_worker import ServerEndedError
from speculation_sections import DRAFT_VOCAB, OWN, Sitting, best_setting, own_worker
from speculation_sections import grid as drafting_grid
from stream_timing import Streamed, digest

from slipstream.measure.interleave import mirrored_order

SINGLE_TASKS: Final = ("chat", "code_edit", "prose")
EDITING_TASKS: Final = ("code_edit",)
STREAM_TASKS: Final = ("chat", "reasoning", "prose")
SINGLE_TOKENS, STREAM_TOKENS, GRID_TOKENS, WARM_TOKENS = 96, 64, 48, 4
MANY: Final = tuple(number for number in STREAMS if number > 1)

Section = Iterator[dict[str, Any]]
Record = Mapping[str, Any]
Ids = dict[str, list[int]]


def _progress() -> None:
    print(".", end="", file=sys.stderr, flush=True)


def _length(sitting: Sitting, tokens: int) -> int:
    return min(sitting.tokens, tokens) if sitting.quick else tokens


def _same(earlier: Record, **parameters: Any) -> bool:
    """Whether a record that was stopped measured what is measured now."""
    return all(earlier.get(name) == value for name, value in parameters.items())


def token_ids(sitting: Sitting, tasks: Sequence[str]) -> dict[str, Ids]:
    """Task -> prompt -> its ids by our own tokenizer and template: all engines read the same."""
    with own_worker(sitting) as worker:
        return {
            task: {
                prompt.id: worker.ask(op="ids", prompt=msgspec.to_builtins(prompt))["ids"]
                for prompt in prompts
            }
            for task, prompts in sitting.read(tasks).items()
        }


def stream_prompts(sitting: Sitting, most: int) -> list[list[int]]:
    """Prompts for streams that run at once, one task after the other."""
    groups = [list(ids.values()) for ids in token_ids(sitting, STREAM_TASKS).values()]
    mixed = [ids for row in zip(*groups, strict=False) for ids in row]
    return list(islice(cycle(mixed), most))


def own_server(sitting: Sitting, slots: int, *, drafting: bool = False) -> Own:
    """Ours; its requests draft as ``auto`` does, or not at all."""
    flags = ["--parallel", str(slots), "--context", str(sitting.context)]
    flags += ["--backend", sitting.backend]
    if sitting.backend == "cpu":
        flags += ["--threads", str(sitting.threads)]
    if drafting and sitting.draft is not None:
        flags += ["--spec", "auto", "--draft-model", sitting.draft]
        flags += ["--draft-vocab", str(DRAFT_VOCAB)]
    return Own(sitting.model, flags, {"type": "auto" if drafting else "none"})


def peer_server(sitting: Sitting, chosen: Setting, drafting: str = PLAIN) -> Llama:
    """llama-server under a setting, and under one of drafting."""
    how = None if drafting == PLAIN else drafting_setting(PEER, drafting)
    words = command(
        sitting.servers[PEER],
        chosen,
        model=sitting.model,
        threads=sitting.threads,
        context=sitting.context,
        draft=sitting.draft,
        drafting=how,
    )
    return Llama(words, fresh=how is not None and how.remembers)


def grid(sitting: Sitting, earlier: Record) -> Section:
    """llama-server under every setting, for each number of streams; one run each.

    Args:
        earlier: the record of a run that was stopped, or nothing: its settings stand.
    """
    tokens = _length(sitting, GRID_TOKENS)
    same = {"tokens": tokens, "threads": sitting.threads, "context": sitting.context}
    kept = earlier.get("streams", {}) if _same(earlier, **same) else {}
    found: dict[str, Any] = {str(n): dict(kept.get(str(n), {})) for n in STREAMS}
    prompts = stream_prompts(sitting, max(STREAMS))
    for number in STREAMS:
        every = settings(number)
        for chosen in every[:2] if sitting.quick else every:
            if chosen.name not in found[str(number)]:
                record = _tried(sitting, chosen, prompts[:number], tokens)
                found[str(number)][chosen.name] = record
                _progress()
                yield {**same, "streams": found}
    yield {**same, "streams": found}


def _tried(
    sitting: Sitting, chosen: Setting, prompts: Sequence[list[int]], tokens: int
) -> dict[str, Any]:
    try:
        with peer_server(sitting, chosen) as server:
            server.stream(prompts, WARM_TOKENS)
            taken = server.stream(prompts, tokens)
    except (ServerEndedError, BrokenReplyError, TimeoutError) as problem:
        return {"flags": chosen.flags, "failed": _reason(problem, sitting), "tok_s": 0.0}
    return {"flags": chosen.flags, "failed": None, **together(taken)}


def _reason(problem: Exception, sitting: Sitting) -> str:
    """What a server said at last, without the paths of this machine."""
    text = str(problem) or type(problem).__name__
    for path in filter(None, (sitting.model, sitting.draft, *sitting.servers.values())):
        text = text.replace(path, Path(path).name)
    return "\n".join(text.splitlines()[-3:])


def together(taken: Sequence[Streamed]) -> dict[str, Any]:
    """Streams that ran at once, as one sample."""
    whole = max(stream.whole_s for stream in taken)
    tokens = sum(stream.tokens for stream in taken)
    first = median(stream.first_s for stream in taken)
    return {"tok_s": tokens / whole, "first_s": first, "whole_s": whole, "tokens": tokens}


def _best_for(streams: int, measured: Record) -> Setting:
    """
    Raises:
        SystemExit: no setting of the grid ran.
    """
    name = best(measured["grid"]["streams"].get(str(streams), {}))
    if name is None:
        raise SystemExit(f"no setting of llama-server ran {streams} streams: see the grid")
    return named(streams, name)


def _duel(
    sitting: Sitting,
    tasks: Sequence[str],
    tokens: int,
    contestants: Mapping[str, Contestant],
    samples: dict[str, Any],
) -> Iterator[None]:
    """Every prompt by each contestant in turns; after a prompt its samples are in ``samples``."""
    for task, prompts in token_ids(sitting, tasks).items():
        for key, ids in prompts.items():
            if key in samples:
                continue
            taken: dict[str, list[dict[str, Any]]] = {name: [] for name in contestants}
            for contestant in contestants.values():
                contestant.stream([ids], WARM_TOKENS)
            for _, name in mirrored_order(list(contestants), sitting.duel_rounds):
                (stream,) = contestants[name].stream([ids], tokens)
                taken[name].append(stream.plain())
                _progress()
            samples[key] = {"task": task, "samples": taken}
            yield


def single(sitting: Sitting, measured: Record, earlier: Record) -> Section:
    """One stream without drafts: time to the first token, and tokens per second.

    Args:
        measured: the record of ``grid`` within.
        earlier: of this section in a run of the same program that was stopped, or nothing.
    """
    chosen, tokens = _best_for(1, measured), _length(sitting, SINGLE_TOKENS)
    same = {"tokens": tokens, "rounds": sitting.duel_rounds, "best": chosen.name}
    samples = dict(earlier["prompts"]) if _same(earlier, **same) else {}
    with ExitStack() as stack:
        contestants = {
            OWN: stack.enter_context(own_server(sitting, 1)),
            PEER: stack.enter_context(peer_server(sitting, chosen)),
        }
        for _ in _duel(sitting, SINGLE_TASKS, tokens, contestants, samples):
            yield {**same, "prompts": samples}


def drafting(sitting: Sitting, known: Record, earlier: Record) -> Section:
    """llama-server's settings of drafting, unless speculation.py has measured them.

    Args:
        known: what speculation.py measured.
    """
    if "grid" in known:
        yield {"from": "speculation", "peers": known["grid"]["peers"]}
    else:
        yield from drafting_grid(sitting, earlier)


def editing(sitting: Sitting, measured: Record, earlier: Record) -> Section:
    """One stream of code editing: ours with ``auto``, llama-server's with its best drafting.

    Args:
        measured: the records of ``grid`` and ``drafting`` within; ``earlier`` as in ``single``.
    """
    name = best_setting(measured["drafting"]["peers"].get(PEER, {}), EDITING_TASKS[0])
    if name is None:
        raise SystemExit("no drafting setting of llama-server ran: see the section drafting")
    chosen = _best_for(1, measured)
    same = {"tokens": sitting.tokens, "rounds": sitting.duel_rounds}
    same |= {"best": f"{name}; {chosen.name}", "draft_model": sitting.draft is not None}
    samples = dict(earlier["prompts"]) if _same(earlier, **same) else {}
    with ExitStack() as stack:
        contestants = {
            OWN: stack.enter_context(own_server(sitting, 1, drafting=True)),
            PEER: stack.enter_context(peer_server(sitting, chosen, name)),
        }
        for _ in _duel(sitting, EDITING_TASKS, sitting.tokens, contestants, samples):
            yield {**same, "prompts": samples}


def streams(sitting: Sitting, measured: Record, earlier: Record) -> Section:
    """Several streams at once without drafts: tokens of all over the time of all."""
    tokens = _length(sitting, STREAM_TOKENS)
    chosen = {str(number): _best_for(number, measured) for number in MANY}
    same = {"tokens": tokens, "rounds": sitting.rounds}
    same |= {"best": {number: setting.name for number, setting in chosen.items()}}
    found = dict(earlier["streams"]) if _same(earlier, **same) else {}
    prompts = stream_prompts(sitting, max(MANY))
    for number in MANY:
        if str(number) not in found:
            found[str(number)] = _many(
                sitting, prompts[:number], chosen[str(number)], tokens, sitting.rounds
            )
            yield {**same, "streams": found}
    yield {**same, "streams": found}


def _many(
    sitting: Sitting, prompts: Sequence[list[int]], chosen: Setting, tokens: int, rounds: int
) -> dict[str, Any]:
    taken: dict[str, list[dict[str, Any]]] = {OWN: [], PEER: []}
    with own_server(sitting, len(prompts)) as own, peer_server(sitting, chosen) as peer:
        contestants = {OWN: own, PEER: peer}
        for contestant in contestants.values():
            contestant.stream(prompts, WARM_TOKENS)
        for _, name in mirrored_order(list(contestants), rounds):
            taken[name].append(together(contestants[name].stream(prompts, tokens)))
            _progress()
    return taken


def overhead(sitting: Sitting, earlier: Record) -> Section:
    """The same plain output by the engine in its own process and by the server, in turns.

    Args:
        earlier: as in ``single``.
    """
    tokens = _length(sitting, SINGLE_TOKENS)
    same = {"tokens": tokens, "rounds": sitting.rounds}
    samples = dict(earlier["prompts"]) if _same(earlier, **same) else {}
    every = token_ids(sitting, STREAM_TASKS)
    with own_worker(sitting) as worker, own_server(sitting, 1) as server:

        def engine(ids: list[int], length: int) -> dict[str, Any]:
            answer = worker.ask(op="timed", ids=ids, tokens=length)
            text = answer.pop("text")
            return {**answer, "text_sha256": digest(text)}

        def through(ids: list[int], length: int) -> dict[str, Any]:
            return server.stream([ids], length)[0].plain()

        asked = {"engine": engine, "server": through}
        for task, prompts in every.items():
            for key, ids in islice(prompts.items(), 1):
                if key in samples:
                    continue
                taken: dict[str, list[dict[str, Any]]] = {name: [] for name in asked}
                for ask in asked.values():
                    ask(ids, WARM_TOKENS)
                for _, name in mirrored_order(list(asked), sitting.rounds):
                    taken[name].append(asked[name](ids, tokens))
                    _progress()
                samples[key] = {"task": task, "samples": taken}
                yield {**same, "prompts": samples}


SECTIONS: Final = ("grid", "drafting", "single", "editing", "streams", "overhead")
OF_PEER: Final = frozenset({"grid", "drafting", "single", "editing", "streams"})
"""Sections that need llama-server."""
