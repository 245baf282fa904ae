"""Durations as people write them: `"5m"`, `"1h30m"`, seconds, or a timedelta."""

import math
import re
from datetime import timedelta
from typing import TypeAlias

from reprieve.core.values import shown, to_float
from reprieve.errors import InvalidDuration

Duration: TypeAlias = str | float | timedelta

MAX_DURATION_SECONDS = 10 * 365 * 86_400.0
"""Ten years: a longer duration is a mistake, and would overflow the timestamps of a store."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)\s*(ms|s|m|h|d|w)\s*")


def seconds(value: Duration, what: str = "duration") -> float:
    """Return a duration in seconds; `what` names the value in the error."""
    match value:
        case timedelta():
            length = value.total_seconds()
        case str():
            length = _parse(value)
        case _:
            length = to_float(value)
    # In this form the comparison rejects NaN too.
    if not 0 <= length <= MAX_DURATION_SECONDS:
        message = (
            f'{what} must be a duration such as "300ms", "5m" or "1h30m", '
            f"a number of seconds (0 to ten years) or a timedelta, got {shown(value)}"
        )
        raise InvalidDuration(message)
    return length


def clamp(value: float, longest: float = MAX_DURATION_SECONDS) -> float:
    """Return a number of seconds from an external system, limited to 0 … longest."""
    length = to_float(value)
    return min(longest, length) if length > 0 else 0.0


def milliseconds(length: float) -> int:
    """Return `length` seconds in whole milliseconds, rounded up so that a retry is never early."""
    return math.ceil(round(length * 1_000, 6))


def _parse(text: str) -> float:
    total, position = 0.0, 0
    text = text.strip()
    while part := _PART.match(text, position):
        total += float(part[1]) * _UNITS[part[2]]
        position = part.end()
    return total if text and position == len(text) else math.nan


def spell(length: float) -> str:
    """Return seconds as people write them: `"1h30m"`, `"2.5s"`."""
    if length < 60:  # noqa: PLR2004 - a minute
        return f"{length:.3g}s"
    rest, parts = round(length), []
    for unit in ("d", "h", "m", "s"):
        count, rest = divmod(rest, int(_UNITS[unit]))
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2])
