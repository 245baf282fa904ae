"""Checks of the kind of a value, for fields that hold several values, bytes or a whole record."""

from typing import Any

from reprieve.core import values
from reprieve.errors import InvalidCursor, ValidationError


def check_record(value: object, kind: type) -> None:
    """Raise a `ValidationError` for what is not a record of this kind, or another value of a type."""
    if not isinstance(value, kind):
        message = f"{kind.__name__} expected, got {values.shown(value)}"
        raise ValidationError(message)


def several(value: Any, what: str) -> tuple[Any, ...]:  # noqa: ANN401 - the caller checks each of them
    """Return the values of a collection; raise a `ValidationError` for what is none, such as a text."""
    if isinstance(value, tuple | list | set | frozenset):
        return tuple(value)
    message = f"{what} must be a tuple, got {values.shown(value)}"
    raise ValidationError(message)


def records(value: Any, kind: type, what: str) -> tuple[Any, ...]:  # noqa: ANN401 - of the kind
    """Return the records of a collection; raise a `ValidationError` if any is of another kind."""
    found = several(value, what)
    for one in found:
        check_record(one, kind)
    return found


def check_cursor(cursor: object) -> str:
    """Return a cursor as plain text; raise `InvalidCursor` for what is none."""
    return values.text(cursor, "cursor", InvalidCursor)
