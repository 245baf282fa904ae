"""Lengths of time as people write them: `"5m"`, `"1h30m"`, seconds, or a timedelta."""

import math
import re
from datetime import timedelta
from typing import TypeAlias

from reprieve.errors import InvalidDuration

Duration: TypeAlias = str | float | timedelta

LONGEST = 10 * 365 * 86_400.0
"""Ten years in seconds: longer waits are mistakes, and they would overflow a store's clock."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)\s*(ms|s|m|h|d|w)\s*")


def seconds(value: Duration, what: str = "duration") -> float:
    """Turn a duration into seconds; `what` names the thing in the error."""
    match value:
        case bool():
            length = math.nan
        case timedelta():
            length = value.total_seconds()
        case str():
            length = _parse(value)
        case _:
            length = _number(value)
    # Written so that NaN, which compares false with everything, is refused too.
    if not 0 <= length <= LONGEST:
        message = (
            f'{what} {value!r} is not a length of time; write it like "300ms", "5m" or "1h30m", '
            "as seconds (0 up to ten years) or as a timedelta"
        )
        raise InvalidDuration(message)
    return length


def _number(value: float) -> float:
    try:
        return float(value)
    except (OverflowError, TypeError):
        return math.nan


def clamp(value: float, longest: float = LONGEST) -> float:
    """Force a number of seconds that an external system supplied into 0 … longest."""
    return min(longest, value) if value > 0 else 0.0


def milliseconds(length: float) -> int:
    """Whole milliseconds that are never shorter than `length` seconds: rounded down, a retry would be early."""
    return math.ceil(round(length * 1_000, 6))


def _parse(text: str) -> float:
    total, position = 0.0, 0
    text = text.strip()
    while part := _PART.match(text, position):
        total += float(part[1]) * _UNITS[part[2]]
        position = part.end()
    return total if text and position == len(text) else math.nan


def spell(length: float) -> str:
    """Write seconds as people would: `"1h30m"`, `"2.5s"`."""
    if length < 60:  # noqa: PLR2004 - a minute
        return f"{length:.3g}s"
    rest, parts = round(length), []
    for unit in ("d", "h", "m", "s"):
        count, rest = divmod(rest, int(_UNITS[unit]))
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2])
