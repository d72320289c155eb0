"""The requests of a block, and the record that each one leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec

from slipstream.errors import RequestError
from slipstream.lab.client.asking import GREEDY, Answered, Asked, Reply
from slipstream.lab.contract.manifest import Manifest, PromptIdentity
from slipstream.lab.contract.records import Counts, Divergence, RequestRecord, RowProbe
from slipstream.lab.evidence.refusals import is_refusal
from slipstream.lab.evidence.store import Store, counted
from slipstream.lab.observation.counters import Window
from slipstream.lab.running import outputs
from slipstream.lab.running.bench import FIGURES, MOST_TEXT
from slipstream.lab.running.outputs import Output
from slipstream.lab.running.passes import Item
from slipstream.lab.running.progress import Progress
from slipstream.lab.running.tools import Tools
from slipstream.lab.scheduling import arrivals
from slipstream.lab.scheduling.schedule import NONE, Block
from slipstream.measure.workload import WorkloadPrompt

LOGPROBS: Final = 2
_MOST_DIAGNOSTICS: Final = 32


def items_of(manifest: Manifest, prompts: Mapping[str, WorkloadPrompt], block: Block) -> list[Item]:
    """The pass's requests in their order, those of an isolation probe tenant by tenant.

    Raises:
        InputError: a prompt has no text, or the arrivals are malformed.
    """
    first = len(block.warm_up)
    wanted = _asked_by(manifest, block)
    times = None
    if block.slots > 1 and block.kind == "measured":
        seed = manifest.plan.sampling.seed + block.repeat
        times = arrivals.times(manifest.plan.arrivals, len(wanted), seed)
    return [
        Item(
            first + number,
            prompt,
            _asked(manifest, prompts, block, prompt, tenant),
            None if times is None else times[number],
            tenant,
        )
        for number, (prompt, tenant) in enumerate(wanted)
    ]


def warm_up_items(
    manifest: Manifest, prompts: Mapping[str, WorkloadPrompt], block: Block
) -> list[Item]:
    """The requests before the pass, sampled as it is."""
    return [
        Item(number, prompt, _asked(manifest, prompts, block, prompt, ""))
        for number, prompt in enumerate(block.warm_up)
    ]


def _asked_by(manifest: Manifest, block: Block) -> list[tuple[str, str]]:
    """(prompt, tenant) in order."""
    tenants = manifest.plan.tenants.names
    if block.kind != "isolation":
        return [(prompt, "") for prompt in block.prompts]
    asking = tenants if block.repeat else tenants[-1:]
    return [(prompt, tenant) for tenant in asking for prompt in block.prompts]


def _asked(
    manifest: Manifest,
    prompts: Mapping[str, WorkloadPrompt],
    block: Block,
    prompt: str,
    tenant: str,
) -> Asked:
    identity = identity_of(manifest, prompt)
    plan = manifest.plan
    own_slots = plan.runtimes[block.runtime].kind == "llama-server" and tenant
    return Asked(
        prompt=prompts[prompt],
        max_tokens=identity.max_tokens,
        seed=identity.seed,
        timeout_s=plan.rules.timeout_s,
        stop=plan.sampling.stop,
        sampling=dict(plan.sampling.sampler if block.sampling == "sampler" else GREEDY),
        logprobs=LOGPROBS if block.kind == "logits" else None,
        constrained=identity.constrained,
        tenant=tenant,
        # llama-server knows no tenants: each has a slot of its own.
        slot=plan.tenants.names.index(tenant) if own_slots else None,
    )


def identity_of(manifest: Manifest, prompt: str) -> PromptIdentity:
    """
    Raises:
        RequestError: the manifest has no such prompt.
    """
    for identity in manifest.prompts:
        if identity.id == prompt:
            return identity
    raise RequestError("prompts of the manifest", f"`{prompt[:128]}`", "Begin a new run.")


def _probed(item: Item, answer: Answered) -> RowProbe | None:
    """The divergence that was asked about, with the first token that came."""
    if item.row_probe is None or answer.error or not answer.ids:
        return item.row_probe
    return msgspec.structs.replace(item.row_probe, given=answer.ids[0])


class RequestKeeper:
    """Turns replies into records, one after another.

    Args:
        origin_s: clock reading that the records' times begin at.
        peak: peak resident memory of the runtime's processes so far.
        requests: of the pass.
        warm_up: that the requests are those before the pass.
        cold: that each is the first one of its process.

    Attributes:
        window: counters around each request; None where several run at a time.
        answered, errors, timeouts, refused: so many requests; the last two are errors.
        told: the counts that requests told themselves.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        tools: Tools,
        store: Store,
        block: Block,
        *,
        attempt: int,
        origin_s: float,
        peak: Callable[[], int | None],
        progress: Progress,
        requests: int,
        warm_up: bool,
        cold: bool,
    ) -> None:
        self._folder, self._manifest, self._tools = folder, manifest, tools
        self._store, self._block, self._attempt = store, block, attempt
        self._origin_s, self._peak, self._progress = origin_s, peak, progress
        self._requests = requests
        self._warm_up, self._cold = warm_up, cold
        self._joules = tools.energy()
        self.window: Window | None = None
        self.answered = self.errors = self.timeouts = self.refused = 0
        self.last_error = ""
        self.told: list[Counts] = []

    def heard(self, item: Item, reply: Reply) -> None:
        """Read a reply and append its record."""
        joules = self._used_j()
        answer = reply.answer()
        self._note(answer)
        counts, noticed = answer.counts, list(answer.diagnostics)
        if self.window is not None and not answer.error:
            counts, wrong = self.window.counts(answer.counts)
            noticed += wrong
        self._store.append(self._record(item, answer, counts, noticed, joules))
        self._joules = self._tools.energy()
        if not self._warm_up:
            done = self.answered + self.errors
            self._progress.request(done, self._requests)

    def _note(self, answer: Answered) -> None:
        if answer.error:
            self.errors += 1
            self.timeouts += answer.timed_out
            self.refused += is_refusal(answer.error)
            self.last_error = answer.error[:MOST_TEXT]
        else:
            self.answered += 1
            self.told.append(answer.counts)

    def _record(
        self,
        item: Item,
        answer: Answered,
        counts: Counts,
        noticed: Sequence[str],
        joules: float | None,
    ) -> RequestRecord:
        block = self._block
        fields = answer.fields(self._origin_s)
        fields |= self._judged(item, answer) if not self._warm_up else {}
        fields |= {
            "row_probe": _probed(item, answer),
            "counts": counts,
            "diagnostics": tuple(text[:MOST_TEXT] for text in noticed[:_MOST_DIAGNOSTICS]),
            "error": answer.error[:MOST_TEXT],
        }
        return RequestRecord(
            run=self._manifest.run,
            block=block.number,
            attempt=self._attempt,
            index=item.index,
            runtime=block.runtime,
            condition=block.condition,
            stratum=identity_of(self._manifest, item.prompt).stratum,
            prompt=item.prompt,
            stage=block.record_stage,
            slots=block.slots,
            cold=self._cold or item.index == 0,
            warm_up=self._warm_up or block.kind not in FIGURES,
            tenant=item.tenant,
            peak_rss_bytes=self._peak(),
            energy_j=joules,
            **fields,
        )

    def _used_j(self) -> float | None:
        """Of this request; with several at a time nobody can tell."""
        if self.window is None or self._joules is None:
            return None
        now = self._tools.energy()
        return None if now is None or now < self._joules else now - self._joules

    def _judged(self, item: Item, answer: Answered) -> dict[str, Any]:
        """Output, equality with ``none`` and what the prompt says of it; nothing of an error."""
        if answer.error:
            return {}
        output = outputs.output_of(answer)
        made: dict[str, Any] = {"output": outputs.save(self._folder, output)}
        if item.row_probe is not None:
            return made
        baseline = self._baseline(item.prompt) if self._block.sampling == "greedy" else None
        if baseline is not None:
            verdict, divergence = self._compared(item.prompt, baseline[0], baseline[1], output)
            made |= {"verdict": verdict, "divergence": divergence}
        text = None if baseline is None else baseline[1].judged_text
        prompt = self._tools.prompts[item.prompt]
        judged = self._tools.judge(prompt, output.judged_text, text, answer.finish_reason)
        return made | {"judged": {n: v for n, v in judged.items() if v is not None}}

    def _compared(
        self, prompt: str, name: str, baseline: Output, output: Output
    ) -> tuple[str, Divergence | None]:
        rules = self._manifest.plan.rules
        logits = self._files.get((1, "logits", prompt))
        known = outputs.load(self._folder, logits) if logits else None
        verdict, where = outputs.compared(
            baseline, output, rules.comparison, rules.tolerance_logit_gap, known
        )
        return verdict, None if where is None else msgspec.structs.replace(where, baseline=name)

    def _baseline(self, prompt: str) -> tuple[str, Output] | None:
        """What ``none`` gave first at this concurrency, else at one slot; None = nothing yet."""
        for slots in (self._block.slots, 1):
            if name := self._files.get((slots, "greedy", prompt)):
                return name, outputs.load(self._folder, name)
        return None

    @cached_property
    def _files(self) -> dict[tuple[int, str, str], str]:
        """(slots, stage, prompt) -> file of the first output of ``none`` in blocks that ended."""
        found: dict[tuple[int, str, str], str] = {}
        for x in counted(self._store.lines):
            if not isinstance(x, RequestRecord) or x.error or not x.output:
                continue
            if (x.runtime, x.condition) == (self._block.runtime, NONE):
                found.setdefault((x.slots, x.stage, x.prompt), x.output)
        return found
