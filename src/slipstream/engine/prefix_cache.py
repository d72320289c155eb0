"""Prompts computed once per session: a sequence that starts shares what its session has of one.

The keys of a prefix depend on its tokens alone, bit for bit (row invariance), so it does not matter
which sequence computed them, nor in what chunks. Where a backend has ops whose bits depend on the
rows of a pass, reused keys may differ in the last bits, as a prompt's chunks make them differ.

Two sources are used alike: sequences that ended, whose memory is kept, and those that run. Where a
running one is still computing more of the prompt than there is yet, the new one waits for it: so n
choices of one prompt compute it once.

A fork takes no memory and pages are shared until written. Running sequences win: whenever a step
lacks a page, the memory calls ``PrefixCache.evict`` until there is one or nothing is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slipstream.engine.sequence import SequenceState
from slipstream.memory.base import PAGE_POSITIONS, Memory

SHORTEST = 16
"""Tokens of a prefix that is worth sharing: so few rows cost little more than one."""
WAIT = PAGE_POSITIONS
"""Tokens computed by another one that are worth waiting for: a pass takes its time too."""


@dataclass(eq=False, slots=True)
class _Kept:
    """A sequence that ended: ``tokens`` are those of its first positions in memory."""

    session: str
    tokens: list[int]
    handle: int


class PrefixCache:
    """One per memory; its engines share it.

    Nothing of one session is ever used for another. Not safe for threads: whoever steps an engine
    of the memory may call it.

    Args:
        memory: of the program; calls ``evict`` when it lacks pages.
        entries: most sequences kept.
        pages: most pages kept in a layer group; None = all that running sequences leave.
    """

    def __init__(self, memory: Memory, entries: int, pages: int | None = None) -> None:
        self.memory = memory
        self._most = entries
        self._pages = pages
        self._kept: list[_Kept] = []  # used longest ago first
        memory.reclaim = self.evict

    def __len__(self) -> int:
        return len(self._kept)

    def sessions(self) -> dict[str, int]:
        """Session -> tokens kept, shared ones counted for each sequence."""
        found: dict[str, int] = {}
        for kept in self._kept:
            found[kept.session] = found.get(kept.session, 0) + len(kept.tokens)
        return found

    def take(
        self, session: str, tokens: Sequence[int], running: Iterable[SequenceState] = ()
    ) -> tuple[int, int] | None:
        """Memory for a sequence that starts.

        Args:
            tokens: its prompt, of which at least the last token is left to compute.
            running: sequences of the same memory, of any session.

        Returns:
            Its handle and how many tokens of the prompt that holds; None = it had better wait, for
            one of ``running`` is computing more of the prompt.
        """
        prompt, most = list(tokens), len(tokens) - 1
        own = [kept for kept in self._kept if kept.session == session]
        mates = [m for m in running if m.session == session and m.shareable and m.handle >= 0]
        alike = [min(agreement(prompt, mate.tokens), most) for mate in mates]
        sources = [(min(agreement(prompt, kept.tokens), most), kept.handle) for kept in own]
        promised = 0
        for mate, count in zip(mates, alike, strict=True):
            sources.append((min(count, mate.committed), mate.handle))
            if mate.committed < count and mate.prompt_left:
                promised = max(promised, count)
        reused, source = max(filter(self._serves, sources), default=(0, -1))
        if promised - reused >= WAIT:
            return None
        if source < 0:
            return self.memory.open(), 0
        self._touch(source)
        return self.memory.fork(source, reused), reused

    def _serves(self, source: tuple[int, int]) -> bool:
        """Whether a fork of so many tokens of a handle is possible and worth it."""
        length, handle = source
        return length >= max(SHORTEST, self.memory.earliest(handle))

    def _touch(self, handle: int) -> None:
        self._kept.sort(key=lambda kept: kept.handle == handle)

    def keep(self, session: str, tokens: Sequence[int], handle: int) -> None:
        """Take over the memory of a sequence that ended.

        Args:
            tokens: of its first positions; what it holds beyond them is never used.
        """
        entry = _Kept(session, list(tokens), handle)
        if not self._fits(entry):
            self.memory.close(handle)
            return
        for kept in list(self._kept):
            if self._replaces(kept, entry):
                self._touch(kept.handle)
                self.memory.close(handle)
                return
            if self._replaces(entry, kept):
                self._drop(kept)
        self._kept.append(entry)
        while len(self._kept) > self._most or self._too_many_pages():
            self.evict()

    def _fits(self, entry: _Kept) -> bool:
        """Cut an entry to the pages that may be kept; whether enough of it is left."""
        if self._pages is not None:
            most = self._pages * PAGE_POSITIONS
            if self.memory.length(entry.handle) > most:
                if self.memory.earliest(entry.handle) > most:
                    return False
                self.memory.truncate(entry.handle, most)
                del entry.tokens[most:]
        return len(entry.tokens) >= SHORTEST

    def _replaces(self, one: _Kept, other: _Kept) -> bool:
        """Whether one serves for every prompt for which the other would."""
        if one.session != other.session or one.tokens[: len(other.tokens)] != other.tokens:
            return False
        earliest = self.memory.earliest
        return earliest(one.handle) <= max(earliest(other.handle), SHORTEST)

    def _too_many_pages(self) -> bool:
        if self._pages is None:
            return False
        return self.memory.pages_held(kept.handle for kept in self._kept) > self._pages

    def _drop(self, kept: _Kept) -> None:
        self._kept.remove(kept)
        self.memory.close(kept.handle)

    def evict(self) -> bool:
        """Drop the sequence used longest ago; False where there is none."""
        if not self._kept:
            return False
        self._drop(self._kept[0])
        return True

    def forget(self, session: str | None = None) -> None:
        """Drop what is kept of a session, or everything."""
        for kept in list(self._kept):
            if session in (None, kept.session):
                self._drop(kept)


def agreement(ours: list[int], theirs: list[int]) -> int:
    """Tokens in which two lists begin alike."""
    low, high = 0, min(len(ours), len(theirs))
    if ours[:high] == theirs[:high]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if ours[low:middle] == theirs[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
