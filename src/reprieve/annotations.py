"""Annotations of a function: what they stand for, and which types fit them without any conversion."""

import enum
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Optional, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec

from reprieve.json_data import can_be_rebuilt

_SCALARS: dict[object, frozenset[type]] = {
    int: frozenset({int}),
    float: frozenset({float, int}),
    str: frozenset({str}),
    bool: frozenset({bool}),
    bytes: frozenset({bytes}),
    None: frozenset({NoneType}),
    NoneType: frozenset({NoneType}),
}
"""Annotations that nothing but these types, and their subclasses, fits."""

_LEAVES = (date, timedelta, Decimal, UUID)
"""Types whose values always arrive as they were. Values of other types fit them too: a text that is a date.

Not those that may have a time zone, which JSON keeps as an offset in minutes.
"""

_PLAIN: frozenset[type] = frozenset({bool, int, float, str, NoneType, list, dict})
"""Types that JSON has: their values arrive as they were without an annotation, if what they hold does."""

ORDINARY = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
"""Kinds of parameters that take one value each."""


@dataclass(frozen=True, slots=True)
class FittingTypes:
    """The types that fit one annotation."""

    exact: frozenset[type]
    """Types whose values fit for certain."""
    is_closed: bool
    """Whether nothing else fits but subclasses of these."""

    def may_hold(self, value: object) -> bool:
        """Return whether a value fits, or has to be converted to find out."""
        if not self.is_closed or type(value) in self.exact:
            return True
        # To Python a bool is an int; in JSON it is not, and the worker would refuse it.
        return isinstance(value, tuple(self.exact)) and not isinstance(value, bool)


def fitting_types(hint: Any) -> FittingTypes:  # noqa: ANN401 - an annotation is anything
    """Return the types that fit an annotation."""
    members = list(_members(hint))
    if Any in members or object in members:
        return FittingTypes(_PLAIN, is_closed=False)
    exact = frozenset[type]().union(*map(_exact, members)) if not unreadable(hint) else frozenset[type]()
    return FittingTypes(exact, is_closed=all(_is_scalar(member) for member in members))


def _members(hint: Any) -> Iterator[Any]:  # noqa: ANN401 - as above
    if get_origin(hint) in (Union, UnionType):
        for member in get_args(hint):
            yield from _members(member)
    else:
        yield hint


def _is_scalar(member: Any) -> bool:  # noqa: ANN401 - as above
    return isinstance(member, type | None) and member in _SCALARS


def _exact(member: Any) -> frozenset[type]:  # noqa: ANN401 - as above
    if _is_scalar(member):
        return _SCALARS[member]
    if isinstance(member, type) and (member in _LEAVES or issubclass(member, enum.Enum)):
        return frozenset({member})
    return frozenset()


def unreadable(hint: Any) -> str:  # noqa: ANN401 - as above
    """Return why no worker can read a value by an annotation, as a union that JSON cannot tell apart; "" if one can."""
    if hint is object:
        return ""
    try:
        msgspec.json.Decoder(hint)
        kind = msgspec.inspect.type_info(hint)
    except TypeError as error:
        return str(error)
    except Exception:  # noqa: BLE001 - a name in a class is not defined yet, for example
        return ""
    if isinstance(kind, msgspec.inspect.CustomType) and not can_be_rebuilt(kind.cls):
        return f"{kind.cls.__name__} cannot be rebuilt from JSON"
    return ""


def hint_of(function: Callable[..., object], parameter: inspect.Parameter) -> Any:  # noqa: ANN401 - as above
    """Return what the annotation of a parameter stands for; Any where there is none, or none that can be read."""
    if parameter.annotation is parameter.empty:
        return Any
    hint = resolve(function, parameter.annotation)
    # What is None by default may be None, also where the annotation does not say so.
    is_implicit = parameter.default is None and hint is not Any and hint is not object
    return Optional[hint] if is_implicit else hint  # noqa: UP045 - not every annotation knows `|`


def resolve(function: Callable[..., object], annotation: object) -> Any:  # noqa: ANN401 - as above
    """Return what an annotation stands for; Any for one that only a type checker can read."""
    one = SimpleNamespace(__annotations__={"it": annotation})
    try:
        names = getattr(inspect.unwrap(function), "__globals__", {})
        return get_type_hints(one, names, include_extras=True)["it"]
    except (AttributeError, NameError, SyntaxError, TypeError):
        return Any


def keywords_after(
    parameters: Sequence[inspect.Parameter],
) -> list[tuple[frozenset[str], frozenset[str]]]:
    """Return which keywords a call must and may have after so many positional arguments.

    Empty for a function with parameters of other kinds, whose calls have to be bound.
    """
    if any(parameter.kind not in ORDINARY for parameter in parameters):
        return []
    places = sum(parameter.kind is parameter.POSITIONAL_OR_KEYWORD for parameter in parameters)
    return [
        (
            frozenset(parameter.name for parameter in parameters[given:] if parameter.default is parameter.empty),
            frozenset(parameter.name for parameter in parameters[given:]),
        )
        for given in range(places + 1)
    ]
