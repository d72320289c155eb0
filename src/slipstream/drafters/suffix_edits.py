"""Edits that a sequence made while it copied, and where they are to be expected again.

An edit that was made h times and left out k times is expected with ratio (h + 1) / (h + k + 2),
Laplace's rule, and only above ``LIKELY``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

EDIT_MAX = 8  # most tokens on either side of an edit
LIKELY = 0.5  # ratio above which an edit is expected
EDITS = 256  # most edits remembered per sequence


@dataclass(slots=True)
class Edit:
    """``replaced`` tokens of a source and the ``emitted`` ones that stood for them."""

    replaced: tuple[int, ...]
    emitted: tuple[int, ...]
    made: int = 1
    left_out: int = 0

    @property
    def ratio(self) -> float:
        return (self.made + 1) / (self.made + self.left_out + 2)


class Edits:
    """The edits of one sequence by the first token replaced, the newest of the same kind."""

    def __init__(self) -> None:
        self._edits: dict[tuple[int, ...], Edit] = {}
        self._by_first: dict[int, list[Edit]] = {}

    def learn(self, replaced: tuple[int, ...], emitted: tuple[int, ...]) -> None:
        known = self._edits.pop(replaced, None)
        if known is not None and known.emitted == emitted:
            known.made += 1
            self._edits[replaced] = known
            return
        if known is not None:
            self._by_first[replaced[0]].remove(known)
        elif len(self._edits) == EDITS:
            oldest = self._edits.pop(next(iter(self._edits)))
            self._by_first[oldest.replaced[0]].remove(oldest)
        self._edits[replaced] = edit = Edit(replaced, emitted)
        self._by_first.setdefault(replaced[0], []).insert(0, edit)

    def copy(self) -> Edits:
        twin = Edits()
        twin._edits = {key: replace(edit) for key, edit in self._edits.items()}
        twin._by_first = {
            first: [twin._edits[edit.replaced] for edit in edits]
            for first, edits in self._by_first.items()
        }
        return twin

    def at(self, tokens: Sequence[int], place: int) -> list[Edit]:
        """Edits of what stands at a place."""
        return [
            edit
            for edit in self._by_first.get(tokens[place], ())
            if tuple(tokens[place : place + len(edit.replaced)]) == edit.replaced
        ]

    def left_out(self, tokens: Sequence[int], first: int, stop: int) -> None:
        """The places from ``first`` to ``stop`` were copied as they stand."""
        if self._by_first.keys().isdisjoint(tokens[first:stop]):
            return
        for place in range(first, stop):
            for edit in self.at(tokens, place):
                edit.left_out += 1

    def applied(self, tokens: Sequence[int], place: int, most: int) -> tuple[list[int], float]:
        """The text from a place on with the expected edits made, and the least ratio of those.

        Returns:
            About ``most`` tokens; ratio 0 where nothing was to be edited.
        """
        if self._by_first.keys().isdisjoint(tokens[place : place + most]):
            return list(tokens[place : place + most]), 0.0
        made: list[int] = []
        ratio, firsts, end = 0.0, self._by_first, len(tokens)
        while len(made) < most and place < end:
            token = tokens[place]
            edit = self._likely(tokens, place) if token in firsts else None
            if edit is None:
                made.append(token)
                place += 1
                continue
            made += edit.emitted
            place += len(edit.replaced)
            ratio = min(ratio or 1.0, edit.ratio)
        return made, ratio

    def _likely(self, tokens: Sequence[int], place: int) -> Edit | None:
        """The newest of those of ``at`` that are expected."""
        for edit in self._by_first[tokens[place]]:
            if edit.ratio > LIKELY:
                replaced = edit.replaced
                if tuple(tokens[place : place + len(replaced)]) == replaced:
                    return edit
        return None
