"""What the drafter `suffix` costs: opening a prompt, a step, closing a sequence.

    python benchmarks/suffix_cost.py [--tokens 8192] [--steps 400]

No model runs: a known output is decoded step by step as an engine would with matching, each step
with one call of `draft` and one of `observe` (in them the new tokens are learnt). The prompt is
this package's own source, split into words and signs. Outputs: `copy` (the source again, one name
changed), `new` (random words of the source, nothing to draft from), `loop` (30 tokens for ever),
and `warm` (a finished text of the scope again). Microseconds; means suffer from neighbours on the
machine, the lower decile least. Ends with one JSON line.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import slipstream
from slipstream.drafters.base import Draft, DraftRequest, Outcome
from slipstream.drafters.suffix import Suffix

N_MAX = 15  # nodes per step, as a controller may ask for


def source_tokens(count: int) -> list[int]:
    """Ids of words, runs of blanks and signs of the package's source files."""
    ids: dict[str, int] = {}
    tokens: list[int] = []
    for path in sorted(Path(slipstream.__file__).parent.rglob("*.py")):
        pieces = re.findall(r"\s?\w{1,6}|\s+|[^\w\s]{1,2}", path.read_text())
        tokens += [ids.setdefault(piece, len(ids)) for piece in pieces]
        if len(tokens) >= count:
            break
    return tokens[:count]


def renamed(tokens: Sequence[int]) -> list[int]:
    """A frequent token replaced by a new one."""
    frequent = statistics.mode(tokens[:2000])
    return [1_000_000 if token == frequent else token for token in tokens]


def decode(
    drafter: Suffix, sequence: int, prompt: Sequence[int], output: Sequence[int], steps: int
) -> dict[str, float]:
    """Open, decode for some steps and close; returns figures."""
    begin = time.perf_counter()
    drafter.open(sequence, prompt, "session")
    opened = time.perf_counter() - begin
    tokens, emitted, accepted, drafted, times = [*prompt, output[0]], 1, 0, 0, []
    drafter.observe(sequence, Outcome(Draft(), (), (output[0],)))
    while len(times) < steps and emitted + N_MAX < len(output):
        begin = time.perf_counter()
        [draft] = drafter.draft([DraftRequest(sequence, tokens, N_MAX)])
        middle = time.perf_counter()
        path = draft.matched(output[emitted : emitted + N_MAX])
        new = tuple(output[emitted : emitted + len(path) + 1])
        outcome = Outcome(draft, path, new, len(draft))
        resumed = time.perf_counter()
        drafter.observe(sequence, outcome)
        times.append(middle - begin + time.perf_counter() - resumed)
        tokens += new
        emitted += len(new)
        accepted += len(path)
        drafted += len(draft)
    begin = time.perf_counter()
    drafter.close(sequence)
    closed = time.perf_counter() - begin
    times.sort()
    return {
        "open_us_per_token": round(1e6 * opened / len(prompt), 3),
        "close_us_per_token": round(1e6 * closed / len(tokens), 3),
        "steps": len(times),
        "step_us_mean": round(1e6 * statistics.mean(times), 1),
        "step_us_10": round(1e6 * times[len(times) // 10], 1),
        "step_us_median": round(1e6 * statistics.median(times), 1),
        "step_us_95": round(1e6 * times[int(0.95 * len(times))], 1),
        "drafted_per_step": round(drafted / len(times), 2),
        "accepted_per_step": round(accepted / len(times), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    prompt = source_tokens(options.tokens)
    generator = random.Random(1)
    outputs = {
        "copy": renamed(prompt),
        "new": generator.choices(prompt, k=options.steps * 2),
        "loop": generator.choices(prompt, k=30) * (options.steps // 2),
    }
    results = {}
    for name, output in outputs.items():
        results[name] = decode(Suffix(), 0, prompt, output, options.steps)
    drafter = Suffix()
    decode(drafter, 0, prompt, outputs["new"], options.steps)
    results["warm"] = decode(drafter, 1, prompt[:-1], outputs["new"], options.steps)
    for name, figures in results.items():
        print(name, *(f"{key}={value}" for key, value in figures.items()))
    print(json.dumps({"tokens": len(prompt), "n_max": N_MAX, "outputs": results}))


if __name__ == "__main__":
    main()
