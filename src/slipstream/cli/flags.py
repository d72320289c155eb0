"""Flags made from the option structs, so that an option is defined once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec
import typer

from slipstream.options import OptionInfo, describe, from_mapping

# Spellings of design.md section 7 beside the option's own name and llama.cpp's.
_SHORT = {"max_tokens": ("-n",), "context": ("-c",), "threads": ("-t",)}


def _spellings(option: OptionInfo) -> list[str]:
    names = [option.name if option.name != "type" else "spec"]
    names += [a for a in option.aliases if a not in names]
    long = ["--" + n.replace("_", "-") for n in names if len(n) > 2]
    return [*long, *_SHORT.get(option.name, ())]


def _annotation(option: OptionInfo) -> Any:
    base: Any = option.type
    if option.type is tuple:
        base = str if option.choices else list[str]
    elif option.type is dict:
        base = list[str]
    return base | None


def _help(option: OptionInfo) -> str:
    default = option.default
    if option.type is tuple and option.choices:
        default = ",".join(default)
    shown = "" if default in (None, (), {}, "") or option.required else f" [{default}]"
    return f"{option.help}{shown}"


def _parameter(option: OptionInfo) -> inspect.Parameter:
    """A required option is a positional argument, every other one a flag."""
    if option.required:
        argument = Annotated[str, typer.Argument(help=option.help)]
        return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, annotation=argument)
    spellings = _spellings(option)
    if option.type is bool:
        flag = typer.Option(*spellings[:1], help=_help(option), show_default=False)
    else:
        flag = typer.Option(*spellings, help=_help(option), show_default=False)
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[_annotation(option), flag],
    )


def _bias(texts: list[str]) -> dict[str, float] | list[str]:
    """``ID=NUMBER`` pairs; anything else is passed on for the option's own error."""
    try:
        return {key: float(value) for key, _, value in (t.partition("=") for t in texts)}
    except ValueError:
        return texts


def _given(struct: type[msgspec.Struct], values: Mapping[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for option in describe(struct):
        value = values.get(option.name)
        if value is None or value == []:
            continue
        if option.type is dict:
            value = _bias(value)
        given[option.name] = tuple(value) if isinstance(value, list) else value
    return given


def with_options(
    *structs: type[msgspec.Struct],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the flags of ``structs``; it receives one struct for each, by class name.

    The command takes keyword arguments ``model_options``, ``sampling_options`` and so on.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True)
        receivers = {_receiver(s) for s in structs}
        kept = [p for p in own.parameters.values() if p.name not in receivers]
        made = [_parameter(o) for s in structs for o in describe(s)]

        @functools.wraps(command)
        def call(**values: Any) -> None:
            passed = {p.name: values[p.name] for p in kept}
            for struct in structs:
                passed[_receiver(struct)] = from_mapping(struct, _given(struct, values))
            command(**passed)

        call.__signature__ = inspect.Signature([*kept, *made])  # type: ignore[attr-defined]
        call.__annotations__ = {p.name: p.annotation for p in [*kept, *made]}
        return call

    return decorate


def _receiver(struct: type[msgspec.Struct]) -> str:
    return struct.__name__.replace("Options", "").lower() + "_options"
