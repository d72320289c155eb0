"""The time balance of speculation, against times that are known."""

from __future__ import annotations

from typing import Any

import pytest

from slipstream.engine.statistics import Round
from slipstream.measure.balance import summed, time_balance


def made(drafted: int = 0, accepted: int = 0, **times: float) -> Round:
    """A round whose pass costs 10 ms and 1 ms a draft row, sampling 1 ms, committing 0.5 ms."""
    seconds: dict[str, Any] = {
        "elapsed_s": 0.010 + 0.001 * drafted,
        "sample_s": 0.001,
        "commit_s": 0.0005,
        **times,
    }
    return Round(
        drafted=drafted,
        tested=accepted,
        accepted=accepted,
        reached=accepted,
        sampled=accepted + 1,
        emitted=accepted + 1,
        discarded=0,
        rows=drafted + 1,
        **seconds,
    )


PROMPT = made(elapsed_s=0.4)
PLAIN = [PROMPT, *[made() for _ in range(9)]]


def test_cost_less_saving_is_the_time_less_the_plain_time() -> None:
    rounds = [PROMPT, made(draft_s=0.002), made(4, 3, draft_s=0.003), made(4, 0, sample_s=0.004)]
    balance = time_balance(rounds, PLAIN)
    assert balance is not None
    each = 0.0115
    assert balance.plain_s == pytest.approx(6 * each)
    assert balance.draft_s == pytest.approx(0.005)
    assert balance.extra_rows_s == pytest.approx(0.008)
    assert balance.bookkeeping_s == pytest.approx(0.003)
    assert balance.saved_s == pytest.approx(3 * each)
    spent = sum(r.draft_s + r.elapsed_s + r.sample_s + r.commit_s for r in rounds[1:])
    assert balance.net_s == pytest.approx(spent - 6 * each)
    assert balance.net_share == pytest.approx(spent / (6 * each) - 1)
    assert balance.reference == "plain rounds"


def test_plain_rounds_balance_to_nothing() -> None:
    balance = time_balance(PLAIN, PLAIN)
    assert balance is not None
    assert balance.net_s == pytest.approx(0)


def test_a_slow_pass_without_a_draft_is_no_cost_of_speculation() -> None:
    balance = time_balance([PROMPT, made(elapsed_s=0.5), made()], PLAIN)
    assert balance is not None
    assert balance.extra_rows_s == 0


def test_without_plain_rounds_committing_counts_as_cost() -> None:
    rounds = [PROMPT, made(), made(), made(4, 3)]
    balance = time_balance(rounds)
    assert balance is not None
    assert balance.reference == "own undrafted rounds"
    assert balance.bookkeeping_s == pytest.approx(3 * 0.0005)
    assert balance.plain_s == pytest.approx(6 * 0.011)
    exact = time_balance(rounds, PLAIN)
    assert exact is not None
    assert balance.net_share > exact.net_share


@pytest.mark.parametrize("rounds", [[], [PROMPT], [PROMPT, made(4, 2)]])
def test_nothing_is_said_without_a_reference(rounds: list[Round]) -> None:
    assert time_balance(rounds) is None


def test_sums_weigh_requests_by_their_time() -> None:
    cheap = time_balance([PROMPT, made(), made(4, 4)], PLAIN)
    dear = time_balance([PROMPT, *[made(4, 0)] * 8], PLAIN)
    assert cheap is not None
    assert dear is not None
    both = summed([cheap, dear])
    assert both is not None
    assert both.net_s == pytest.approx(cheap.net_s + dear.net_s)
    assert cheap.net_share < both.net_share < dear.net_share
    assert summed([]) is None
