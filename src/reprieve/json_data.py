"""Values as JSON, with those that msgspec does not know: pydantic models, paths, subclasses of text and numbers.

A model is written as JSON that its own class reads back as the same model, or it is refused.
"""

import math
from pathlib import PurePath
from typing import Any

import msgspec

from reprieve.errors import UnserialisableArgument
from reprieve.round_trip import difference, parts_of

_BASES = (str, int, float)


def dump(value: object, what: str, *, may_hold_nan: bool = True) -> bytes:
    """Write a value as JSON; raises `UnserialisableArgument` with what it is."""
    try:
        data = _encode(value)
    except (NotImplementedError, TypeError, ValueError, OverflowError, RecursionError) as error:
        message = f"the {what} cannot be stored as JSON: {error}; pass plain data, a dataclass, a struct or a model"
        raise UnserialisableArgument(message) from error
    # JSON has no NaN and no infinity: they would be written as null, and arrive as None.
    if may_hold_nan and b"null" in data and _has_nan(msgspec.to_builtins(value, enc_hook=to_json_data)):
        message = f"there is a NaN or an infinity in the {what}, which JSON cannot hold; use None or text"
        raise UnserialisableArgument(message)
    return data


def _has_nan(value: object) -> bool:
    """Return whether a float somewhere in plain data is a NaN or an infinity."""
    match value:
        case float():
            return not math.isfinite(value)
        case list() | tuple():
            return any(map(_has_nan, value))
        case dict():
            return any(map(_has_nan, value.values()))
        case _:
            return False


def load(data: bytes) -> object:
    """Read a value that `dump` wrote."""
    return msgspec.json.decode(data)


def to_json_data(value: object) -> object:
    """Return plain data for a value that msgspec cannot write; raises `NotImplementedError` if there is none."""
    if is_model(type(value)):
        return _dump_model(value)
    # By the methods of the class itself: those of a subclass may return the subclass again.
    match value:
        case str():
            return str.__str__(value)
        case int():
            return int.__int__(value)
        case float():
            return float.__float__(value)
        case PurePath():
            return str(value)
        case _:
            message = f"{type(value).__name__} is not plain data"
            raise NotImplementedError(message)


def from_json_data(kind: type, data: object) -> object:
    """Return the value of a class that plain data stands for."""
    if is_model(kind):
        # As JSON, and not as Python values: a strict model takes a date from a text only there.
        return kind.model_validate_json(msgspec.json.encode(data))  # type: ignore[attr-defined]  # models have it
    for base in _BASES:
        if issubclass(kind, base) and type(data) is base:
            return kind(data)
    if issubclass(kind, PurePath) and isinstance(data, str):
        return kind(data)
    message = f"{kind.__name__} cannot be rebuilt from JSON"
    raise NotImplementedError(message)


def is_model(kind: type) -> bool:
    """Return whether a class is one of pydantic's models, without importing pydantic."""
    return hasattr(kind, "model_dump") and hasattr(kind, "model_validate_json")


def can_be_rebuilt(kind: type) -> bool:
    """Return whether values of a class that msgspec does not know can be read back."""
    return is_model(kind) or issubclass(kind, (*_BASES, PurePath))


def _dump_model(model: Any) -> object:  # noqa: ANN401 - pydantic need not be installed
    kind = type(model)
    # Fields that were never set stay so, since `exclude_unset` is how a partial update is told from a whole one. A
    # default that is computed would be another one on the worker, so that it is written.
    data = model.model_dump(
        mode="json", by_alias=True, round_trip=True, warnings=False, exclude_unset=not _has_computed_default(model)
    )
    try:
        arrived = from_json_data(kind, data)
    except ValueError as error:
        message = f"{kind.__name__} does not read its own JSON: {' '.join(str(error).split())}"
        raise NotImplementedError(message) from error
    if changed := difference(model, arrived, kind.__name__):
        raise NotImplementedError(changed)
    return data


def _has_computed_default(value: object) -> bool:
    """Return whether a field of a model, or of a model in it, was not set and has its value from a function."""
    match value:
        case list() | tuple() | set() | frozenset():
            return any(map(_has_computed_default, value))
        case dict():
            return any(map(_has_computed_default, value.values()))
        case _:
            parts = parts_of(value)
    if parts is None:
        return False
    if is_model(type(value)):
        for name, field in type(value).model_fields.items():  # type: ignore[attr-defined]  # models have it
            if field.default_factory is not None and name not in value.model_fields_set:  # type: ignore[attr-defined]  # as above
                return True
    return any(map(_has_computed_default, parts.values()))


_encode = msgspec.json.Encoder(enc_hook=to_json_data).encode
