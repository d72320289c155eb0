"""llama-server's forms of a prompt as token ids, prompts to fill in the middle included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from slipstream.errors import ContextFullError, RequestError, UnsupportedError
from slipstream.server.bodies import shown
from slipstream.server.order import Service
from slipstream.tokenizer import Tokenizer

MOST_PROMPTS: Final = 64
MOST_PARTS: Final = 1024
"""Texts in one prompt of texts and tokens."""

MOST_EXTRA: Final = 256
_MARKS: Final = ("pre", "suf", "mid")
_PROJECT: Final = "myproject\n"
_FILE: Final = "filename\n"

Prompt = str | list[int | str]


def prompts_of(value: Any, context: int) -> list[Prompt]:
    """The prompts that ``prompt`` names: a text, token ids, both mixed, or a list of these.

    Args:
        context: positions of a sequence.

    Raises:
        RequestError: it is something else, empty, or too much.
        ContextFullError: a list that is longer than a prompt can be.
        UnsupportedError: it holds images or sound.
    """
    require_short_lists(value, context)
    if isinstance(value, list) and not any(_is_id(part) for part in value):
        if not 0 < len(value) <= MOST_PROMPTS:
            raise RequestError(
                f"1 to {MOST_PROMPTS} prompts", f"{len(value)}", "Send that many at once."
            )
        return [_prompt(part) for part in value]
    return [_prompt(value)]


def require_short_lists(value: Any, context: int) -> None:
    """
    Raises:
        ContextFullError: a list, or one inside it, is longer than a prompt can be.
    """
    for one in (value, *value[:MOST_PROMPTS]) if isinstance(value, list) else ():
        if isinstance(one, list):
            _require_room(len(one) - MOST_PARTS, context)


def _prompt(value: Any) -> Prompt:
    if isinstance(value, dict) and isinstance(value.get("prompt_string"), str):
        if value.get("multimodal_data"):
            raise UnsupportedError("a prompt of text", "`multimodal_data`", "Leave it out.")
        value = value["prompt_string"]
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not all(isinstance(p, str) or _is_id(p) for p in value):
        raise RequestError(
            "`prompt` to be a text, token ids, or a list that mixes them",
            shown(value),
            "Send one of them, or a list of such prompts.",
        )
    texts = sum(isinstance(part, str) for part in value)
    if texts > MOST_PARTS:
        raise RequestError(f"at most {MOST_PARTS} texts in a prompt", f"{texts}", "Join them.")
    return value


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


async def prompt_ids(service: Service, prompt: Prompt) -> list[int]:
    """Ids of a prompt; what belongs before a text is added where it begins with one.

    Raises:
        RequestError: an id is outside the vocabulary, or the prompt is too long.
    """
    if isinstance(prompt, str):
        return await service.prompt_ids(prompt)
    require_length(service, prompt)
    ids: list[int] = []
    for place, part in enumerate(prompt):
        if isinstance(part, str):
            ids += await service.prompt_ids(part, add_special=place == 0)
        else:
            ids.append(part)
    require_ids(ids, service.tokenizer)
    return ids


def require_length(service: Service, prompt: str | Sequence[int | str]) -> None:
    """
    Raises:
        RequestError: the prompt is too long to be read.
        ContextFullError: its token ids leave no room to generate.
    """
    if isinstance(prompt, str):
        service.texts.require_text(len(prompt))
        return
    texts = [part for part in prompt if isinstance(part, str)]
    service.texts.require_text(sum(map(len, texts)))
    _require_room(len(prompt) - len(texts), service.context)


def _require_room(count: int, context: int) -> None:
    if count >= context:
        raise ContextFullError(
            f"a prompt of at most {context - 1} tokens",
            f"{count} or more",
            "Shorten the prompt or use a larger context.",
        )


def require_ids(ids: Sequence[int], tokenizer: Tokenizer) -> None:
    """
    Raises:
        RequestError: an id is outside the vocabulary.
    """
    for wrong in (min(ids, default=0), max(ids, default=0)):
        if not 0 <= wrong < tokenizer.vocabulary_size:
            raise RequestError(
                f"token ids from 0 to {tokenizer.vocabulary_size - 1}",
                shown(wrong),
                "Use the ids of `/tokenize`.",
            )


class ExtraText(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A piece of another file; ``time`` (when it was looked at) has no effect."""

    text: str
    filename: str = "tmp"
    time: Any = None


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """What stands around a place to fill.

    Attributes:
        prefix, suffix: text before and after it.
        middle: text that the filling begins with.
        extra: pieces of other files, the most important last.
    """

    prefix: str
    suffix: str
    middle: str = ""
    extra: Sequence[ExtraText] = ()


async def gap_ids(service: Service, gap: Gap, reserve: int) -> list[int]:
    """The prompt that fills a gap, cut to the context: far text goes first.

    With marks for projects and files it is the pattern of repositories that Qwen2.5-Coder was
    trained on, else the extra texts stand before the mark of the prefix. Texts are taken as they
    are: marks spelled in them are no marks.

    Args:
        reserve: positions to leave for the output.

    Raises:
        UnsupportedError: the model has no such marks.
        RequestError: the beginning of the filling is too long to be read.
        ContextFullError: the beginning of the filling leaves no room for anything else.
    """
    tokenizer = service.tokenizer
    marks = tokenizer.fim_ids
    if not all(mark in marks for mark in _MARKS):
        raise UnsupportedError(
            "a model trained to fill in the middle (tokens such as <|fim_prefix|>)",
            "a vocabulary without them",
            "Use another model, such as qwen2.5-coder, or `/completion`.",
        )
    most = service.texts.most
    service.texts.require_text(len(gap.middle))
    kept = _near(gap.extra, most)
    names = [f"{extra.filename}\n" for extra in kept]
    texts = [extra.text for extra in kept]
    near = [gap.prefix[-most:], gap.suffix[:most], gap.middle]
    ids = [
        await service.texts.ids(text, add_special=False, parse_special=False, continues=True)
        for text in [*near, _PROJECT, _FILE, *names, *texts]
    ]
    prefix, suffix, middle, project, file = ids[:5]
    heads, bodies = ids[5 : 5 + len(names)], ids[5 + len(names) :]
    extra = _extra_ids(marks, project, list(zip(heads, bodies, strict=True)))
    prefix_head = [marks["sep"], *file, marks["pre"]] if "sep" in marks else [marks["pre"]]
    begin = [tokenizer.bos_id] if tokenizer.add_bos and tokenizer.bos_id is not None else []
    fixed = len(begin) + len(prefix_head) + 2 + len(middle)
    room = service.context - reserve - fixed
    if room <= 0:
        raise ContextFullError(
            f"a `prompt` of at most {max(len(middle) + room, 0)} tokens",
            f"{len(middle)}",
            "Shorten it, or lower `n_predict`.",
        )
    extra, prefix, suffix = _fitted(extra, prefix, suffix, room)
    after = [marks["suf"], *suffix, marks["mid"], *middle]
    return [*begin, *extra, *prefix_head, *prefix, *after]


def _near(extra: Sequence[ExtraText], most: int) -> list[ExtraText]:
    """The last of the other files, of so many characters, names too, in all."""
    kept: list[ExtraText] = []
    for one in reversed(extra):
        most -= len(one.filename) + 1
        if most <= 0:
            break
        kept.append(ExtraText(text=one.text[-most:], filename=one.filename))
        most -= len(one.text)
        if most <= 0:
            break
    return kept[::-1]


def _extra_ids(
    marks: Any, project: list[int], chunks: Sequence[tuple[list[int], list[int]]]
) -> list[int]:
    """Other files: (name, text) each."""
    found = [marks["rep"], *project] if "rep" in marks and "sep" in marks else []
    for name, text in chunks:
        found += [marks["sep"], *name, *text] if "sep" in marks else text
    return found


def _fitted(
    extra: list[int], prefix: list[int], suffix: list[int], room: int
) -> tuple[list[int], list[int], list[int]]:
    """The three cut to ``room`` tokens: the suffix has a quarter of it where both are long."""
    most_suffix = max(room // 4, room - len(prefix))
    suffix = suffix[: min(most_suffix, room)]
    prefix = _last(prefix, room - len(suffix))
    return _last(extra, room - len(suffix) - len(prefix)), prefix, suffix


def _last(ids: list[int], count: int) -> list[int]:
    return ids[len(ids) - min(count, len(ids)) :]
