"""``slipstream serve`` of this interpreter, as a process of its own."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from slipstream.catalog import locate
from slipstream.errors import OptionError
from slipstream.lab.client import told
from slipstream.lab.client.client import Prompt, ask_now
from slipstream.lab.contract.manifest import UNKNOWN, Manifest, MethodIdentity, RuntimeIdentity
from slipstream.lab.contract.plan import ConditionPlan, Plan, RuntimePlan
from slipstream.lab.contract.records import ObservedRecord
from slipstream.lab.contract.runtimes import Endpoint, Metrics, ready_limit_s
from slipstream.lab.freezing.help_text import Help
from slipstream.lab.observation.metrics_text import metrics_of, target_passes, verified_rows
from slipstream.lab.runtimes import llama_flags, observing, slipstream_flags
from slipstream.lab.runtimes.faults import CrashedError, WrongModelError
from slipstream.lab.runtimes.own_server import OwnServer
from slipstream.lab.runtimes.program_facts import file_sha256, said
from slipstream.lab.runtimes.server_process import HOST, ServerProcess

MOST_READY_BYTES: Final = 1 << 20
_FEW_TOKENS: Final = 2
_WIDE: Final = {"COLUMNS": "400", "PYTHONUNBUFFERED": "1"}


class Slipstream(OwnServer):
    """
    Args:
        name: of the runtime in the plan.
        program: command of ``slipstream``; a test may put another one here.

    Raises:
        OptionError: the plan names a binary, an interpreter or a URL.
    """

    def __init__(self, name: str, plan: RuntimePlan, program: Sequence[str] = ()) -> None:
        if plan.binary or plan.python or plan.url:
            raise OptionError(
                f"runtime `{name}` of kind slipstream without `binary`, `python` and `url`",
                plan.binary or plan.python or plan.url,
                "It is the Slipstream that runs the lab; another one is of kind `openai`.",
            )
        super().__init__(name, plan)
        self._program = [*(program or (sys.executable, "-m", "slipstream")), "serve"]
        self._help: Help | None = None
        self._help_text = ""
        self._ready: Mapping[str, Any] = {}

    def _helped(self) -> Help:
        if self._help is None:
            self._help_text = said([*self._program, "--help"], {**os.environ, **_WIDE})
            self._help = Help(self._help_text)
        return self._help

    def identity(self, folder: Path) -> RuntimeIdentity:
        """See ``Runtime.identity``; the binary is the native core."""
        import hashlib

        self._helped()
        file = folder / f"help-{self.name}.txt"
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(self._help_text)
        native = importlib.util.find_spec("slipstream._native")
        backend = observing.flag_value(self.plan.flags, "--backend") or (
            "reference" if native is None else "cpu"
        )
        return RuntimeIdentity(
            name=self.name,
            kind=self.plan.kind,
            release=self.plan.release or _release(),
            commit=self.plan.commit or _commit(),
            binary_sha256=UNKNOWN if native is None else file_sha256(Path(str(native.origin))),
            compiler=self.plan.compiler or UNKNOWN,
            build_options=self.plan.build_options or UNKNOWN,
            isa=self._isa() if backend == "cpu" else "none (NumPy)",
            backend=backend,
            driver="none",
            terms=self.plan.terms or "MIT",
            help_sha256=hashlib.sha256(self._help_text.encode()).hexdigest(),
            help_file=file.name,
            flags=self._common(threads=False),
        )

    def _isa(self) -> str:
        asked = observing.flag_value(self.plan.flags, "--isa")
        return asked or os.environ.get("SLIPSTREAM_ISA") or _best_level()

    def _common(self, *, threads: bool) -> tuple[str, ...]:
        """Flags of every start, beside those of threads and of a condition."""
        return slipstream_flags.common_flags(self.plan.flags, self._helped(), threads=threads)

    def method(self, condition: ConditionPlan, plan: Plan) -> MethodIdentity:
        """See ``Runtime.method``."""
        return slipstream_flags.method_identity(condition, plan, self._helped())

    def command(self, method: MethodIdentity, plan: Plan, slots: int) -> list[str]:
        """The whole command line of a start.

        Raises:
            OptionError: a flag that the help does not have.
            ModelFileError: a model is not here.
        """
        common = self._common(threads=bool(plan.threads))
        values = {
            llama_flags.TARGET: str(locate(plan.target.model)),
            llama_flags.CONTEXT: str(plan.context),
            llama_flags.SLOTS: str(slots),
            llama_flags.THREADS: str(plan.threads),
        }
        if method.draft:
            values[llama_flags.DRAFT] = str(locate(plan.drafts[method.draft].model))
        return [*self._program, *llama_flags.filled([*common, *method.flags], values)]

    def start(self, method: MethodIdentity, manifest: Manifest, slots: int, log: Path) -> Endpoint:
        """See ``Runtime.start``."""
        self._begin(method, manifest, slots)
        said_file = log.with_name(log.name + ".ready.json")
        command = self.command(method, manifest.plan, slots)
        with self._started(command, log, stdout=said_file, environment=_WIDE) as process:
            limit_s = ready_limit_s(self.plan.kind, manifest.plan.rules.timeout_s)
            self._await(process, said_file, limit_s)
            self._endpoint = Endpoint(
                url=told.text(self._ready.get("url")), dialect="llama", pids=(process.pid,), log=log
            )
            self._require_model(manifest)
        return self._endpoint

    def _await(self, process: ServerProcess, said_file: Path, limit_s: float) -> None:
        def came() -> bool:
            with contextlib.suppress(OSError, ValueError):
                with said_file.open("rb") as file:
                    line = file.readline(MOST_READY_BYTES)
                self._ready = told.mapping(json.loads(line)) if line.endswith(b"\n") else {}
            return self._ready.get("ready") is True

        self._ready = {}
        process.await_ready(came, limit_s)
        if not told.text(self._ready.get("url")).startswith(f"http://{HOST}:"):
            raise CrashedError(
                "a ready line with its address", str(self._ready)[:200], "See its log."
            )

    def _require_model(self, manifest: Manifest) -> None:
        """
        Raises:
            WrongModelError: it loaded a file of another digest.
        """
        found = told.text(told.mapping(self._ready.get("facts")).get("sha256"))
        wanted = [item.sha256 for item in manifest.artifacts if item.role == "target"]
        if found and wanted and wanted[0] not in (UNKNOWN, found):
            raise WrongModelError(
                f"the target of digest {wanted[0][:12]}",
                found[:12],
                "The file changed: freeze anew.",
            )

    def observed(self, method: MethodIdentity) -> ObservedRecord:
        """See ``Runtime.observed``. An answer tells the kernel paths that ran so far, so it asks
        for two tokens, outside of a window of counters; not before anything ran, for that would
        be the request that a cold run measures."""
        endpoint, manifest = self._running(), self._manifest
        assert manifest is not None
        facts = told.mapping(told.mapping(observing.json_at(endpoint, "/props")).get("slipstream"))
        effective = slipstream_flags.effective(facts, self._ready)
        asked = slipstream_flags.asked(method, manifest.plan, self._slots)
        counted = observing.text_at(endpoint, "/metrics")
        paths = self._paths(endpoint) if target_passes(counted) else ()
        return ObservedRecord(
            run=manifest.run,
            runtime=self.name,
            condition=method.condition,
            at=observing.now(),
            effective=effective,
            differs=observing.differing(asked, effective),
            capability=slipstream_flags.capability(facts),
            layers_offloaded=0,
            rows_histogram=verified_rows(counted),
            kernel_paths=paths or (UNKNOWN,),
            path_evidence=("timings.kernel_paths of an answer",) if paths else (),
        )

    def _paths(self, endpoint: Endpoint) -> tuple[str, ...]:
        sampling = {"max_tokens": _FEW_TOKENS, "temperature": 0.0, "seed": 1}
        return ask_now(endpoint, Prompt(text="."), sampling, timeout_s=60.0).kernel_paths

    def probe(
        self, method: MethodIdentity, manifest: Manifest, slots: int, log: Path
    ) -> ObservedRecord:
        """See ``Runtime.probe``; the server tells its paths in every run, so nothing is special."""
        endpoint = self.start(method, manifest, slots, log)
        try:
            observing.ask_probe(endpoint, manifest.plan.rules.timeout_s)
            return self.observed(method)
        finally:
            self.stop()

    def metrics(self) -> Metrics:
        """See ``Runtime.metrics``."""
        return metrics_of(observing.text_at(self._running(), "/metrics"))


def _release() -> str:
    try:
        return importlib.metadata.version("slipstream")
    except importlib.metadata.PackageNotFoundError:
        return UNKNOWN


def _commit() -> str:
    """Of the working tree that this package lies in; unknown for an installed one."""
    folder = Path(__file__).resolve().parent
    words = [
        "git",
        "-C",
        str(folder),
        "describe",
        "--always",
        "--abbrev=40",
        "--dirty",
        "--exclude=*",
    ]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=True)
        tracked = subprocess.run(
            ["git", "-C", str(folder), "ls-files", "--error-unmatch", __file__],
            capture_output=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN
    return done.stdout.strip() if tracked.returncode == 0 else UNKNOWN


def _best_level() -> str:
    try:
        from slipstream import _native
    except ImportError:
        return UNKNOWN
    levels = _native.isa_levels()
    return levels[-1] if levels else UNKNOWN
