"""What a drafting step of the model-free methods costs at a length of history.

    python benchmarks/draft_cost.py [--tokens 8192] [--steps 400] [--methods ngram-cache,suffix]

Three kinds of text: `novel` never repeats, `edited` repeats a long passage with one token in 40
changed, `loop` has a period of 7. A step appends the accepted tokens and the next one, so a long
draft that was right makes longer steps. A step is `draft` and `observe` together; `open` is the
prompt's. Defaults of every method, except that the lengths of keys and proposals are also tried
short (`eager`). Prints milliseconds of processor time, which neighbours hardly lengthen: median,
99th percentile and worst. Ends with one JSON line.
"""

from __future__ import annotations

import argparse
import datetime
import json
import random
import statistics
import time
from typing import Any, cast

from slipstream.drafters import create, implemented
from slipstream.drafters.base import Drafter, DraftRequest, Outcome
from slipstream.drafters.resources import Resources
from slipstream.options import SpeculationOptions
from slipstream.tokenizer import Tokenizer

VOCABULARY = 50_000
BAR_MS = 0.2
NODES = 16  # what a controller asks for
EAGER = SpeculationOptions(
    ngram_simple_size_n=3,
    ngram_simple_size_m=16,
    ngram_map_k_size_n=3,
    ngram_map_k_size_m=16,
    ngram_map_k4v_size_n=3,
    ngram_map_k4v_size_m=16,
    ngram_mod_n_match=8,
    ngram_mod_n_min=1,
    ngram_mod_n_max=16,
)
OPTIONS = {"default": SpeculationOptions(), "eager": EAGER}


def novel(length: int, draws: random.Random) -> list[int]:
    """Zipf-like ids, so that short n-grams repeat as in text."""
    return [min(int(draws.paretovariate(0.7)), VOCABULARY - 1) for _ in range(length)]


def edited(length: int, draws: random.Random) -> list[int]:
    passage = novel(600, draws)
    tokens: list[int] = []
    while len(tokens) < length:
        tokens += [t if draws.random() > 1 / 40 else draws.randrange(VOCABULARY) for t in passage]
    return tokens[:length]


def loop(length: int, draws: random.Random) -> list[int]:
    period = [draws.randrange(VOCABULARY) for _ in range(7)]
    return [period[place % 7] for place in range(length)]


TEXTS = {"novel": novel, "edited": edited, "loop": loop}


def measure(drafter: Drafter, tokens: list[int], prompt: int, steps: int) -> dict[str, Any]:
    """Milliseconds of the steps that follow a prompt; ``tokens`` is what the target says."""
    begin = time.thread_time()
    drafter.open(0, tokens[:prompt], "")
    opened = time.thread_time() - begin
    length, spent, drafted, accepted = prompt + 1, [], 0, 0
    while len(spent) < steps and length + NODES < len(tokens):
        request = DraftRequest(0, tokens[:length], NODES)
        begin = time.thread_time()
        [draft] = drafter.draft([request])
        middle = time.thread_time()
        path = draft.matched(tokens[length:])
        outcome = Outcome(draft, path, tuple(tokens[length : length + len(path) + 1]), len(draft))
        again = time.thread_time()
        drafter.observe(0, outcome)
        spent.append(1e3 * (middle - begin + time.thread_time() - again))
        drafted, accepted = drafted + len(draft), accepted + len(path)
        length += len(path) + 1
    drafter.close(0)
    return {
        "open_ms": round(1e3 * opened, 1),
        "median_ms": round(statistics.median(spent), 4),
        "p99_ms": round(sorted(spent)[int(0.99 * (len(spent) - 1))], 4),
        "worst_ms": round(max(spent), 4),
        "steps": len(spent),
        "drafted": drafted,
        "accepted": accepted,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    methods = [name for name in implemented() if name.startswith("ngram-") or name == "suffix"]
    parser.add_argument("--methods", default=",".join(methods))
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    # these methods use nothing of the tokenizer
    resources = Resources(cast("Tokenizer", None), VOCABULARY, 1 << 20, 1)
    results = []
    for method in options.methods.split(","):
        for kind, make in TEXTS.items():
            # a step emits up to NODES + 1 tokens
            count = options.tokens + (NODES + 1) * options.steps
            tokens = make(count, random.Random(1))
            for setting, speculation in OPTIONS.items():
                [drafter] = create([method], speculation, resources)
                found = measure(drafter, tokens, options.tokens, options.steps)
                results.append({"method": method, "text": kind, "options": setting, **found})
                print(
                    f"{method:14}{kind:8}{setting:9}"
                    f"median {found['median_ms']:.3f}  p99 {found['p99_ms']:.3f}  "
                    f"worst {found['worst_ms']:.3f}  open {found['open_ms']:.0f}  "
                    f"accepted {found['accepted']}/{found['drafted']}"
                )
    date = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    within = all(result["median_ms"] <= BAR_MS for result in results)
    print(
        json.dumps(
            {"date": date, "tokens": options.tokens, "bar_ms": BAR_MS, "within": within}
            | {"results": results}
        )
    )


if __name__ == "__main__":
    main()
