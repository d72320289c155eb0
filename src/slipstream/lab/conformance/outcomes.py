"""What a check may end in, and what the suite found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

Outcome = Literal["passed", "failed", "not measurable"]
Request = Mapping[str, Any]
"""``path`` and ``body`` of a request; headers stay out, a key may be among them."""

ALL_PASSED: Final = 0
ONE_FAILED: Final = 1
NOT_ALL_MEASURED: Final = 2


class ContractError(Exception):
    """The server broke its contract.

    Args:
        found: what it did.
        request: that shows it.
    """

    def __init__(self, found: str, request: Request | None = None) -> None:
        super().__init__(found)
        self.found = found
        self.request = request


class RefusedError(ContractError):
    """It refused a request that some servers cannot serve; no fault while it refuses it always."""


class UnmeasuredError(Exception):
    """The check cannot be made here; the message says why."""


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """One check.

    Args:
        outcome: of the check with speculation; ``failed`` also where the comparison failed.
        expected: the contract.
        found: what was found, or why nothing could be.
        request: that shows it, where it failed.
        drafted: draft tokens in its requests; None = the server does not tell.
        comparison, compared: with the same server without speculation, and what that showed.
    """

    check: str
    outcome: Outcome
    expected: str
    found: str
    request: dict[str, Any] | None = None
    drafted: int | None = None
    comparison: Outcome = "not measurable"
    compared: str = ""


class Conformance(msgspec.Struct, frozen=True, kw_only=True):
    """What the suite found of one server.

    Args:
        flavour: ``slipstream``, ``llama.cpp``, ``vllm`` or ``unknown``.
        speculation: how its requests draft.
        without: how they do not, or why that cannot be had.
    """

    url: str
    flavour: str
    model: str
    speculation: str
    without: str
    results: tuple[CheckResult, ...]

    def count(self, outcome: Outcome) -> int:
        return sum(result.outcome == outcome for result in self.results)

    @property
    def exit_code(self) -> int:
        """0: every check passed; 1: one failed; 2: none failed, one could not be made."""
        if self.count("failed"):
            return ONE_FAILED
        return NOT_ALL_MEASURED if self.count("not measurable") else ALL_PASSED
