"""Reading option structs: what fields they have, building them from keys and values, checking."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from slipstream.errors import OptionError

OptionStruct = TypeVar("OptionStruct", bound=msgspec.Struct)
_TYPE_NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


@dataclass(frozen=True, slots=True)
class OptionInfo:
    """One option as a user sees it.

    `type` is int, float, str, bool, tuple (of text) or dict; `required` marks a missing default;
    `nullable` options may be left unset (None). `minimum` is exclusive where
    `minimum_is_exclusive`. `choices` is empty where any value of the type will do. A list has at
    most `most_items` texts of `shortest` to `longest` characters.
    """

    name: str
    type: type
    default: Any
    help: str
    aliases: tuple[str, ...]
    minimum: float | None
    maximum: float | None
    minimum_is_exclusive: bool
    choices: tuple[str, ...]
    nullable: bool
    required: bool
    most_items: int | None = None
    shortest: int | None = None
    longest: int | None = None

    def expected(self) -> str:
        """What a value must be, in words."""
        if self.choices:
            return f"{'some' if self.type is tuple else 'one'} of {', '.join(self.choices)}"
        kind = _TYPE_NAMES.get(self.type, "a list of texts")
        if self.type is dict:
            kind = "token ids with a number from -100 to 100 each"
        if self.type is tuple and self.most_items is not None:
            kind = f"a list of at most {self.most_items} texts"
            if self.longest is not None:
                kind += f" of {self.shortest} to {self.longest} characters"
        above = "above" if self.minimum_is_exclusive else "at least"
        bounds = [f"{above} {self.minimum}"] if self.minimum is not None else []
        bounds += [f"at most {self.maximum}"] if self.maximum is not None else []
        return " ".join([kind, " and ".join(bounds)]).strip()


@cache
def describe(struct: type[msgspec.Struct]) -> list[OptionInfo]:
    """The options of a struct, in order."""
    hints = get_type_hints(struct, include_extras=True)
    return [_info(field, hints[field.name]) for field in msgspec.structs.fields(struct)]


def from_mapping(struct: type[OptionStruct], mapping: Mapping[str, Any]) -> OptionStruct:
    """Build `struct` from names or aliases (`-` counts as `_`) and values.

    Raises:
        OptionError: an unknown key (it names the nearest), the same option twice, a missing
            option, a value of another type or out of bounds.
    """
    names = _names(struct)
    keys: dict[str, str] = {}
    values: dict[str, Any] = {}
    for key, value in mapping.items():
        name = names.get(_normalised(key))
        if name is None:
            raise _unknown(key, list(names))
        if name in keys:
            raise OptionError(f"`{name}` once", f"`{keys[name]}` and `{key}`", "Remove one.")
        keys[name], values[name] = key, value
    for option in describe(struct):
        if option.required and option.name not in values:
            raise OptionError(f"`{option.name}`: {option.help}", "nothing", "Give it.")
    return struct(**values)


def validate(options: msgspec.Struct) -> None:
    """Check every field and give it its declared type (a list becomes a tuple).

    Raises:
        OptionError: a value of another type or out of bounds.
    """
    for option in describe(type(options)):
        value = _converted(type(options), option, getattr(options, option.name))
        msgspec.structs.force_setattr(options, option.name, value)


def _converted(struct: type[msgspec.Struct], option: OptionInfo, value: Any) -> Any:
    if option.type is tuple and isinstance(value, str):
        # A list of names may be written `a,b`; a free text is one item, commas and all.
        value = [name.strip() for name in value.split(",")] if option.choices else [value]
    annotation = _annotations(struct)[option.name]
    try:
        return msgspec.convert(value, annotation, str_keys=isinstance(value, dict))
    except (msgspec.ValidationError, OverflowError) as error:
        raise OptionError(
            f"`{option.name}` to be {option.expected()}",
            _shown(value),
            f"`{option.name}`: {option.help}.",
        ) from error


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _unknown(key: str, names: list[str]) -> OptionError:
    near = difflib.get_close_matches(_normalised(key), names, n=1, cutoff=0.0)
    return OptionError("a known option", f"`{_shown(key)[1:-1]}`", f"Did you mean `{near[0]}`?")


def _normalised(key: str) -> str:
    return key.lstrip("-").replace("-", "_")


@cache
def _names(struct: type[msgspec.Struct]) -> dict[str, str]:
    names = {}
    for option in describe(struct):
        for name in (option.name, *option.aliases):
            if name in names:
                raise ValueError(f"{struct.__name__}: `{name}` names two options")
            names[name] = option.name
    return names


@cache
def _annotations(struct: type[msgspec.Struct]) -> dict[str, Any]:
    return get_type_hints(struct, include_extras=True)


def _info(field: msgspec.structs.FieldInfo, annotation: Any) -> OptionInfo:
    annotated, nullable = _without_none(annotation)
    inner, meta = _unwrapped(annotated)
    base = get_origin(inner) or inner
    exclusive = meta.gt is not None
    default = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    return OptionInfo(
        name=field.name,
        type=str if base is Literal else base,
        default=None if default is msgspec.NODEFAULT else default,
        help=meta.description or "",
        aliases=tuple((meta.extra or {}).get("aliases", ())),
        minimum=meta.gt if exclusive else meta.ge,
        maximum=meta.le,
        minimum_is_exclusive=exclusive,
        choices=_choices(inner),
        nullable=nullable,
        required=field.required,
        most_items=meta.max_length if base is tuple else None,
        **(_text_lengths(inner) if base is tuple else {}),
    )


def _text_lengths(annotation: Any) -> dict[str, int | None]:
    item = get_args(annotation)[0]
    if get_origin(item) is not Annotated:
        return {}
    meta = next(part for part in get_args(item)[1:] if isinstance(part, Meta))
    return {"shortest": meta.min_length, "longest": meta.max_length}


def _unwrapped(annotation: Any) -> tuple[Any, Meta]:
    if get_origin(annotation) is not Annotated:
        raise TypeError(f"an option without help: {annotation}")
    inner, meta = get_args(annotation)
    return inner, meta


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) not in {Union, UnionType}:
        return annotation, False
    [inner] = [part for part in get_args(annotation) if part is not NoneType]
    return inner, True


def _choices(annotation: Any) -> tuple[str, ...]:
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    if get_origin(annotation) is Annotated:
        return tuple((_unwrapped(annotation)[1].extra or {}).get("choices", ()))
    if get_origin(annotation) is tuple:
        return _choices(get_args(annotation)[0])
    return ()


def option(help_text: str, *aliases: str, **bounds: Any) -> Meta:
    """The help, aliases and bounds of a field."""
    return Meta(description=help_text, extra={"aliases": aliases}, **bounds)
