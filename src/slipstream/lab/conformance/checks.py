"""What a check is, and what it may know of the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slipstream.lab.conformance.asking import Asker
from slipstream.lab.conformance.comparing import Differ, Output, differ
from slipstream.lab.conformance.outcomes import ContractError, UnmeasuredError
from slipstream.lab.conformance.replies import Reply

CANCEL_S = 8.0
"""How long a stream that is cancelled would go on, about."""


@dataclass(frozen=True)
class Room:
    """What is known of the server.

    Attributes:
        flavour: ``slipstream``, ``llama.cpp``, ``vllm`` or ``unknown``.
        slots, context: requests at a time, tokens of one; None = not told.
        off: keys that would switch speculation off in a request, in the order to try them.
        methods: drafting methods that it says it offers.
        cancel_s: see ``CANCEL_S``.
    """

    flavour: str = "unknown"
    slots: int | None = None
    context: int | None = None
    off: Sequence[Mapping[str, Any]] = ()
    methods: Sequence[str] = ()
    cancel_s: float = CANCEL_S


@dataclass(frozen=True)
class Check:
    """
    Attributes:
        expected: the contract, in a sentence.
        run: asks one side; returns what must be the same without speculation, and raises
            ``ContractError``, ``RefusedError`` or ``UnmeasuredError``.
        both: whether it is made without speculation too.
        compares: it consists of the comparison alone.
        differ: how outputs are compared.
    """

    name: str
    expected: str
    run: Callable[[Asker, Room], Sequence[Output]]
    both: bool = True
    compares: bool = False
    differ: Differ = field(default=differ)


def require(held: object, found: str, reply: Reply) -> None:
    """
    Raises:
        ContractError: it did not hold.
    """
    if not held:
        raise ContractError(found, reply.request)


def measurable(held: object, reason: str) -> None:
    """
    Raises:
        UnmeasuredError: it did not hold.
    """
    if not held:
        raise UnmeasuredError(reason)
