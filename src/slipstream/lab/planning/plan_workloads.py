"""From a plan to its workloads: which prompts each one measures, and which warm it up.

A workload is a file of the folder (a stratum or a task) or a category of an imported set. Blocks,
records and verdicts know it as their stratum; nothing pools two of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from slipstream.errors import RequestError
from slipstream.lab.contract.plan import WORDS, Plan
from slipstream.lab.importers import Imported, read_prompts
from slipstream.lab.planning.plan_ranges import MOST_PROMPTS
from slipstream.lab.planning.strata import Strata, read_judgements, read_strata
from slipstream.lab.tasks.judgements import require_judgeable
from slipstream.measure.workload import STRATA, TASKS, WorkloadPrompt, read_task
from slipstream.paths import path_of

_IN_CHECKOUT: Final = Path(__file__).resolve().parents[4] / "workloads"
_IN_PACKAGE: Final = Path(__file__).resolve().parents[2] / "workloads"
_WARM_UP: Final = "warm_up"


@dataclass(frozen=True)
class Workload:
    """Prompts that a block passes over.

    Attributes:
        name: as blocks, records and verdicts call it.
        kind: the one of the six strata whose question it answers; ``imported`` where none fits.
        question: what the report's section on it answers.
        prompts: measured, in the order of the file.
        warm_up: others, of the same kind.
        shared: whether the texts came with Slipstream.
        note: what was left out of an imported set; empty for the others.
    """

    name: str
    kind: str
    question: str
    prompts: tuple[WorkloadPrompt, ...]
    warm_up: tuple[WorkloadPrompt, ...]
    shared: bool
    note: str = ""


def shipped_workloads() -> Path:
    """The folder that comes with Slipstream: of a checkout, else of the installed package.

    Raises:
        RequestError: there is neither.
    """
    for folder in (_IN_CHECKOUT, _IN_PACKAGE):
        if (folder / "strata.json").is_file():
            return folder
    raise RequestError(
        "the folder of workloads that comes with Slipstream",
        f"none at {_IN_CHECKOUT} or {_IN_PACKAGE}",
        "Name one in the plan: `workloads`.",
    )


def workloads_of(plan: Plan) -> tuple[Workload, ...]:
    """The workloads of a plan, each with the prompts that it measures and those that warm it up.

    Raises:
        OptionError: a path of the plan is none.
        RequestError: a file is missing or malformed, a prompt cannot be judged, a warm-up is also
            measured, an id occurs twice, or an id of ``typical`` is of no prompt.
    """
    shipped = shipped_workloads()
    folder = path_of(plan.workloads, "`workloads`") if plan.workloads else shipped
    strata = read_strata(folder if (folder / "strata.json").is_file() else shipped)
    found = [_own(plan, name, folder, strata) for name in dict.fromkeys(plan.strata)]
    for path, form in plan.imports.items():
        imported = read_prompts(path_of(path, "`imports`"), form, _most(plan), plan.typical)
        found += _imported(plan, imported, strata)
    if not found:
        raise RequestError("a stratum or an import in the plan", "neither", "Name one.")
    _require_disjoint(found)
    _require_known(plan, found)
    return tuple(found)


def _most(plan: Plan) -> int:
    if not 1 <= plan.prompts <= MOST_PROMPTS:
        remedy = "Correct `prompts` in the plan."
        raise RequestError(f"from 1 to {MOST_PROMPTS} prompts", str(plan.prompts), remedy)
    return plan.prompts


def _own(plan: Plan, name: str, folder: Path, strata: Strata) -> Workload:
    if name not in TASKS:
        known = ", ".join(TASKS)
        raise RequestError(f"a stratum among {known}", f"`{name[:64]}`", "Correct the plan.")
    judgements = read_judgements(folder)
    prompts = [judgements.applied(prompt) for prompt in read_task(folder / f"{name}.jsonl")]
    for prompt in prompts:
        require_judgeable(prompt)
    kind = TASKS[name]
    return Workload(
        name=name,
        kind=kind,
        question=strata.question(name, kind),
        prompts=tuple(chosen(prompts, _most(plan), plan.typical)),
        warm_up=_warm_ups(name, kind, folder),
        shared=folder.resolve() == shipped_workloads().resolve(),
    )


def _warm_ups(name: str, kind: str, folder: Path) -> tuple[WorkloadPrompt, ...]:
    """Of the folder's own file, else of the one that comes with Slipstream; ids are unique."""
    file = f"{kind if kind in STRATA else 'chat'}.jsonl"
    own = folder / _WARM_UP / file
    prompts = read_task(own if own.is_file() else shipped_workloads() / _WARM_UP / file)
    if name == kind:
        return tuple(prompts)
    return tuple(msgspec.structs.replace(p, id=f"{p.id}@{name}") for p in prompts)


def _imported(plan: Plan, imported: Imported, strata: Strata) -> Iterable[Workload]:
    for name, category in imported.categories.items():
        if name in WORDS:
            expected = f"categories of {imported.file} whose names are no words of the lab's own"
            raise RequestError(expected, f"`{name}`", "Rename the category in the file.")
        for prompt in category.prompts:
            require_judgeable(prompt)
        yield Workload(
            name=name,
            kind=category.kind,
            question=strata.question(name, category.kind),
            prompts=tuple(chosen(category.prompts, _most(plan), plan.typical)),
            warm_up=_warm_ups(name, category.kind, shipped_workloads()),
            shared=False,
            note=category.note,
        )


def chosen(
    prompts: Sequence[WorkloadPrompt], most: int, typical: Sequence[str] = ()
) -> list[WorkloadPrompt]:
    """The first ones; the last places go to what the workload cannot do without.

    That is what the plan names as typical, else the first prompt marked so, and the first prompt
    whose output is constrained. The order stays that of the file.
    """
    named = [prompt for prompt in prompts if prompt.id in typical]
    needed = named or [prompt for prompt in prompts if prompt.typical][:1]
    needed += [prompt for prompt in prompts if prompt.constrained][:1]
    wanted = {prompt.id for prompt in needed[:most]}
    for prompt in prompts:
        if len(wanted) >= most:
            break
        wanted.add(prompt.id)
    return [prompt for prompt in prompts if prompt.id in wanted]


def _require_disjoint(workloads: Sequence[Workload]) -> None:
    measured = [prompt for workload in workloads for prompt in workload.prompts]
    for attribute in ("id", "sha256"):
        warm = {getattr(p, attribute): p.id for w in workloads for p in w.warm_up}
        for prompt in measured:
            twin = warm.get(getattr(prompt, attribute))
            if twin is not None:
                told = f"{twin}, which is also measured as {prompt.id}"
                raise RequestError("warm-up prompts that are not measured", told, "Remove one.")
    names = [workload.name for workload in workloads]
    ids = [prompt.id for prompt in measured]
    for kind, given in (("workload", names), ("prompt", ids)):
        repeated = sorted({name for name in given if given.count(name) > 1})
        if repeated:
            raise RequestError(f"each {kind} once", f"`{repeated[0]}` twice", "Remove one.")


def _require_known(plan: Plan, workloads: Sequence[Workload]) -> None:
    ids = {prompt.id for workload in workloads for prompt in workload.prompts}
    for name in plan.typical:
        if name not in ids:
            raise RequestError(
                "`typical` to name prompts that the plan measures",
                f"`{name[:128]}`",
                "Name an id, and its stratum or import in the plan.",
            )
