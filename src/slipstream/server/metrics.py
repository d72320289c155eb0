"""``/metrics``: what ``Meters`` counted, in Prometheus's text format, under two sets of names.

Ours begin with ``slipstream_``, are in seconds, bytes and tokens, and have a help text each.
llama.cpp's begin with ``llamacpp:``; its rates are averages since the start, over the tokens after
the first where they speak of outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from slipstream.server.meters import MOST_POSITIONS, MOST_ROWS, Histogram, Meters
from slipstream.server.order import Service
from slipstream.server.refusals import NotFoundError

MOST_LABEL_CHARACTERS: Final = 128
_INFO: Final = ("model", "architecture", "backend", "isa", "precision", "kv_type")

Labelled = Iterable[tuple[tuple[str, ...], float]]


def routes(service: Service, meters: Meters, *, enabled: bool) -> list[Route]:
    """
    Args:
        enabled: else the path says how to enable it. The counts are sums over all API keys, so
            they are shown only where that was asked for.
    """

    async def metrics(request: Request) -> Response:
        del request
        if not enabled:
            raise NotFoundError(
                "a server started with `--metrics`",
                "one without: its counts are sums over all who use it",
                "Start it with `--metrics`.",
            )
        text = exposition(meters, {**service.facts, "model": service.name})
        return Response(text, headers={"content-type": CONTENT_TYPE_PLAIN_0_0_4})

    return [Route("/metrics", metrics, methods=["GET"])]


def exposition(meters: Meters, facts: Mapping[str, Any]) -> bytes:
    """Everything in Prometheus's text format 0.0.4.

    Args:
        facts: the server's (``wire.Ready``), some of them labels; ``model`` is a name, no path.
    """
    return generate_latest(_Families(meters, facts))


class _Families:
    """What the library prints: it asks for ``collect``."""

    def __init__(self, meters: Meters, facts: Mapping[str, Any]) -> None:
        self._meters = meters
        self._facts = facts

    def collect(self) -> Iterator[Metric]:
        meters = self._meters
        yield _info(self._facts)
        yield from _requests(meters)
        yield from _tokens(meters)
        yield from _steps(meters)
        yield from _histograms(meters)
        yield from _state(meters)
        yield from _llama(meters)
        yield from _llama_drafts(meters)


def _info(facts: Mapping[str, Any]) -> Metric:
    values = [str(facts.get(name, "")) for name in _INFO]
    help_text = "The model and what it runs on; always 1."
    return _gauges("slipstream_model_info", help_text, _INFO, [(tuple(values), 1.0)])


def _requests(meters: Meters) -> Iterator[Metric]:
    yield _counters(
        "slipstream_requests",
        "Outputs by endpoint and by why they ended.",
        ("endpoint", "finish_reason"),
        meters.ended.items(),
    )


# field of MethodCounts -> help text
_TOKENS: Final = {
    "prompt": "Prompt tokens computed.",
    "reused": "Prompt tokens taken from the prefix cache.",
    "generated": "Tokens emitted.",
    "drafted": "Draft tokens verified.",
    "tested": "Draft tokens examined by verification.",
    "accepted": "Draft tokens accepted and emitted.",
    "discarded": "Tokens verified and cut off by a stop or a limit.",
}


def _tokens(meters: Meters) -> Iterator[Metric]:
    """By the drafters open for a request."""
    for name, help_text in _TOKENS.items():
        counted = [((method,), getattr(c, name)) for method, c in meters.methods.items()]
        yield _counters(f"slipstream_{name}_tokens", help_text, ("method",), counted)
    yield _counters(
        "slipstream_accepted_tokens_at",
        "Draft tokens accepted and emitted, by their place in the draft.",
        ("position",),
        _positions(meters),
    )


def _positions(meters: Meters) -> list[tuple[tuple[str], float]]:
    return _counted(meters.accepted_at, MOST_POSITIONS)


def _counted(counts: Mapping[int, int], most: int) -> list[tuple[tuple[str], float]]:
    """Numbers as labels, ascending; the last one stands for all beyond it."""
    names = {most: f"{most}+"}
    return [((names.get(number, str(number)),), times) for number, times in sorted(counts.items())]


def _steps(meters: Meters) -> Iterator[Metric]:
    load = meters.load
    steps = meters.total("verification_steps")
    yield _counter("slipstream_target_passes", "Passes of the target model.", load.steps)
    yield _counter("slipstream_rows", "Rows of all target passes.", load.rows)
    yield _counter("slipstream_verification_steps", "Passes that verified drafts.", steps)
    yield _counters(
        "slipstream_verifying_passes",
        "Passes that verified drafts of any output, by the rows of the whole pass.",
        ("rows",),
        _counted(meters.verified_rows, MOST_ROWS),
    )
    yield _counters(
        "slipstream_phase_seconds",
        "Seconds by phase, of outputs that ended; a pass counts for each output in it.",
        ("phase",),
        [((phase,), seconds) for phase, seconds in meters.phases.items()],
    )


def _histograms(meters: Meters) -> Iterator[Metric]:
    for name, help_text, histogram in (
        ("queue_seconds", "From a request's arrival at the engine to its place.", meters.queue),
        ("time_to_first_token_seconds", "From a request to its first token.", meters.first_token),
        (
            "inter_token_seconds",
            "Between tokens after the first; those of one pass share its time.",
            meters.between_tokens,
        ),
        ("tokens_per_pass", "Tokens that a pass emitted for an output.", meters.tokens_per_pass),
    ):
        yield _histogram(f"slipstream_{name}", help_text, histogram)


def _state(meters: Meters) -> Iterator[Metric]:
    load = meters.load
    for name, help_text, value in (
        ("requests_running", "Outputs that run.", load.running),
        ("requests_waiting", "Outputs that wait for a place.", load.waiting),
        ("places", "Outputs that can run at the same time.", meters.places),
        ("memory_bytes", "Keys and values kept, prefixes included.", load.memory_bytes),
        ("memory_limit_bytes", "Most of them.", load.memory_limit_bytes),
        ("kept_prefixes", "Prefixes kept for reuse.", load.kept_prefixes),
        ("context_used_tokens", "Positions of the outputs that run.", load.context_used),
        ("prompt_tokens_left", "Prompt tokens still to compute.", load.prompt_tokens_left),
        ("step_seconds", "Duration of the newest pass.", load.step_s),
    ):
        yield _gauge(f"slipstream_{name}", help_text, value)


def _llama(meters: Meters) -> Iterator[Metric]:
    load, total = meters.load, meters.total
    for name, help_text, value in (
        ("prompt_tokens", "Prompt tokens computed.", total("prompt")),
        ("prompt_tokens_cached", "Prompt tokens reused.", total("reused")),
        ("prompt_seconds", "Seconds from a place to the first token.", meters.prompt_s),
        ("tokens_predicted", "Tokens emitted.", total("generated")),
        ("tokens_predicted_seconds", "Seconds from first to last token.", meters.output_s),
        ("n_decode", "Passes of the target model, verification included.", load.steps),
    ):
        yield _counter(f"llamacpp:{name}", help_text, value)
    for name, help_text, value in (
        ("prompt_tokens_seconds", "Prompt tokens per second.", _prompt_rate(meters)),
        ("predicted_tokens_seconds", "Tokens per second after the first.", _output_rate(meters)),
        ("requests_processing", "Outputs that run.", load.running),
        ("requests_deferred", "Outputs that wait for a place.", load.waiting),
        ("n_tokens_max", "Most positions that a sequence had.", meters.longest),
        ("n_busy_slots_per_decode", "Outputs that run, per pass.", _busy(meters)),
    ):
        yield _gauge(f"llamacpp:{name}", help_text, value)


def _llama_drafts(meters: Meters) -> Iterator[Metric]:
    total = meters.total
    for name, help_text, value in (
        ("num_draft_tokens", "Draft tokens verified.", total("drafted")),
        ("num_accepted_tokens", "Draft tokens accepted and emitted.", total("accepted")),
        ("num_drafts", "Passes that verified drafts.", total("verification_steps")),
    ):
        yield _counter(f"llamacpp:spec_decode_{name}", help_text, value)
    yield _counters(
        "llamacpp:spec_decode_num_accepted_tokens_per_pos",
        "Draft tokens accepted and emitted, by their place in the draft.",
        ("position",),
        _positions(meters),
    )


def _prompt_rate(meters: Meters) -> float:
    return _ratio(meters.total("prompt"), meters.prompt_s)


def _output_rate(meters: Meters) -> float:
    return _ratio(meters.later_tokens, meters.output_s)


def _busy(meters: Meters) -> float:
    return _ratio(meters.busy_passes, meters.load.steps)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def _counter(name: str, help_text: str, value: float) -> Metric:
    return CounterMetricFamily(name, help_text, value)


def _gauge(name: str, help_text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, help_text, value)


def _counters(name: str, help_text: str, labels: tuple[str, ...], values: Labelled) -> Metric:
    family = CounterMetricFamily(name, help_text, labels=labels)
    return _filled(family, family.add_metric, values)


def _gauges(name: str, help_text: str, labels: tuple[str, ...], values: Labelled) -> Metric:
    family = GaugeMetricFamily(name, help_text, labels=labels)
    return _filled(family, family.add_metric, values)


def _filled(family: Metric, add: Callable[[list[str], float], None], values: Labelled) -> Metric:
    for names, value in values:
        add([_label(name) for name in names], value)
    return family


def _label(value: str) -> str:
    """What a label may hold: a bounded text in UTF-8; the library escapes it."""
    return value[:MOST_LABEL_CHARACTERS].encode("utf-8", "replace").decode()


def _histogram(name: str, help_text: str, histogram: Histogram) -> Metric:
    return HistogramMetricFamily(name, help_text, histogram.buckets(), histogram.sum)
