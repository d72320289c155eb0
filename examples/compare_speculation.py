"""The same prompt with speculation off and on: the same tokens, fewer passes.

    python examples/compare_speculation.py [MODEL]

Drafts come from text that repeats, so the prompt asks for a repetition.
"""

from __future__ import annotations

import sys

from slipstream import Model

PROMPT = """Stock list:
bolt-m3, shelf A1, 120 pieces
bolt-m4, shelf A2, 340 pieces
bolt-m5, shelf A3, 95 pieces

The same list again:
bolt-m3, shelf A1, 120 pieces
"""


def main(name: str = "smollm2-135m") -> None:
    model = Model(name)
    plain = model.complete(PROMPT, max_tokens=48)
    drafted = model.complete(
        PROMPT, max_tokens=48, spec="ngram-simple", ngram_simple_size_n=3, ngram_simple_size_m=12
    )
    assert drafted.ids == plain.ids, "speculation never changes the output"
    print(drafted.text)
    for label, completion in (("off", plain), ("on", drafted)):
        stats = completion.statistics
        print(
            f"speculation {label}: {stats.target_passes} passes for {stats.emitted} tokens, "
            f"drafted {stats.drafted}, accepted {stats.accepted}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
