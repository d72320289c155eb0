"""What a step with speculation costs in Python, phase by phase.

    python benchmarks/controller_cost.py [--steps 400] [--prompt 1024] [--vocabulary 4096]

The whole engine runs over a target that takes no time and says a text known beforehand: `novel`
never repeats, `edited` repeats a long passage with one token in 40 changed, `loop` has a period
of 7. One sequence and four, with the suffix drafter and with a pretended draft model beside it,
which is right at four tokens in five and takes no time either. The engine's clock is processor
time plus what target and draft model pretend to take, so the controller decides as it would.

Milliseconds of processor time per step: `controller` is plan, worth, choose and observe;
`drafter` the look-up itself; `rest` the engine around them, less what it takes without
speculation. Median and mean. The bar of the controller is 1 % of a step. Ends with one JSON line.
"""

from __future__ import annotations

import argparse
import datetime
import json
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from draft_cost import TEXTS
from numpy.typing import NDArray

from slipstream.backends.base import Outputs, Step
from slipstream.drafters import create
from slipstream.drafters.base import BaseDrafter, Draft, Drafter, DraftRequest
from slipstream.drafters.resources import Resources
from slipstream.engine.controllers import controller_for
from slipstream.engine.engine import Engine
from slipstream.engine.sequence import Request
from slipstream.graph import Graph
from slipstream.memory.base import Memory
from slipstream.options import EngineOptions, SamplingOptions, SpeculationOptions
from slipstream.tokenizer import Tokenizer
from slipstream.verify.matching import Matching

STEPS_S = (0.04, 0.0067)  # qwen2.5-coder-1.5b and smollm2-135m on two cores
BAR = 0.01
# t(R) / t(1) - 1 on AVX2 (docs/performance.md)
ROWS, RATIOS = (1, 2, 4, 8, 16, 64), (0.0, 0.07, 0.36, 1.76, 3.96, 17.4)
RIGHT = 0.8
CALL, NODE = 0.05, 0.35  # of a draft model, in one-row times of the target


class Clock:
    """Processor time, and the time that was pretended."""

    def __init__(self) -> None:
        self.pretended = 0.0

    def __call__(self) -> float:
        return time.thread_time() + self.pretended


class Phases:
    """Seconds of the phases of every step."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []
        self.now: dict[str, float] = defaultdict(float)

    def timed(self, phase: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def inner(*arguments: Any) -> Any:
            begin = time.thread_time()
            try:
                return call(*arguments)
            finally:
                self.now[phase] += time.thread_time() - begin

        return inner

    def wrap(self, phase: str, owner: object, names: Sequence[str]) -> None:
        for name in names:
            setattr(owner, name, self.timed(phase, getattr(owner, name)))


class Script:
    """A target that says, at every position of a sequence, what its text has there."""

    def __init__(self, texts: Sequence[Sequence[int]], vocabulary: int, step_s: float) -> None:
        self.memory = cast("Memory", self)
        self.graph = Graph((), "script", 1, vocabulary, 1 << 20)
        self._texts = texts
        self._step_s = step_s
        self._logits = np.zeros((256, vocabulary), np.float32)
        self._lengths: dict[int, int] = {}
        self.pretend: Callable[[float], None] = lambda _: None

    def open(self) -> int:
        handle = len(self._lengths)
        self._lengths[handle] = 0
        return handle

    def close(self, sequence: int) -> None:
        del sequence

    def commit(self, sequence: int, path: Sequence[int]) -> None:
        self._lengths[sequence] += len(path)

    def run(self, step: Step) -> Outputs:
        depths: list[int] = []
        said: list[int] = []
        for handle, parent in zip(step.sequences.tolist(), step.parents.tolist(), strict=True):
            depths.append(0 if parent < 0 else depths[parent] + 1)
            said.append(self._texts[handle][self._lengths[handle] + depths[-1] + 1])
        wanted = step.logit_rows.tolist()
        elapsed = self._step_s * (1.0 + float(np.interp(len(depths), ROWS, RATIOS)))
        self.pretend(elapsed)
        return Outputs(self._rows([said[row] for row in wanted]), {}, elapsed)

    def _rows(self, tokens: list[int]) -> NDArray[np.float32]:
        logits = self._logits[: len(tokens)]
        logits[:] = 0.0
        logits[np.arange(len(tokens)), tokens] = 1.0
        return logits

    def observed(self) -> Mapping[str, int]:
        return {}


class PretendedModel(BaseDrafter):
    """Knows the texts."""

    name = "draft-simple"

    def __init__(
        self, texts: Sequence[Sequence[int]], step_s: float, pretend: Callable[[float], None]
    ) -> None:
        self._texts = texts
        self._step_s = step_s
        self._pretend = pretend
        self._draws = random.Random(3)

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        drafts = [self._draft(request) for request in requests]
        nodes = max(map(len, drafts), default=0)
        self._pretend(self._step_s * (CALL + NODE * nodes))
        return drafts

    def _draft(self, request: DraftRequest) -> Draft:
        """It stops at a token it is not sure of."""
        start, text = len(request.tokens), self._texts[request.sequence]
        tokens: list[int] = []
        stated: list[float] = []
        while len(tokens) < request.n_max:
            right = self._draws.random() < RIGHT
            tokens.append(text[start + len(tokens)] if right else 0)
            stated.append(0.9 if right else 0.3)
            if not right:
                break
        return Draft.chain(tokens, self.name, stated)


class Stream:
    def push(self, token_id: int, /) -> str:
        del token_id
        return "x"

    def flush(self) -> str:
        return ""


class Words:
    end_ids: frozenset[int] = frozenset()

    def stream(self) -> Stream:
        return Stream()


def measure(
    texts: Sequence[list[int]], prompt: int, methods: Sequence[str], step_s: float, steps: int
) -> tuple[Phases, float]:
    """Phases of the steps behind the prompts, and tokens per pass."""
    vocabulary = 1 + max(map(max, texts))
    clock, phases, program = Clock(), Phases(), Script(texts, 1 + vocabulary, step_s)

    def pretend(seconds: float) -> None:
        clock.pretended += seconds

    program.pretend = pretend
    # look-ups use nothing of the tokenizer
    resources = Resources(cast("Tokenizer", None), vocabulary, 1 << 20, len(texts))
    named = [name for name in methods if name != "draft-simple"]
    drafters: list[Drafter] = list(create(named, SpeculationOptions(), resources)) if named else []
    for drafter in drafters:
        phases.wrap("drafter", drafter, ("draft", "observe"))
    if "draft-simple" in methods:
        drafters.append(PretendedModel(texts, step_s, pretend))
        phases.wrap("model", drafters[-1], ("draft", "observe"))
    controller = controller_for([drafter.name for drafter in drafters], fixed=False)
    for name in ("plan", "worth", "choose", "observe"):
        phases.wrap(name, controller, (name,))
    phases.wrap("target", program, ("run",))
    engine = Engine(
        program,
        Words(),
        drafters=drafters,
        verifier=Matching(),
        context=1 << 20,
        options=EngineOptions(parallel=len(texts)),
        controller=controller,
        clock=clock,
    )
    for text in texts:
        options = SamplingOptions(temperature=0.0, max_tokens=len(text) - prompt - 200)
        engine.submit(Request(text[:prompt], options))
    return phases, _run(engine, phases, steps)


def _run(engine: Engine, phases: Phases, steps: int) -> float:
    while engine.scheduler.waiting or any(s.prompt_left for s in engine.scheduler.running):
        engine.step()
    passes = tokens = 0
    count = len(engine.scheduler.running)
    while len(phases.steps) < steps and len(engine.scheduler.running) == count:
        phases.now = defaultdict(float)
        begin = time.thread_time()
        events = engine.step()
        phases.now["step"] = time.thread_time() - begin
        phases.steps.append(phases.now)
        passes += count
        tokens += sum(len(event.tokens) for event in events)
    return tokens / max(passes, 1)


CONTROLLER = ("plan", "worth", "choose", "observe")
PARTS = (*CONTROLLER, "drafter")


def told(phases: Phases, plain: Phases) -> dict[str, Any]:
    """Median and mean milliseconds per step of the phases."""
    without = statistics.median(step["step"] - step["target"] for step in plain.steps)
    columns: dict[str, list[float]] = {name: [s[name] for s in phases.steps] for name in PARTS}
    columns["controller"] = [sum(s[name] for name in CONTROLLER) for s in phases.steps]
    columns["rest"] = [
        s["step"] - s["target"] - s["model"] - without - sum(s[name] for name in PARTS)
        for s in phases.steps
    ]
    columns["total"] = [
        sum(row)
        for row in zip(columns["controller"], columns["drafter"], columns["rest"], strict=True)
    ]
    return {
        name: {
            "median_ms": round(1e3 * statistics.median(column), 4),
            "mean_ms": round(1e3 * statistics.fmean(column), 4),
        }
        for name, column in columns.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--prompt", type=int, default=1024)
    parser.add_argument("--vocabulary", type=int, default=4096)
    options = parser.parse_args()
    results = []
    for kind, make in TEXTS.items():
        count = options.prompt + 20 * options.steps
        texts = [
            [token % options.vocabulary for token in make(count, random.Random(seed))]
            for seed in range(4)
        ]
        for step_s in STEPS_S:
            for sequences in (1, 4):
                case = (texts[:sequences], options.prompt)
                plain, _ = measure(*case, (), step_s, options.steps)
                for methods in (("suffix",), ("suffix", "draft-simple")):
                    phases, rate = measure(*case, methods, step_s, options.steps)
                    row = told(phases, plain)
                    mean = row["controller"]["mean_ms"]
                    share = mean / (1e3 * step_s)
                    names = {"text": kind, "step_ms": 1e3 * step_s, "sequences": sequences}
                    results.append(
                        names
                        | {"methods": methods, "tokens_per_pass": round(rate, 2)}
                        | {"share": round(share, 5), "within": share <= BAR, **row}
                    )
                    print(
                        f"{kind:7}{1e3 * step_s:5.1f} ms x{sequences} {'+'.join(methods):20}"
                        + "  ".join(f"{name} {row[name]['median_ms']:.3f}" for name in row)
                        + f"  mean controller {mean:.3f} = {share:.2%}"
                        + f"  mean total {row['total']['mean_ms']:.3f}  {rate:.2f} tokens a pass"
                    )
    date = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    within = all(result["within"] for result in results)
    print(json.dumps({"date": date, "bar": BAR, "within": within, "results": results}))


if __name__ == "__main__":
    main()
