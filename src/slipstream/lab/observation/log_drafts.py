"""Drafting so far, from the line that llama.cpp's servers log after a request that drafted."""

from __future__ import annotations

import re
from typing import Final

from slipstream.lab.contract.records import Counts
from slipstream.lab.observation.log_scan import NO_SPECULATIVE, STATISTICS, LineFeed

_ACCEPTANCE: Final = re.compile(r"draft acceptance\D*[\d.]+ \(\s*(\d+) accepted /\s*(\d+)")


class DraftLines:
    """Counts of a log that is given piece by piece."""

    def __init__(self) -> None:
        self._feed = LineFeed()
        self._drafted = self._accepted = 0
        self._told = False

    def take(self, data: bytes) -> None:
        """What came since the last piece; whole lines alone are read."""
        for line in self._feed.lines(data):
            if match := _ACCEPTANCE.search(line):
                self._accepted += int(match[1])
                self._drafted += int(match[2])
            self._told |= bool(match or STATISTICS.search(line) or NO_SPECULATIVE in line)

    def counts(self) -> Counts:
        """Cumulative; unknown until a line tells of drafting, or that nothing drafts."""
        if not self._told:
            return Counts()
        return Counts(drafted=self._drafted, accepted=self._accepted, source="counters")
