"""Checks of the values that people and programs supply: each returns a plain value, or raises the error it is given.

Stores, records and caches see plain values only: a `(str, Enum)` or `StrEnum` member counts as its value, an `IntEnum`
member as its number. A bool is never a number, and a float is never a whole number.
"""

import math
from collections.abc import Iterable

from reprieve.errors import InvalidName, ValidationError

MAX_WHOLE = 2**31 - 1
"""The largest whole number that every store can hold."""

MAX_NAME_CHARS = 255
"""Longest name of a queue, tenant, task, dependency or group, and longest key of a job."""

MAX_SHOWN_CHARS = 80
"""Characters of a value that an error shows."""


def whole(value: object, what: str, error: type[ValidationError], least: int = 0, most: int = MAX_WHOLE) -> int:
    """Return a whole number as a plain int; `what` names it in the error."""
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return int(value)
    is_open = most == MAX_WHOLE and not (isinstance(value, int) and value > most)
    limits = f"of {least} or more" if is_open else f"from {least} to {most}"
    message = f"{what} must be a whole number {limits}, got {shown(value)}"
    raise error(message)


def number(value: object, what: str, error: type[ValidationError], least: float, most: float) -> float:
    """Return a number as a plain float; `what` names it in the error."""
    plain = to_float(value)
    # In this form the comparison rejects NaN too.
    if not least <= plain <= most:
        message = f"{what} must be a number from {least:g} to {most:g}, got {shown(value)}"
        raise error(message)
    return plain


def to_float(value: object) -> float:
    """Return a number of any type, such as a Decimal, as a plain float; NaN for what is not a number."""
    if isinstance(value, bool | str | bytes | bytearray):
        return math.nan
    try:
        return float(value)  # type: ignore[arg-type]  # what has no float raises a TypeError
    except (OverflowError, TypeError, ValueError):
        return math.nan


def text(value: object, what: str, error: type[ValidationError]) -> str:
    """Return a text as a plain str; `what` names it in the error."""
    if isinstance(value, str):
        return plain(value)
    message = f"{what} must be text, got {shown(value)}"
    raise error(message)


def name(value: object, what: str, *, may_be_empty: bool = False) -> str:
    """Return a name as a plain str; raise `InvalidName` for what is not one."""
    if isinstance(value, str) and len(value) <= MAX_NAME_CHARS and value.isprintable() and (value or may_be_empty):
        return plain(value)
    least = 0 if may_be_empty else 1
    message = f"{what} must be {least}–{MAX_NAME_CHARS} printable characters, got {shown(value)}"
    raise InvalidName(message)


def one_of(value: object, words: Iterable[str], what: str, error: type[ValidationError]) -> str:
    """Return one of some words as a plain str; `what` names it in the error."""
    words = tuple(words)
    if isinstance(value, str) and value in words:
        return plain(value)
    message = f"{what} must be one of {', '.join(words)}, got {shown(value)}"
    raise error(message)


def flag(value: object, what: str, error: type[ValidationError]) -> bool:
    """Return True or False; `what` names it in the error."""
    if isinstance(value, bool):
        return value
    message = f"{what} must be True or False, got {shown(value)}"
    raise error(message)


def plain(value: str) -> str:
    """Return a text as a plain str: the value of an enum member, never its name."""
    return value if type(value) is str else str.__str__(value)


def shown(value: object) -> str:
    """Return a value as an error shows it: as code, on one line, and short."""
    try:
        written = repr(value)
    except Exception:  # noqa: BLE001 - a foreign __repr__ may raise anything, and the error must still name the value
        written = f"a {type(value).__name__}"
    return written if len(written) <= MAX_SHOWN_CHARS else written[: MAX_SHOWN_CHARS - 1] + "…"
