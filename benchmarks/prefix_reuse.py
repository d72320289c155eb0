"""Time to first token of a conversation's second turn: its prompt reused, and computed again.

    python benchmarks/prefix_reuse.py [MODEL] [--tokens 200,800,3200] [--rounds 5] [--threads N]

Per round: a first turn, then the second with what the session has of it, then the same prompt after
``forget``. Both outputs must be equal. Medians over the rounds. Ends with one JSON line.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
from typing import Any

from slipstream import Completion, Model

PASSAGE = (
    "The harbour master kept two books. In the first he wrote the ships that came and what they "
    "carried: timber from the north, salt, oranges in crates, once a piano. In the second he "
    "wrote what the captains told him while they waited for the tide. "
)
QUESTION = "\n\nAnd what was in the second book?"
OUTPUT = 24


def first_token_ms(done: Completion) -> float:
    assert done.statistics.ttft_s is not None
    return 1000 * done.statistics.ttft_s


def measured(model: Model, tokens: int, rounds: int) -> dict[str, Any]:
    """Medians for a first prompt of so many tokens."""
    opening = model.tokenizer.encode(PASSAGE * (tokens // 20 + 1))[:tokens]
    question = model.tokenizer.encode(QUESTION)
    options = {"max_tokens": OUTPUT, "ignore_eos": True}
    reused, computed = [], []
    for _ in range(rounds):
        first = model.complete(opening, **options)
        prompt = [*opening, *first.ids, *question]
        reused.append(model.complete(prompt, **options))
        model.forget()
        computed.append(model.complete(prompt, **options))
        model.forget()
        if reused[-1].ids != computed[-1].ids:
            raise SystemExit("the outputs differ")
    return {
        "prompt_tokens": reused[0].statistics.prompt_tokens,
        "reused_tokens": reused[0].statistics.reused_tokens,
        "reused_ms": statistics.median(map(first_token_ms, reused)),
        "computed_ms": statistics.median(map(first_token_ms, computed)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", nargs="?", default="smollm2-135m")
    parser.add_argument("--tokens", default="200,800,3200")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    model = Model(options.model, threads=options.threads)
    lines = [measured(model, int(tokens), options.rounds) for tokens in options.tokens.split(",")]
    print("prompt  reused  first token reused  computed")
    for line in lines:
        print(
            f"{line['prompt_tokens']:6}  {line['reused_tokens']:6}  "
            f"{line['reused_ms']:15.1f} ms  {line['computed_ms']:5.0f} ms"
        )
    record = {
        "benchmark": "prefix_reuse",
        "date": datetime.date.today().isoformat(),
        "model": options.model,
        "rounds": options.rounds,
        "lines": lines,
    }
    print(json.dumps(record))


if __name__ == "__main__":
    main()
