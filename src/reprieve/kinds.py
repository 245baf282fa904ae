"""Which Python types fit an annotation at a glance, so that most arguments are checked without being converted."""

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin
from uuid import UUID

import msgspec

_SCALARS: dict[object, frozenset[type]] = {
    int: frozenset({int}),
    float: frozenset({float, int}),
    str: frozenset({str}),
    bool: frozenset({bool}),
    None: frozenset({NoneType}),
    NoneType: frozenset({NoneType}),
}
"""Annotations that nothing but these types, and their subclasses, fits."""

_LEAVES = (bytes, date, datetime, time, timedelta, Decimal, UUID)
"""Types whose values always arrive as they were. Others fit them too, as a text that is a date."""


@dataclass(frozen=True, slots=True)
class Kinds:
    """The types that fit one annotation."""

    exact: frozenset[type]
    """Types whose values fit for certain."""
    is_closed: bool
    """Whether nothing else fits but subclasses of these."""

    def may_hold(self, value: object) -> bool:
        """Whether a value fits, or has to be converted to find out."""
        if not self.is_closed or type(value) in self.exact:
            return True
        # To Python a bool is an int; in JSON it is not, and the worker would refuse it.
        return isinstance(value, tuple(self.exact)) and not isinstance(value, bool)


def kinds_of(hint: Any) -> Kinds | None:  # noqa: ANN401 - an annotation is anything
    """Return the types that fit an annotation; None if everything does."""
    members = list(_members(hint))
    if Any in members or object in members:
        return None
    exact = frozenset[type]().union(*map(_exact, members)) if _is_readable(hint) else frozenset[type]()
    return Kinds(exact, is_closed=all(_is_scalar(member) for member in members))


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


def _is_readable(hint: Any) -> bool:  # noqa: ANN401 - as above
    """Whether the worker can read the annotation at all: some unions cannot be told apart in JSON."""
    try:
        msgspec.json.Decoder(hint)
    except TypeError:
        return False
    return True
