"""A drafter of your own: what followed the newest two tokens the last time they stood together.

    python examples/custom_drafter.py [MODEL]

A drafter may be wrong, slow or broken: that costs time, the output stays the same.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from slipstream import Model
from slipstream.drafters.base import BaseDrafter, Draft, DraftRequest


class LastFollowers(BaseDrafter):
    name = "last-followers"

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [Draft.chain(self.followers(request), self.name) for request in requests]

    def followers(self, request: DraftRequest) -> Sequence[int]:
        tokens = request.tokens
        for place in range(len(tokens) - 3, -1, -1):
            if tokens[place : place + 2] == tokens[-2:]:
                return tokens[place + 2 : place + 2 + request.n_max]
        return ()


def main(name: str = "smollm2-135m") -> None:
    prompt = "bolt-m3, shelf A1, 120 pieces\nbolt-m4, shelf A2, 340 pieces\nAgain:\nbolt-m3,"
    model = Model(name)
    plain = model.complete(prompt, max_tokens=48)
    drafted = model.complete(prompt, max_tokens=48, drafters=[LastFollowers()])
    assert drafted.ids == plain.ids, "speculation never changes the output"
    stats = drafted.statistics
    print(drafted.text)
    print(f"last-followers: drafted {stats.drafted}, accepted {stats.accepted}")


if __name__ == "__main__":
    main(*sys.argv[1:])
