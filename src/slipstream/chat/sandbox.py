"""Running an untrusted Jinja template within a budget.

Everything that can repeat is counted: each loop turn and each call is a step, and a template
without steps is bounded by its own length. Everything that can multiply text is measured before
it is built: repetition, joining, replacing, formatting, and the printing of nested values.
Methods and filters that could allocate at will are absent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import wraps
from typing import Any, Final, NoReturn, cast

from jinja2 import Environment, Template, TemplateRuntimeError, filters, nodes, pass_context
from jinja2 import TemplateError as JinjaError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from slipstream.chat.budget import BudgetExceededError, Spending, current
from slipstream.errors import TemplateError

MAX_BITS: Final = 256
MAX_EXPONENT: Final = 64
MAX_INDENT: Final = 64
WIDE_FORMAT: Final = re.compile(r"[0-9]{4,}|\*")

STRING_METHODS: Final = frozenset(
    """capitalize casefold count endswith find index isalnum isalpha isdecimal isdigit islower
    isnumeric isspace istitle isupper join lower lstrip partition removeprefix removesuffix
    replace rfind rindex rpartition rsplit rstrip split splitlines startswith strip swapcase
    title upper""".split()  # noqa: SIM905
)
FILTERS: Final = frozenset(
    """abs capitalize count d default dictsort e escape first float forceescape groupby int
    items last length list lower map max min reject rejectattr reverse round safe select
    selectattr sort string title trim unique upper wordcount""".split()  # noqa: SIM905
)


class SandboxedTemplate:
    """A compiled template.

    Args:
        source: Jinja text.
        clock: what ``strftime_now`` formats.

    Raises:
        TemplateError: the source is not valid Jinja, or uses what the sandbox lacks.
    """

    def __init__(self, source: str, clock: Callable[[], datetime]) -> None:
        environment = _environment(clock)
        try:
            tree = _Measured().visit(environment.parse(source))
            code = environment.compile(tree)
            self._template = Template.from_code(environment, code, environment.globals)
        except (JinjaError, RecursionError, SyntaxError, MemoryError, ValueError) as error:
            raise _failed("a valid chat template", error) from None

    def render(self, variables: Mapping[str, object]) -> str:
        """The text for these variables.

        Raises:
            TemplateError: the template raises an error or exceeds its budget.
        """
        try:
            with Spending(variables):
                return concatenate(self._template.generate(dict(variables)))
        except Exception as error:  # a template can raise any error of the values it touches
            raise _failed("a chat template that accepts these messages", error) from None


def _failed(expected: str, error: BaseException) -> TemplateError:
    number = getattr(error, "lineno", None)
    line = "" if number is None else f" (line {number})"
    found = f"{type(error).__name__}: {str(error)[:500]}{line}"
    return TemplateError(expected, found, "Check the messages against the model's documentation.")


def concatenate(parts: Iterable[str]) -> str:
    """Join pieces of output, measured while they come."""
    budget, pieces, total = current(), [], 0
    for part in parts:
        total += len(part)
        budget.require_room(total)
        pieces.append(part)
    budget.allow(total)
    return "".join(pieces)


class _Measured(NodeTransformer):
    """Routes loops through ``counted``, and lists and concatenation through their measures."""

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        node = self.generic_visit(node, *args, **kwargs)
        if isinstance(node, nodes.For):
            node.iter = _filtered(cast(nodes.Expr, node.iter), "_counted")
        elif isinstance(node, nodes.Concat):
            parts = nodes.List(node.nodes, lineno=node.lineno)
            return _filtered(parts, "_concatenated")
        elif isinstance(node, nodes.List | nodes.Dict) or _is_tuple_value(node):
            return _filtered(cast(nodes.Expr, node), "_measured")
        return node


def _is_tuple_value(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Tuple) and node.ctx == "load"


def _filtered(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


class _GenerationBlock(Extension):
    """``{% generation %}``: marks the assistant's text for training, otherwise nothing."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"+", "*", "**", "%"})
    concat = staticmethod(concatenate)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str):
            return attr in STRING_METHODS
        if isinstance(obj, int | float | bytes):
            return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> None:  # noqa: ARG002
        """No `str.format`: a nested field can ask for any width."""
        return

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        current().step()
        owner, name = getattr(obj, "__self__", None), getattr(obj, "__name__", "")
        if isinstance(owner, str) and name in MEASURED_METHODS:
            return MEASURED_METHODS[name](owner, *args, **kwargs)
        return _measured(super().call(context, obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        _allow_operation(operator, left, right)
        return _measured(super().call_binop(context, operator, left, right))


def _allow_operation(operator: str, left: Any, right: Any) -> None:
    """Refuse an operation whose result would be far too large, before it is computed."""
    sequence, factor = (right, left) if isinstance(left, int) else (left, right)
    if operator == "%" and isinstance(left, str):
        if WIDE_FORMAT.search(left):
            raise BudgetExceededError("it formats with a width above 999")
        current().allow_value(right)
    elif operator == "*" and isinstance(factor, int) and hasattr(sequence, "__len__"):
        current().allow(len(sequence) * max(factor, 0))
    elif operator == "**" and isinstance(right, int) and abs(right) > MAX_EXPONENT:
        raise BudgetExceededError(f"it raises to a power above {MAX_EXPONENT}")


def _measured(value: Any) -> Any:
    if isinstance(value, str | list | tuple | dict):
        current().allow_value(value)
    elif isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise BudgetExceededError(f"it computes a number of more than {MAX_BITS} bits")
    return value


def counted(values: Iterable[Any]) -> Iterator[Any]:
    """The values of a loop, each of them a step."""
    for value in values:
        current().step()
        yield value


def text(value: Any) -> str:
    """A value as Jinja prints it."""
    if isinstance(value, str):
        return value
    current().allow_value(value)
    return str(value)


@pass_context
def printed(_: Context, value: Any) -> str:
    """What ``{{ value }}`` puts out; taking the context keeps it from running at compile time."""
    return text(value)


def join(separator: str, values: Iterable[Any]) -> str:
    """``separator.join(values)``, measured first."""
    parts = [text(value) for value in counted(values)]
    current().allow(sum(map(len, parts)) + len(separator) * len(parts))
    return separator.join(parts)


def replace(value: str, old: str, new: str, count: int = -1) -> str:
    """``value.replace(old, new, count)``, measured first."""
    found = value.count(old) if count < 0 else min(count, value.count(old))
    current().allow(len(value) + found * len(new))
    return value.replace(old, new, count)


MEASURED_METHODS: Final[Mapping[str, Callable[..., str]]] = {"join": join, "replace": replace}


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as Hugging Face's templates expect it: not escaped for HTML, keys in their order."""
    if indent is not None and not 0 <= indent <= MAX_INDENT:
        raise BudgetExceededError(f"it indents by more than {MAX_INDENT}")
    current().allow_value(value)
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def indented(value: str, width: int = 4, first: bool = False, blank: bool = False) -> str:
    """Jinja's ``indent`` with a bounded width."""
    if not isinstance(width, int) or not 0 <= width <= MAX_INDENT:
        raise BudgetExceededError(f"it indents by more than {MAX_INDENT}")
    current().allow(len(value) + width * (value.count("\n") + 1))
    return filters.do_indent(value, width, first, blank)


def _with_measure(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def measured(*args: Any, **kwargs: Any) -> Any:
        return _measured(function(*args, **kwargs))

    return measured


def _raise_exception(message: object) -> NoReturn:
    raise TemplateRuntimeError(text(message))


def _environment(clock: Callable[[], datetime]) -> Environment:
    """Hugging Face's settings for chat templates, with the sandbox's filters and functions."""
    environment = _Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        optimized=False,
        finalize=printed,
        extensions=[loopcontrols, _GenerationBlock],
    )
    environment.filters = {
        **{name: _with_measure(environment.filters[name]) for name in FILTERS},
        "join": lambda values, separator="": join(separator, values),
        "replace": replace,
        "string": text,
        "indent": indented,
        "tojson": to_json,
        "_counted": counted,
        "_measured": _measured,
        "_concatenated": lambda values: join("", values),
    }
    environment.globals = {
        **{name: environment.globals[name] for name in ("range", "dict", "cycler", "joiner")},
        "namespace": Namespace,
        "raise_exception": _raise_exception,
        "strftime_now": lambda form: clock().strftime(form),
    }
    return environment
