"""The requests of a ``paths`` block: one token each, at a place where outputs parted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from slipstream.lab.client.asking import Asked
from slipstream.lab.contract.manifest import Manifest
from slipstream.lab.contract.records import Line, RowProbe
from slipstream.lab.evidence.store import counted
from slipstream.lab.running import outputs
from slipstream.lab.running.block_requests import identity_of
from slipstream.lab.running.passes import Item
from slipstream.lab.scheduling.divergences import Place, open_places
from slipstream.lab.scheduling.schedule import Block, blocks
from slipstream.measure.workload import WorkloadPrompt


def row_probe_items(
    folder: Path,
    manifest: Manifest,
    prompts: Mapping[str, WorkloadPrompt],
    lines: Sequence[Line],
    block: Block,
) -> list[Item]:
    """One request per open place: the prompt and the output of ``none`` up to it, at temperature 0.

    Neither schema nor stop texts are sent: they would begin anew after a prompt that holds a part
    of the output already.

    Raises:
        RequestError: an output's file is missing or changed.
    """
    places = open_places(blocks(manifest), counted(lines), block)
    return [
        Item(
            number,
            place.prompt,
            _asked(folder, manifest, prompts, place),
            row_probe=RowProbe(baseline=place.baseline, at=place.at, tokens=place.tokens),
        )
        for number, place in enumerate(places)
    ]


def _asked(
    folder: Path, manifest: Manifest, prompts: Mapping[str, WorkloadPrompt], place: Place
) -> Asked:
    return Asked(
        prompt=prompts[place.prompt],
        max_tokens=1,
        seed=identity_of(manifest, place.prompt).seed,
        timeout_s=manifest.plan.rules.timeout_s,
        after=outputs.load(folder, place.baseline).ids[: place.at],
    )
