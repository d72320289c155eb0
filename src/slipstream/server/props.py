"""``/props`` and ``/slots``: what a server is and what it does, as llama-server tells it, and ours.

Nothing that one API key sent is shown to another: a slot has counts, no text and no options. File
names are shown without their folders.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import PurePath
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from slipstream.errors import OutOfMemoryError
from slipstream.server.llama_settings import generation_settings, next_token
from slipstream.server.meters import MeteredRequest, Meters
from slipstream.server.order import Service
from slipstream.server.refusals import MethodError, NotImplementedHereError
from slipstream.server.replies import error_reply, json_reply

_FILE_KEYS: Final = frozenset({"model", "path", "draft_model"})
_FOLDERS: Final = re.compile(r"(?<!\w)/(?:[^/\s`'\"]+/)*")


def routes(service: Service, meters: Meters) -> list[Route]:
    async def props(request: Request) -> Response:
        if request.method == "POST":
            raise MethodError(
                "`GET /props`", "POST", "Properties are set by the server's flags alone."
            )
        return json_reply(properties(service, meters))

    async def slots(request: Request) -> Response:
        found = slot_list(service, meters)
        wanted = request.query_params.get("fail_on_no_slot")
        if wanted and all(slot["is_processing"] for slot in found):
            return error_reply(_no_slot(len(found)))
        return json_reply(found)

    async def act_on_slot(request: Request) -> Response:
        action = request.query_params.get("action", "")
        raise NotImplementedHereError(
            "slots that are neither saved, restored nor erased",
            f"`action={action:.40}`",
            "Prefixes are kept by session and content: send the prompt again, with `session`.",
        )

    async def adapters(request: Request) -> Response:
        if request.method == "POST":
            raise NotImplementedHereError(
                "a model without LoRA adapters", "a list of them", "Merge the adapter into a file."
            )
        return json_reply([])

    return [
        Route("/props", props, methods=["GET", "POST"]),
        Route("/slots", slots, methods=["GET"]),
        Route("/slots/{id:int}", act_on_slot, methods=["POST"]),
        Route("/lora-adapters", adapters, methods=["GET", "POST"]),
    ]


def properties(service: Service, meters: Meters) -> dict[str, Any]:
    """The body of ``/props``."""
    facts = _shown(service.facts)
    template = facts.pop("chat_template", "")
    methods = {name: _shown(entry) for name, entry in service.methods.items()}
    return {
        "default_generation_settings": {
            "id": 0,
            "id_task": -1,
            "n_ctx": service.context,
            "speculative": meters.drafts,
            "is_processing": False,
            "params": generation_settings(service.sampling, {}),
            "next_token": next_token(0, service.sampling.max_tokens, running=False),
        },
        "total_slots": meters.places,
        "model_alias": service.name,
        "model_path": facts.get("path", ""),
        "chat_template": template,
        "bos_token": _text(service, service.tokenizer.bos_id),
        "eos_token": _text(service, service.tokenizer.eos_id),
        "modalities": {"vision": False, "audio": False},
        "build_info": f"slipstream {_version()}",
        "is_sleeping": False,
        "slipstream": {**facts, "draft_methods": methods},
    }


def slot_list(service: Service, meters: Meters) -> list[dict[str, Any]]:
    """The body of ``/slots``: one entry per place, in order."""
    running = {
        metered.place: (number, metered)
        for number, metered in meters.requests.items()
        if metered.place is not None
    }
    places = range(max([meters.places, *(place + 1 for place in running if place is not None)]))
    return [_slot(place, running.get(place), service.context, meters.drafts) for place in places]


def _slot(
    place: int, running: tuple[int, MeteredRequest] | None, context: int, drafts: bool
) -> dict[str, Any]:
    if running is None:
        idle = {"id": place, "id_task": -1, "n_ctx": context, "speculative": drafts}
        return {**idle, "is_processing": False, "next_token": next_token(0, -1, running=False)}
    number, metered = running
    timing = metered.timing
    # the prompt counts as computed once its first token is there
    computed = metered.prompt_tokens - metered.reused if timing.first_s is not None else 0
    return {
        "id": place,
        "id_task": number,
        "n_ctx": context,
        "speculative": metered.drafts,
        "is_processing": True,
        "n_prompt_tokens": metered.prompt_tokens + timing.tokens,
        "n_prompt_tokens_processed": computed,
        "n_prompt_tokens_cache": metered.reused,
        "n_draft_tokens": timing.drafted,
        "n_draft_tokens_accepted": timing.accepted,
        "params": {"n_predict": metered.most_tokens, "max_tokens": metered.most_tokens},
        "next_token": next_token(timing.tokens, metered.most_tokens, running=True),
    }


def _no_slot(places: int) -> OutOfMemoryError:
    """Answers 503, as llama-server does."""
    return OutOfMemoryError("a free slot", f"{places} in use", "Try again later.")


def _shown(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts without the folders of files."""
    return {key: _without_folders(key, value) for key, value in facts.items()}


def _without_folders(key: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return _shown(value)
    if not isinstance(value, str) or key == "chat_template":
        return value
    if key in _FILE_KEYS or key.startswith("ngram_cache_"):
        return PurePath(value).name
    return _FOLDERS.sub("", value)


def _text(service: Service, token: int | None) -> str:
    return "" if token is None else service.tokenizer.token_text(token)


@cache
def _version() -> str:
    try:
        return version("slipstream")
    except PackageNotFoundError:
        return "from source"
