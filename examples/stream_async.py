"""Two texts at once from one model, streamed in an event loop.

python examples/stream_async.py [MODEL]
"""

from __future__ import annotations

import asyncio
import sys

from slipstream import Model

PROMPTS = ("The capital of France is", "Water boils at")


async def follow(model: Model, prompt: str) -> str:
    text = ""
    async for piece in model.generate_async(prompt, max_tokens=24, temperature=0.7, seed=1):
        text += piece.text
        print(f"{prompt!r} +{len(piece.tokens)} token(s)")
    return text


async def both(model: Model) -> None:
    texts = await asyncio.gather(*(follow(model, prompt) for prompt in PROMPTS))
    for prompt, text in zip(PROMPTS, texts, strict=True):
        print(f"\n{prompt}{text}")


def main(name: str = "smollm2-135m") -> None:
    # room for two sequences; without `parallel` the second would wait for the first
    asyncio.run(both(Model(name, parallel=len(PROMPTS))))


if __name__ == "__main__":
    main(*sys.argv[1:])
