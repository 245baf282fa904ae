"""Whether a value that went through JSON, and was rebuilt by its annotation, is the value that was sent.

Plain JSON is converted as the annotation says: a text that is a date becomes a `datetime`, and a dict becomes a
dataclass. Every other value has to arrive as it was.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from types import NoneType
from typing import Any
from uuid import UUID

_JSON_SCALARS = (str, int, float, bool, NoneType)

_NUMBERS = (int, float, Decimal)

_MAX_CLASSES = 512
"""Classes whose parts are remembered."""

_BUILT_IN = frozenset({str, int, float, tuple, bytes, date, datetime, time, timedelta, Decimal, UUID})
"""Types as which values of a subclass may arrive, if they are equal."""


_BY_EQUALITY = frozenset({str, int, float, bool, NoneType, bytes, date, timedelta, UUID})
"""Types whose equal values are the same."""


def difference(sent: object, arrived: object, path: str = "$") -> str | None:
    """Return what is different about a value that arrived, and where; None if it is what was sent."""
    kind = type(sent)
    if kind is type(arrived) and kind in _BY_EQUALITY and sent == arrived:
        return None
    if isinstance(sent, dict):
        return _in_dict(sent, arrived, path)
    if isinstance(sent, list):
        return _in_list(sent, arrived, path)
    if kind in _JSON_SCALARS:
        return None if _is_converted(sent, arrived) else _changed(sent, arrived, path)
    if kind is not type(arrived):
        is_same = type(arrived) in _BUILT_IN and isinstance(sent, type(arrived)) and _is_equal(sent, arrived)
        return None if is_same else _changed(sent, arrived, path)
    if isinstance(sent, tuple):
        return _in_items(sent, arrived, path)  # type: ignore[arg-type]  # of the same type
    parts, arrived_parts = parts_of(sent), parts_of(arrived)
    if parts is not None and arrived_parts is not None:
        return _in_parts(parts, arrived_parts, path)
    return None if _is_equal(sent, arrived) else _changed(sent, arrived, path)


def parts_of(value: object) -> dict[str, object] | None:
    """Return the named parts of a dataclass, struct, attrs object or model; None for another value."""
    names = _part_names(type(value))  # type: ignore[arg-type]  # classes are hashable
    if names is None:
        return None
    parts = {name: getattr(value, name) for name in names if hasattr(value, name)}
    for hidden in ("__pydantic_extra__", "__pydantic_private__"):
        if more := getattr(value, hidden, None):
            parts |= more
    return parts


@lru_cache(_MAX_CLASSES)
def _part_names(kind: type) -> tuple[str, ...] | None:
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    attributes = getattr(kind, "__attrs_attrs__", None)
    if attributes is not None:
        return tuple(attribute.name for attribute in attributes)
    names: Iterable[str] | None = getattr(kind, "__struct_fields__", getattr(kind, "__pydantic_fields__", None))
    return None if names is None else tuple(names)


def _keys_of(kind: Any) -> dict[str, str] | None:  # noqa: ANN401 - any class
    """Return the keys of a class in JSON, each with the name of its part; None if the class has rules of its own."""
    if hasattr(kind, "__struct_fields__"):
        tag = kind.__struct_config__.tag_field
        keys = dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
        return keys | ({tag: ""} if tag else {})
    names = None if hasattr(kind, "__pydantic_fields__") else _part_names(kind)
    return None if names is None else dict(zip(names, names, strict=True))


def _in_dict(sent: Mapping[Any, object], arrived: object, path: str) -> str | None:
    if isinstance(arrived, dict):
        if len(sent) != len(arrived):
            lost = [key for key in sent if key not in arrived]
            return f"{path} would arrive without {', '.join(map(repr, lost))}"
        for (key, value), (arrived_key, arrived_value) in zip(sent.items(), arrived.items(), strict=True):
            if found := difference(key, arrived_key, f"a key of {path}"):
                return found
            if found := difference(value, arrived_value, f"{path}.{key}"):
                return found
        return None
    keys = _keys_of(type(arrived))
    if keys is None:
        return None
    for key, value in sent.items():
        if key not in keys:
            return f"{path} would arrive without {key!r}, which {type(arrived).__name__} does not have"
        if keys[key] and (found := difference(value, getattr(arrived, keys[key]), f"{path}.{key}")):
            return found
    return None


def _in_list(sent: list[object], arrived: object, path: str) -> str | None:
    match arrived:
        case list() | tuple():
            return _in_items(sent, arrived, path)
        case set() | frozenset() if len(sent) != len(arrived):
            return f"{path} has equal items, of which a set keeps one"
        case _:
            return None


def _in_items(sent: Iterable[object], arrived: Iterable[object], path: str) -> str | None:
    # What arrives may be longer: a named tuple has defaults.
    pairs = zip(sent, arrived, strict=False)
    return next(filter(None, (difference(a, b, f"{path}[{at}]") for at, (a, b) in enumerate(pairs))), None)


def _in_parts(sent: dict[str, object], arrived: dict[str, object], path: str) -> str | None:
    for name, value in sent.items():
        if name not in arrived:
            return f"{path} would arrive without {name!r}"
        if found := difference(value, arrived[name], f"{path}.{name}"):
            return found
    return None


def _is_converted(sent: object, arrived: object) -> bool:
    """Return whether a scalar of JSON is what arrived, or is converted to it without loss."""
    match sent:
        case str():
            # Base64 is how bytes are written, not what they are.
            return sent == arrived if type(arrived) is str else not isinstance(arrived, _NEVER_TEXT)
        case int() | float() if isinstance(arrived, _NUMBERS):
            return bool(type(sent)(arrived) == sent)
        case int():
            return not isinstance(arrived, (str, NoneType))
        case _:
            return sent is arrived


_NEVER_TEXT = (int, float, bytes, bytearray, memoryview, NoneType)
"""Types that a text is not converted to: what looks like a number in a key may be a text."""


def _is_equal(sent: object, arrived: object) -> bool:
    if isinstance(sent, datetime | time) and isinstance(arrived, datetime | time):
        # `==` is never true for a time of the repeated hour in another zone, and ignores the zone of a time.
        return _clock_time(sent) == _clock_time(arrived)
    # A Decimal that is a NaN is not equal to itself.
    return repr(sent) == repr(arrived) if isinstance(sent, Decimal) else bool(sent == arrived)


def _clock_time(moment: datetime | time) -> tuple[object, ...]:
    """Return what the clock shows, and the offset; without a zone, whether it is the second of two equal times."""
    is_naive = moment.tzinfo is None
    return moment.replace(tzinfo=None), moment.utcoffset(), is_naive, is_naive and moment.fold


def _changed(sent: object, arrived: object, path: str) -> str:
    kinds = type(sent).__name__, type(arrived).__name__
    if kinds[0] == kinds[1]:
        return f"{path} would arrive as another {kinds[0]}"
    return f"{path} is {kinds[0]} and would arrive as {kinds[1]}"
