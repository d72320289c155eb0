"""Where a sequence copies from, kept over edits, and the edits themselves.

A *copy pointer* is the place in a text that the sequence's next token is expected from. Where the
sequence departs from it, the pointer waits there; it resumes at the nearest place behind the
departure where the newest ``RESUME`` tokens agree again. What lay between is an *edit*: tokens of
the source, and what stood for them. The same tokens ahead of a pointer are then expected to be
edited likewise (a renamed variable, a changed quote), which plain suffix matching cannot foresee.

The constants are the best of those tried on 28 outputs of qwen2.5-coder-0.5b, 5 of them of editing
(2026-11-30): double or half of one costs editing up to 3 %, to have no pointer costs it 8 %.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from slipstream.drafters.suffix_calibration import COPY, RESUMED
from slipstream.drafters.suffix_edits import EDIT_MAX, Edits
from slipstream.drafters.suffix_index import MATCH_MAX, SEPARATOR, SuffixIndex
from slipstream.drafters.suffix_tree import Occurrence

ADOPT = 4  # tokens of match from which on a place is worth a pointer
RESUME = 2  # newest tokens that must agree for a pointer to go on
WINDOW = 8  # tokens behind a departure where the copying may go on, beside those emitted since
LOST_MAX = 24  # tokens emitted since the departure after which a pointer is dropped
SURE_TOKENS, SURE_MOST = 8, 6  # every 8 tokens copied so far count as one of match, at most 6


@dataclass(slots=True)
class CopyPointer:
    """
    Attributes:
        source: the text copied from.
        place: index of the next token expected; while lost, of the token departed from.
        run: tokens that agreed in a row before ``place``.
        copied: tokens that agreed in all.
        skipped: tokens emitted since the departure; none while the copying goes on.
    """

    source: SuffixIndex
    place: int
    run: int
    copied: int = 0
    skipped: list[int] = field(default_factory=list)

    @property
    def lost(self) -> bool:
        return bool(self.skipped)

    def copy(self) -> CopyPointer:
        return CopyPointer(self.source, self.place, self.run, self.copied, self.skipped[:])

    def sure(self, agreeing: int) -> int:
        """Length of match that a continuation here is worth."""
        return min(agreeing + min(self.copied // SURE_TOKENS, SURE_MOST), MATCH_MAX)

    def agree(self, tokens: array[int], first: int) -> int:
        """Go on by as many of a sequence's tokens from ``first`` on as agree; how many did."""
        source, place = self.source.tokens, self.place
        count = len(tokens) - first
        if source[place : place + count] != tokens[first:]:
            count = min(count, len(source) - place)
            pairs = zip(source[place : place + count], tokens[first:], strict=False)
            count = next((i for i, (one, other) in enumerate(pairs) if one != other), count)
        self.place += count
        self.run += count
        self.copied += count
        return count

    def depart(self, token: int, stop: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """The sequence goes on by a token that is not expected here, or while lost.

        Args:
            stop: tokens of the source that may be copied.

        Returns:
            The edit (replaced, emitted) where the copying just resumed behind one.
        """
        self.skipped.append(token)
        resumptions = self.resumptions(stop)
        if not resumptions or resumptions[0][1] < RESUME:
            return None
        return self._resume(*resumptions[0])

    def _resume(self, place: int, agreeing: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        replaced = tuple(self.source.tokens[self.place : place - agreeing])
        emitted = tuple(self.skipped[:-agreeing])
        if not replaced or not emitted:
            # an insertion or deletion is told by the token behind it
            kept = (self.skipped[-agreeing],)
            replaced, emitted = replaced + kept, emitted + kept
        self.place, self.run = place, agreeing
        self.copied += agreeing
        self.skipped = []
        return (replaced, emitted) if max(len(replaced), len(emitted)) <= EDIT_MAX else None

    def resumptions(self, stop: int) -> list[tuple[int, int]]:
        """Places behind the departure where the newest tokens agree, best first.

        Returns:
            (index of the next token, tokens that agree); more that agree come first, then the
            place nearest to a departure of equal length on both sides.
        """
        tokens, skipped, first = self.source.tokens, self.skipped, self.place
        last = min(first + WINDOW + len(skipped), stop)
        found: list[tuple[int, int]] = []
        place = first
        while place < last:
            try:
                place = tokens.index(skipped[-1], place, last) + 1
            except ValueError:
                break
            agreeing = 1
            deepest = min(len(skipped), place - first)
            while agreeing < deepest and tokens[place - 1 - agreeing] == skipped[-1 - agreeing]:
                agreeing += 1
            found.append((place, agreeing))
        expected = first + len(skipped)
        found.sort(key=lambda pair: (-pair[1], abs(pair[0] - expected)))
        return found


class Copying:
    """The pointer of one sequence, if it has one, and its edits.

    Args:
        own: the sequence's own text, which grows; the pointer may stand in it or in another.
    """

    def __init__(self, own: SuffixIndex) -> None:
        self.edits = Edits()
        self._own = own
        self._pointer: CopyPointer | None = None

    def copy(self, own: SuffixIndex) -> Copying:
        """For a fork, whose own text is a copy."""
        twin = Copying(own)
        twin.edits = self.edits.copy()
        if self._pointer is not None:
            twin._pointer = self._pointer.copy()
            if self._pointer.source is self._own:
                twin._pointer.source = own
        return twin

    def follow(self, place: int) -> None:
        """The own text has grown: its tokens from ``place`` on are new."""
        pointer, tokens = self._pointer, self._own.tokens
        while pointer is not None and place < len(tokens):
            if not pointer.lost:
                before = pointer.place
                place += pointer.agree(tokens, place)
                self.edits.left_out(pointer.source.tokens, before, pointer.place)
                if place == len(tokens):
                    return
            edit = pointer.depart(tokens[place], self._stop(pointer, place))
            place += 1
            if edit is not None:
                self.edits.learn(*edit)
            elif pointer.lost:
                self._follow_known_edit(pointer, self._stop(pointer, place))
            if len(pointer.skipped) > LOST_MAX:
                self._pointer = pointer = None

    def _stop(self, pointer: CopyPointer, length: int) -> int:
        """How much of the source existed when the own text had a length."""
        return length if pointer.source is self._own else len(pointer.source)

    def _follow_known_edit(self, pointer: CopyPointer, stop: int) -> None:
        for edit in self.edits.at(pointer.source.tokens, pointer.place):
            behind = pointer.place + len(edit.replaced)
            if behind < stop and list(edit.emitted) == pointer.skipped:
                edit.made += 1
                pointer.place = behind
                pointer.skipped = []
                return

    def adopt(self, source: SuffixIndex, place: int, length: int) -> None:
        """A place with a long match becomes the pointer, unless the copying goes on."""
        if length >= ADOPT and (self._pointer is None or self._pointer.lost):
            self._pointer = CopyPointer(source, place, length, length)

    def occurrences(self, most: int) -> list[Occurrence]:
        """Continuations at the pointer.

        Args:
            most: tokens of an edited continuation.
        """
        pointer = self._pointer
        if pointer is None:
            return []
        if pointer.lost:
            return self._behind_departure(pointer, most)
        return self._ahead(pointer, pointer.place, pointer.run, COPY, most)

    def _ahead(
        self, pointer: CopyPointer, place: int, agreeing: int, kind: int, most: int
    ) -> list[Occurrence]:
        tokens, sure = pointer.source.tokens, pointer.sure(agreeing)
        plain = Occurrence(tokens, place, sure, kind)
        edited, ratio = self.edits.applied(tokens, place, most)
        if not ratio:
            return [plain]
        return [plain, Occurrence([*edited, SEPARATOR], 0, sure, kind, ratio / (1.0 - ratio))]

    def _behind_departure(self, pointer: CopyPointer, most: int) -> list[Occurrence]:
        """Where a known edit goes on, or the newest tokens agree."""
        tokens, skipped, first = pointer.source.tokens, pointer.skipped, pointer.place
        stop = self._stop(pointer, len(self._own) - 1)
        if first >= stop:
            return []
        for edit in self.edits.at(tokens, first):
            if list(edit.emitted[: len(skipped)]) == skipped:
                rest, _ = self.edits.applied(tokens, first + len(edit.replaced), most)
                going_on = [*edit.emitted[len(skipped) :], *rest, SEPARATOR]
                return [Occurrence(going_on, 0, pointer.sure(len(skipped)), COPY)]
        resumptions = pointer.resumptions(stop)
        return self._ahead(pointer, *resumptions[0], RESUMED, most) if resumptions else []
