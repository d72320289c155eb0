"""``llama-server``: a binary, or the wheel ``xllamacpp`` in an environment of its own.

One model per process; a router is refused. Every flag is checked against the program's own help
before it is used, and what is in effect afterwards is compared with what was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from slipstream.catalog import locate
from slipstream.errors import OptionError, PeerRuntimeError
from slipstream.lab.client import told
from slipstream.lab.contract.manifest import UNKNOWN, Manifest, MethodIdentity, RuntimeIdentity
from slipstream.lab.contract.plan import ConditionPlan, Plan, RuntimePlan
from slipstream.lab.contract.records import ObservedRecord
from slipstream.lab.contract.runtimes import Endpoint, Metrics, ready_limit_s
from slipstream.lab.freezing.help_text import Help
from slipstream.lab.observation.log_drafts import DraftLines
from slipstream.lab.observation.log_scan import LogScan
from slipstream.lab.observation.metrics_text import metrics_of
from slipstream.lab.runtimes import llama_flags, observing
from slipstream.lab.runtimes.faults import IdentityError
from slipstream.lab.runtimes.one_model import is_healthy, require_one_model
from slipstream.lab.runtimes.own_server import OwnServer
from slipstream.lab.runtimes.program_facts import (
    Version,
    devices_of,
    file_sha256,
    found_program,
    said,
    same_commit,
    version_of,
)
from slipstream.lab.runtimes.server_process import HOST, free_port

LAUNCHER: Final = Path(__file__).with_name("xllamacpp_launcher.py")


class LlamaServer(OwnServer):
    """
    Args:
        name: of the runtime in the plan.

    Raises:
        OptionError: the plan names neither or both of ``binary`` and ``python``, or a URL.
    """

    def __init__(self, name: str, plan: RuntimePlan) -> None:
        if bool(plan.binary) == bool(plan.python) or plan.url:
            raise OptionError(
                f"runtime `{name}` to name a `binary`, or a `python` with xllamacpp",
                "neither, both, or a `url`",
                "A server that runs already is of kind `openai`.",
            )
        super().__init__(name, plan)
        self._program: list[str] = (
            [found_program(plan.binary)]
            if plan.binary
            else [found_program(plan.python), "-I", str(LAUNCHER)]
        )
        self._help: Help | None = None
        self._help_text = ""
        self._devices = ""
        self._drafts = DraftLines()
        self._probed: dict[str, ObservedRecord] = {}

    def _helped(self) -> Help:
        if self._help is None:
            self._help_text = said([*self._program, "--help"])
            self._help = Help(self._help_text)
            if not self._help.has("--port"):
                raise PeerRuntimeError(
                    "a help text with the flags of llama-server",
                    " ".join(self._help_text.split())[:120],
                    "Name llama-server's binary.",
                )
        return self._help

    def identity(self, folder: Path) -> RuntimeIdentity:
        """See ``Runtime.identity``.

        Raises:
            IdentityError: the program tells another commit than the plan.
        """
        import hashlib

        helped = self._helped()
        file = folder / f"help-{self.name}.txt"
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(self._help_text)
        version = self._version(helped)
        return RuntimeIdentity(
            name=self.name,
            kind=self.plan.kind,
            release=self.plan.release or UNKNOWN,
            commit=version.commit if version.commit != UNKNOWN else self.plan.commit or UNKNOWN,
            binary_sha256=self._sha256(helped),
            compiler=version.compiler
            if version.compiler != UNKNOWN
            else self.plan.compiler or UNKNOWN,
            build_options=self.plan.build_options or UNKNOWN,
            backend=self._device_list(),
            terms=self.plan.terms or UNKNOWN,
            help_sha256=hashlib.sha256(self._help_text.encode()).hexdigest(),
            help_file=file.name,
            flags=self._common(threads=False),
        )

    def _device_list(self) -> str:
        if not self._devices:
            asked = self._helped().has("--list-devices")
            self._devices = devices_of(said([*self._program, "--list-devices"]) if asked else "")
        return self._devices

    def _version(self, helped: Help) -> Version:
        version = version_of(said([*self._program, "--version"]) if helped.has("--version") else "")
        if self.plan.commit and not same_commit(self.plan.commit, version.commit):
            raise IdentityError(
                f"runtime `{self.name}` to be commit {self.plan.commit}, as the plan says",
                f"its `--version` says {version.commit}",
                "Correct the plan, or name the other binary.",
            )
        return version

    def _sha256(self, helped: Help) -> str:
        """Of the binary; of the wheel, of its native library, whose path the launcher tells."""
        if self.plan.binary:
            return file_sha256(Path(self._program[0]))
        path = said([*self._program, "--library"]).strip() if helped.has("--library") else ""
        return file_sha256(Path(path)) if path else UNKNOWN

    def _common(self, *, threads: bool) -> tuple[str, ...]:
        """Flags of every start, beside those of threads and of a condition."""
        return llama_flags.common_flags(self.plan.flags, self._helped(), threads=threads)

    def method(self, condition: ConditionPlan, plan: Plan) -> MethodIdentity:
        """See ``Runtime.method``."""
        return llama_flags.method_identity(condition, plan, self._helped())

    def command(
        self, method: MethodIdentity, plan: Plan, slots: int, port: int, more: Sequence[str] = ()
    ) -> list[str]:
        """The whole command line of a start.

        Raises:
            OptionError: a flag that the help does not have.
            ModelFileError: a model is not here.
        """
        common = self._common(threads=bool(plan.threads))
        values = {
            llama_flags.TARGET: str(locate(plan.target.model)),
            llama_flags.CONTEXT: str(plan.context * slots),
            llama_flags.SLOTS: str(slots),
            llama_flags.THREADS: str(plan.threads),
        }
        if method.draft:
            values[llama_flags.DRAFT] = str(locate(plan.drafts[method.draft].model))
        flags = llama_flags.filled([*common, *method.flags], values)
        return [*self._program, *flags, "--host", HOST, "--port", str(port), *more]

    def start(self, method: MethodIdentity, manifest: Manifest, slots: int, log: Path) -> Endpoint:
        """See ``Runtime.start``."""
        return self._start(method, manifest, slots, log, ())

    def _start(
        self,
        method: MethodIdentity,
        manifest: Manifest,
        slots: int,
        log: Path,
        more: Sequence[str],
    ) -> Endpoint:
        self._begin(method, manifest, slots)
        port = free_port()
        command = self.command(method, manifest.plan, slots, port, more)
        endpoint = Endpoint(url=f"http://{HOST}:{port}", dialect="llama", log=log)
        self._drafts = DraftLines()
        with self._started(command, log, heard=self._drafts.take) as process:
            self._endpoint = replace(endpoint, pids=(process.pid,))
            limit_s = ready_limit_s(self.plan.kind, manifest.plan.rules.timeout_s)
            process.await_ready(lambda: is_healthy(endpoint), limit_s)
            require_one_model(self._props(), locate(manifest.plan.target.model))
        return self._endpoint

    def _props(self) -> Mapping[str, Any]:
        return told.mapping(observing.json_at(self._running(), "/props"))

    def observed(self, method: MethodIdentity) -> ObservedRecord:
        """See ``Runtime.observed``; kernel paths are the probe's, where there was one."""
        endpoint, manifest = self._running(), self._manifest
        assert manifest is not None
        assert self._log is not None
        scan = self._log.scan()
        effective = observing.props_settings(self._props()) | observing.log_settings(scan)
        types = observing.served_types(observing.json_at(endpoint, "/slots"))
        if types is not None:
            effective.setdefault("spec-type", types)
        paths, evidence = self._paths(method, scan.evidence)
        return ObservedRecord(
            run=manifest.run,
            runtime=self.name,
            condition=method.condition,
            at=observing.now(),
            effective=effective,
            differs=observing.differing(self._asked(method, manifest.plan), effective),
            capability=dict(scan.capability),
            layers_offloaded=self._offloaded(scan),
            kernel_paths=paths,
            path_evidence=evidence,
        )

    def _offloaded(self, scan: LogScan) -> int | None:
        """What its log tells; none where it has no device to offload to."""
        known = scan.layers_offloaded is not None
        return scan.layers_offloaded if known or self._device_list() != "CPU" else 0

    def _asked(self, method: MethodIdentity, plan: Plan) -> dict[str, Any]:
        passed = {k: v for k, v in method.parameters.items() if not k.startswith("left.")}
        asked: dict[str, Any] = {"context": plan.context, "slots": self._slots}
        asked |= {"threads": plan.threads} if plan.threads else {}
        return {**asked, "spec-type": method.method, **passed, **observing.flag_settings(self.plan)}

    def _paths(
        self, method: MethodIdentity, evidence: tuple[str, ...]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        probed = self._probed.get(method.condition)
        if probed is None:
            return (UNKNOWN,), evidence
        return probed.kernel_paths, tuple(f"untimed probe: {line}" for line in probed.path_evidence)

    def probe(
        self, method: MethodIdentity, manifest: Manifest, slots: int, log: Path
    ) -> ObservedRecord:
        """See ``Runtime.probe``: a debug log with what the device says and what is compiled."""
        endpoint = self._start(
            method, manifest, slots, log, llama_flags.debug_flags(self._helped())
        )
        try:
            observing.ask_probe(endpoint, manifest.plan.rules.timeout_s)
            seen = self.observed(method)
        finally:
            self.stop()
        assert self._log is not None
        paths, evidence = observing.metal_paths(self._log.scan())
        record = _with_paths(seen, paths, evidence)
        self._probed[method.condition] = record
        return record

    def metrics(self) -> Metrics:
        """See ``Runtime.metrics``."""
        found = metrics_of(observing.text_at(self._running(), "/metrics"))
        if self._log is None or not found.raw or found.counts.drafted is not None:
            return found
        self._log.deliver()
        return replace(found, counts=self._drafts.counts())  # of builds that count in no metric


def _with_paths(
    record: ObservedRecord, paths: tuple[str, ...], evidence: tuple[str, ...]
) -> ObservedRecord:
    import msgspec

    return msgspec.structs.replace(record, kernel_paths=paths, path_evidence=evidence)
