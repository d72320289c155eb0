"""Synthetic acceptance: its rates, its options, and that nothing takes its output for valid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from drafters_for_tests import TestDrafter
from engines import check_counts, fake_engine, run
from fake_model import MakeModel, fake_models
from slipstream.acceptance_rates import conditional, rates_given, rates_of_length
from slipstream.drafters.base import Draft, DraftRequest
from slipstream.engine.controller import DoublingController
from slipstream.errors import BackendError, OptionError
from slipstream.options import SamplingOptions, SpeculationOptions, longest_draft
from slipstream.sampling import NumpyPrimitives, SamplerState
from slipstream.verify.base import Verdict
from slipstream.verify.choice import verifier_for
from slipstream.verify.synthetic import Synthetic

PROMPT = [1, 2, 3, 4, 5]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> MakeModel:
    return fake_models(monkeypatch)


@pytest.mark.parametrize(("length", "p"), [(2.0, 0.5436890), (2.5, 0.6914140)])
def test_bisection_known_answers(length: float, p: float) -> None:
    """llama.cpp's, recomputed: p + p^2 + p^3 = length - 1."""
    rates = rates_of_length(length, 3)
    assert rates == pytest.approx((p, p**2, p**3), abs=1e-7)
    assert sum(rates) == pytest.approx(length - 1)


def test_the_ends_of_the_bisection_are_exact() -> None:
    assert rates_of_length(1.0, 3) == (0.0, 0.0, 0.0)
    assert rates_of_length(4.0, 3) == (1.0, 1.0, 1.0)
    assert rates_of_length(1.0, 0) == ()


@pytest.mark.parametrize("length", [0.99, 4.01, 100.0])
def test_a_length_that_no_draft_has(length: float) -> None:
    with pytest.raises(OptionError, match="`synth_len` from 1 to 4"):
        rates_of_length(length, 3)


def test_rates_are_conditioned_on_those_before() -> None:
    assert conditional((0.8, 0.4, 0.0, 0.0)) == (0.8, 0.5, 0.0, 0.0)
    assert conditional(()) == ()


def test_rates_are_read() -> None:
    assert rates_given("0.9, 0.5,0", 3) == (0.9, 0.5, 0.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.9,0.5", "3 `synth_rates`, one per token of the longest draft; found 2"),
        ("0.9,0.5,0.4,0.3", "3 `synth_rates`.*found 4"),
        ("0.9,x,0.4", "numbers with commas"),
        ("", "numbers with commas"),
        ("x" * 10_000, "numbers with commas"),
        ("1.1,0.5,0.4", "from 0 to 1; found 1.1"),
        ("0.9,0.5,-0.1", "from 0 to 1; found -0.1"),
        ("nan,0.5,0.4", "from 0 to 1; found nan"),
        ("0.5,0.6,0.4", "never rise; found 0.6 after 0.5"),
    ],
)
def test_rates_that_make_no_sense(text: str, message: str) -> None:
    options = {"type": "draft-simple", "n_max": 3, "synth_rates": text}
    with pytest.raises(OptionError, match=message) as raised:
        SpeculationOptions(**options)  # type: ignore[arg-type]
    assert len(str(raised.value)) < 400


def test_rates_and_length_exclude_each_other() -> None:
    with pytest.raises(OptionError, match="Leave out one of them"):
        SpeculationOptions(type=("draft-simple",), synth_rates="1,1,1", synth_len=2.0)


@pytest.mark.parametrize(
    ("types", "sizes", "longest"),
    [
        ("draft-simple", {"n_max": 5}, 5),
        ("ngram-simple", {"ngram_simple_size_m": 7}, 7),
        ("ngram-map-k", {"ngram_map_k_size_m": 7}, 7),
        ("ngram-map-k4v", {"ngram_map_k4v_size_m": 9}, 9),
        ("ngram-mod", {"ngram_mod_n_min": 1, "ngram_mod_n_max": 6}, 6),
        ("ngram-cache", {}, 8),
        ("suffix", {"suffix_n_max": 11}, 11),
        ("ngram-cache,draft-simple", {"n_max": 12}, 12),
        ("auto", {"suffix_n_max": 99}, 99),
    ],
)
def test_the_longest_draft_of_the_methods(types: str, sizes: dict[str, int], longest: int) -> None:
    options: dict[str, Any] = {"type": types, **sizes}
    assert longest_draft(SpeculationOptions(**options)) == longest
    SpeculationOptions(**options, synth_len=longest + 1.0)
    SpeculationOptions(**options, synth_rates=",".join(["0.5"] * longest))
    with pytest.raises(OptionError):
        SpeculationOptions(**options, synth_len=longest + 1.01)


def verify(rates: Sequence[float], draft: Draft, ends: Sequence[int] = ()) -> Verdict:
    logits = np.zeros((1 + len(draft), 8), np.float32)
    logits[:, 7] = 5.0
    state = SamplerState(SamplingOptions(logprobs=1), (), 0, NumpyPrimitives())
    return Synthetic(rates).verify(draft, logits, state, ends)


def test_it_follows_the_first_child_whatever_the_target_says() -> None:
    tree = Draft((1, 2, 3, 4, 5), (-1, -1, 0, 0, 2))
    found = verify((1.0, 1.0, 1.0), tree)
    assert (found.path, [drawn.token for drawn in found.sampled]) == ((0, 2, 4), [1, 3, 5, 7])
    assert found.tested == 3
    none = verify((0.0, 0.0, 0.0), tree)
    assert (none.path, none.next_token, none.tested) == ((), 7, 1)
    short = verify((1.0, 1.0), tree)
    assert (short.path, short.next_token, short.tested) == ((0, 2), 7, 3)
    assert all(drawn.logprob is not None for drawn in found.sampled)


def test_an_end_token_is_never_accepted() -> None:
    found = verify((1.0, 1.0), Draft.chain([1, 2], "t"), ends=(2,))
    assert (found.path, found.next_token, found.tested) == ((0,), 7, 2)


def test_a_bad_row_is_an_error_though_its_token_is_not_drawn() -> None:
    state = SamplerState(SamplingOptions(), (), 0, NumpyPrimitives())
    rows = np.full((2, 8), np.nan, np.float32)
    with pytest.raises(BackendError):
        Synthetic((1.0,)).verify(Draft.chain([1], "t"), rows, state, ())


class Stubborn(TestDrafter):
    """Drafts the same three tokens again and again."""

    name = "stubborn"

    def propose(self, request: DraftRequest) -> Draft:
        del request
        return Draft.chain([9, 10, 11], self.name)


def test_the_engine_reaches_the_mean_length_and_says_that_the_output_is_invalid() -> None:
    verifier = Synthetic(rates_of_length(2.5, 3))
    controller = DoublingController(fixed=True)
    engine = fake_engine(Stubborn(), verifier=verifier, controller=controller, context=4000)
    [output] = run(engine, PROMPT, max_tokens=3000)
    check_counts(output)
    statistics = output.statistics
    assert statistics.mean_acceptance_length == pytest.approx(2.5, abs=0.1)
    assert (statistics.verification, statistics.output_valid) == ("synthetic", False)
    assert (statistics.lossless, statistics.seed_exact) == (False, False)
    assert statistics.summary()["output_valid"] is False


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"type": "none"}, "matching"),
        ({"type": "ngram-mod"}, "matching"),
        ({"type": "ngram-mod", "draft_sampling": "probabilistic"}, "rejection"),
        ({"type": "ngram-mod", "synth_len": 2}, "synthetic"),
        ({"type": "ngram-cache", "synth_rates": "1,1,1,1,0,0,0,0"}, "synthetic"),
        ({"type": "ngram-mod", "draft_sampling": "probabilistic", "synth_len": 2}, "synthetic"),
        ({"type": "none", "synth_len": 2}, "matching"),
    ],
)
def test_the_options_choose_the_rule(options: dict[str, Any], name: str) -> None:
    assert verifier_for(SpeculationOptions(**options)).name == name


def test_the_python_interface_says_it(make: MakeModel) -> None:
    quick: dict[str, Any] = {"spec": "ngram-mod", "ngram_mod_n_match": 2, "ngram_mod_n_min": 1}
    model = make(**quick)
    plain = model.complete("abab", max_tokens=40, temperature=1.0, seed=1)
    assert plain.stats["verification"] == "matching"
    assert (plain.stats["lossless"], plain.stats["seed_exact"]) == (True, True)
    drawn = model.complete(
        "abab", max_tokens=40, temperature=1.0, seed=1, draft_sampling="probabilistic"
    )
    assert drawn.stats["verification"] == "rejection"
    assert (drawn.stats["lossless"], drawn.stats["seed_exact"]) == (True, False)
    assert drawn.stats["output_valid"] is True
    exact = model.complete("abab", max_tokens=40, draft_sampling="probabilistic")
    assert exact.ids == model.complete("abab", max_tokens=40, spec="none", **_unset()).ids
    assert exact.stats["seed_exact"] is True


def _unset() -> dict[str, Any]:
    return {"ngram_mod_n_match": 24, "ngram_mod_n_min": 48}
