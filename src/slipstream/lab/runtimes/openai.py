"""A server that runs already: any with OpenAI's chat completions.

llama.cpp's, vLLM's and Slipstream's are recognised by what they show. Nothing of it can be
restarted, so its memory and a rollback are not measurable, and most of its identity is unknown. Of
drafting only Slipstream lets a request choose; of llama.cpp's the method in effect can be read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, Final

from slipstream.errors import OptionError, PeerRuntimeError
from slipstream.lab.client import told
from slipstream.lab.client.client import Answer, Prompt, ask_now
from slipstream.lab.contract.address import address_of
from slipstream.lab.contract.manifest import UNKNOWN, Manifest, MethodIdentity, RuntimeIdentity
from slipstream.lab.contract.methods import methods_of, most_proposed, parameters_of
from slipstream.lab.contract.plan import ConditionPlan, Plan, RuntimePlan
from slipstream.lab.contract.records import ObservedRecord
from slipstream.lab.contract.runtimes import FRESH, Endpoint, Metrics
from slipstream.lab.observation.metrics_text import metrics_of
from slipstream.lab.runtimes import observing, slipstream_flags
from slipstream.lab.runtimes.faults import IdentityError, RouterError, WrongModelError
from slipstream.lab.runtimes.program_facts import build_commit, own_release, same_commit
from slipstream.lab.runtimes.running_servers import (
    file_name,
    flavour_of,
    key_headers,
    listed_models,
    served_otherwise,
)

CLAIMED: Final = "claimed."
"""Before a parameter's name: the plan says so; of a server that runs it cannot be read."""
_EVIDENCE: Final = "timings.kernel_paths of an answer: what ran in its process so far"
# keys of Slipstream's ``speculative`` -> the option
_PER_REQUEST: Final = ("n_max", "n_min", "p_min")
# beyond the standard, for servers that are known to have it
_EXTRA: Final[Mapping[str, Mapping[str, Any]]] = {
    # a model's own generation_config would filter where a request says nothing
    "vllm": {"return_token_ids": True, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0},
    "llama.cpp": {"cache_prompt": False},
    "slipstream": {"session": FRESH},  # so that nothing is reused of earlier requests
}
_DIALECTS: Final[Mapping[str, str]] = {"llama.cpp": "llama-chat", "slipstream": "llama-chat"}


class OpenAI:
    """
    Args:
        name: of the runtime in the plan.

    Raises:
        OptionError: the plan names no URL, or a program, or flags.
    """

    def __init__(self, name: str, plan: RuntimePlan) -> None:
        if not plan.url or plan.binary or plan.python or plan.flags:
            raise OptionError(
                f"runtime `{name}` of kind openai with a `url` alone",
                "no `url`, or a program or flags beside it",
                "Its flags are whoever started it's.",
            )
        address_of(plan.url)
        self.name, self.plan = name, plan
        self._kind: str | None = None
        self._endpoint: Endpoint | None = None
        self._manifest: Manifest | None = None

    def _base(self) -> Endpoint:
        url = self.plan.url.rstrip("/").removesuffix("/v1")
        return Endpoint(url=url, dialect="openai", headers=key_headers(self.plan.api_key_file))

    def _props(self) -> Mapping[str, Any]:
        return told.mapping(observing.json_at(self._base(), "/props"))

    def _flavour(self) -> str:
        """``slipstream``, ``llama.cpp``, ``vllm`` or ``unknown``."""
        if self._kind is None:
            metrics = observing.text_at(self._base(), "/metrics")
            self._kind = flavour_of(self._props(), metrics)
        return self._kind

    def _models(self) -> list[str]:
        """Names of the models that it lists.

        Raises:
            PeerRuntimeError: it lists none.
        """
        found = listed_models(observing.json_at(self._base(), "/v1/models"))
        if not found:
            raise PeerRuntimeError(
                f"models at {self.plan.url}", "none, or nobody answers", "Start it, check the key."
            )
        return found

    def identity(self, folder: Path) -> RuntimeIdentity:
        """See ``Runtime.identity``: what the plan says of it, and what it says of itself."""
        del folder
        props = self._props()
        version = told.text(
            told.mapping(observing.json_at(self._base(), "/version")).get("version")
        )
        facts = told.mapping(props.get("slipstream"))
        build = told.text(props.get("build_info"))
        return RuntimeIdentity(
            name=self.name,
            kind=self.plan.kind,
            release=self.plan.release or version or own_release(build) or UNKNOWN,
            commit=self._commit(build),
            compiler=self.plan.compiler or UNKNOWN,
            build_options=self.plan.build_options or UNKNOWN,
            isa=told.text(facts.get("isa")) or UNKNOWN,
            backend=told.text(facts.get("backend")) or UNKNOWN,
            terms=self.plan.terms or UNKNOWN,
        )

    def _commit(self, build: str) -> str:
        """
        Raises:
            IdentityError: it says that it is another commit than the plan's.
        """
        found = build_commit(build)
        if self.plan.commit and not same_commit(self.plan.commit, found):
            raise IdentityError(
                f"commit {self.plan.commit} at {self.plan.url}, as the plan says",
                f"its /props says {build:.80}",
                "Correct the plan, or name the other server.",
            )
        return self.plan.commit or found

    def method(self, condition: ConditionPlan, plan: Plan) -> MethodIdentity:
        """See ``Runtime.method``."""
        del plan
        methods = methods_of(condition)
        parameters = parameters_of(condition)
        not_run = self._why_not(methods, parameters)
        if self._flavour() != "slipstream":  # whoever started it set them, and nothing tells them
            parameters = {f"{CLAIMED}{name}": value for name, value in parameters.items()}
        return MethodIdentity(
            condition=condition.name,
            stage=condition.stage,
            method=condition.method,
            parameters=parameters,
            starting_point=condition.starting_point,
            most_proposed=most_proposed(methods, parameters),
            draft=condition.draft,
            not_run=not_run,
        )

    def _why_not(self, methods: Sequence[str], parameters: Mapping[str, Any]) -> str:
        kind = self._flavour()
        if kind == "slipstream":
            foreign = [name for name in parameters if name not in _PER_REQUEST]
            return (
                f"a request cannot set {', '.join(foreign)}" if foreign else self._offers(methods)
            )
        if kind == "llama.cpp":
            return served_otherwise(observing.json_at(self._base(), "/slots"), methods)
        return "" if methods == ("none",) else "what drafts in a server that runs cannot be set"

    def _offers(self, methods: Sequence[str]) -> str:
        offered = told.mapping(told.mapping(self._props().get("slipstream")).get("draft_methods"))
        for name in methods:
            entry = told.mapping(offered.get(name))
            if name not in ("none", "auto") and entry.get("offered") is not True:
                return f"it does not offer {name}: {told.text(entry.get('reason')) or 'unknown'}"
        return ""

    def start(self, method: MethodIdentity, manifest: Manifest, slots: int, log: Path) -> Endpoint:
        """See ``Runtime.start``; nothing is started."""
        del slots, log
        if method.not_run:
            raise OptionError(f"a condition that {self.name} can run", method.not_run, "Skip it.")
        base = self._base()
        self._manifest = manifest
        self._endpoint = Endpoint(
            url=base.url,
            dialect=_DIALECTS.get(self._flavour(), base.dialect),
            headers=base.headers,
            model=self._model(manifest),
            extra=self._extra(method),
        )
        return self._endpoint

    def _extra(self, method: MethodIdentity) -> Mapping[str, Any]:
        own = _EXTRA.get(self._flavour(), {})
        if self._flavour() != "slipstream":
            return own
        return {**own, "speculative": {"type": method.method, **method.parameters}}

    def _model(self, manifest: Manifest) -> str:
        """The name to ask for.

        Raises:
            RouterError: it is llama.cpp's router.
            WrongModelError: it says that it serves another file.
        """
        props, names = self._props(), self._models()
        if props.get("role") == "router" or told.text(props.get("model_path")) == "none":
            raise RouterError("a server of one model", "router mode", "Start one with one model.")
        target = manifest.plan.target.model
        wanted = {target, PurePath(target).name, PurePath(target).stem, file_name(target)}
        self._require_file(props, manifest, wanted)
        fitting = [name for name in names if name in wanted or PurePath(name).name in wanted]
        if len(names) > 1 and not fitting:
            raise WrongModelError(
                f"the model {target} at {self.plan.url}",
                ", ".join(names)[:200],
                "Name one of them.",
            )
        return (fitting or names)[0]

    def _require_file(self, props: Mapping[str, Any], manifest: Manifest, wanted: set[str]) -> None:
        facts = told.mapping(props.get("slipstream"))
        digest = told.text(facts.get("sha256"))
        known = [item.sha256 for item in manifest.artifacts if item.role == "target"]
        if digest and known and known[0] not in (UNKNOWN, digest):
            raise WrongModelError(f"digest {known[0][:12]}", digest[:12], "It serves another file.")
        path = PurePath(told.text(props.get("model_path"))).name
        if not digest and path and path not in wanted:
            raise WrongModelError(
                f"a server of {manifest.plan.target.model}", f"its /props says {path}", "Check it."
            )

    def _running(self) -> Endpoint:
        if self._endpoint is None:
            raise PeerRuntimeError(f"{self.name} to be in use", "it is not", "Start it first.")
        return self._endpoint

    def observed(self, method: MethodIdentity) -> ObservedRecord:
        """See ``Runtime.observed``. Of Slipstream it asks for two tokens, for the kernel paths."""
        endpoint, manifest = self._running(), self._manifest
        assert manifest is not None
        effective: dict[str, Any] = {"model": endpoint.model, "flavour": self._flavour()}
        effective |= observing.props_settings(self._props())
        served = observing.served_types(observing.json_at(endpoint, "/slots"))
        if served is not None and self._flavour() == "llama.cpp":
            effective["spec-type"] = served
        asked = {"context": manifest.plan.context, "spec-type": method.method}
        answer = self._asked_of(endpoint)
        if answer.method and method.method != "auto":
            effective["spec-type"] = answer.method
        paths = answer.kernel_paths
        return ObservedRecord(
            run=manifest.run,
            runtime=self.name,
            condition=method.condition,
            at=observing.now(),
            effective=effective,
            differs=observing.differing(asked, effective),
            capability=self._capability(),
            kernel_paths=paths or (UNKNOWN,),
            path_evidence=(_EVIDENCE,) if paths else (),
        )

    def _capability(self) -> dict[str, str]:
        facts = told.mapping(self._props().get("slipstream"))
        return slipstream_flags.capability(facts) if facts else {}

    def _asked_of(self, endpoint: Endpoint) -> Answer:
        if self._flavour() != "slipstream":
            return Answer()
        asked = Prompt(messages=({"role": "user", "content": "."},))
        sampling = {"max_tokens": 2, "temperature": 0.0, "seed": 1}
        return ask_now(endpoint, asked, sampling, timeout_s=60.0)

    def probe(
        self, method: MethodIdentity, manifest: Manifest, slots: int, log: Path
    ) -> ObservedRecord:
        """See ``Runtime.probe``: it is only asked."""
        self.start(method, manifest, slots, log)
        return self.observed(method)

    def metrics(self) -> Metrics:
        """See ``Runtime.metrics``."""
        return metrics_of(observing.text_at(self._running(), "/metrics"))

    def peak_rss_bytes(self) -> int | None:
        """None: its processes are not ours."""
        return None

    def stop(self) -> Sequence[str]:
        """Nothing: it goes on."""
        return ()
