"""Stream a text, then say what it cost.

    python examples/generate.py [MODEL] [PROMPT]

MODEL is a path or a catalogue name that `slipstream pull` has fetched.
"""

from __future__ import annotations

import sys

from slipstream import Model


def main(model: str = "smollm2-135m", prompt: str = "The three primary colours are") -> None:
    for piece in Model(model).generate(prompt, max_tokens=48):
        print(piece.text, end="", flush=True)
        if piece.statistics is not None:
            stats = piece.statistics
            print(f"\n\n{stats.emitted} tokens in {stats.total_s:.2f} s ({piece.finish_reason})")


if __name__ == "__main__":
    main(*sys.argv[1:])
