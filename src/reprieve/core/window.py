"""Retry windows: hours of the week in which no retry may start, in a given time zone."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NoReturn
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from reprieve.core import values
from reprieve.errors import InvalidWindow, UnknownTimeZone, WindowNeverOpens

_DAY = 24 * 60
_WEEK = 7 * _DAY
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_SPAN = re.compile(r"(?:([a-z]{3})(?:-([a-z]{3}))? )?(\d\d):(\d\d)-(\d\d):(\d\d)")


@dataclass(frozen=True, slots=True, init=False)
class Window:
    """When retries may start: outside the `closed` spans, or only inside the `open` ones.

    A span is `"mon-fri 09:00-17:00"` or `"sun 00:00-24:00"`; without days it holds every day. A span that ends before
    it begins runs past midnight.
    """

    zone: str
    closed: tuple[tuple[int, int], ...]
    """Half-open ranges of minutes of the week, ordered and disjoint; the last may run past Sunday."""

    def __init__(
        self,
        *,
        closed: str | Iterable[str] = (),
        open: str | Iterable[str] = (),  # noqa: A002 - the opposite of `closed`
        zone: str = "UTC",
    ) -> None:
        """Parse the spans; `closed` and `open` exclude each other."""
        shut = _minutes(closed)
        if spans := _minutes(open):
            if shut:
                message = "a window takes closed spans or open spans, not both"
                raise InvalidWindow(message)
            shut = set(range(_WEEK)) - spans
        if len(shut) == _WEEK:
            message = "the window never opens, so a retry would wait forever; leave some time open"
            raise WindowNeverOpens(message)
        zone = values.text(zone, "zone", UnknownTimeZone)
        _load_zone(zone)
        object.__setattr__(self, "zone", zone)
        object.__setattr__(self, "closed", _spans_of(shut))

    def opens_at(self, at: int) -> int:
        """Return the first time from `at` on at which a retry may start."""
        local = datetime.fromtimestamp(at / 1_000, _load_zone(self.zone))
        opening = local
        while (end := self._end_of_span(opening)) is not None:
            days, minute = divmod(end - opening.weekday() * _DAY, _DAY)
            # Keep the fold: in the second pass of a repeated hour, the span ends in that pass.
            opening = (opening + timedelta(days=days)).replace(
                hour=minute // 60, minute=minute % 60, second=0, microsecond=0, fold=opening.fold
            )
        return at if opening is local else round(opening.timestamp() * 1_000)

    def _end_of_span(self, local: datetime) -> int | None:
        minute = local.weekday() * _DAY + local.hour * 60 + local.minute
        for start, end in self.closed:
            if start <= minute < end:
                return end
            if start <= minute + _WEEK < end:
                return end - _WEEK
        return None


def _minutes(spans: str | Iterable[str]) -> set[int]:
    texts = [spans] if isinstance(spans, str) or not isinstance(spans, Iterable) else list(spans)
    return {minute for text in texts for minute in _read_span(values.text(text, "span of a window", InvalidWindow))}


def _read_span(text: str) -> set[int]:
    found = _SPAN.fullmatch(text.strip().lower())
    if found is None:
        _refuse(text)
    first, last, *clock = found.groups()
    start_hour, start_minute, end_hour, end_minute = map(int, clock)
    start, end = start_hour * 60 + start_minute, end_hour * 60 + end_minute
    if start_minute > 59 or end_minute > 59 or start >= _DAY or end > _DAY or start == end:  # noqa: PLR2004 - a clock
        _refuse(text)
    if any(day not in (None, *_DAYS) for day in (first, last)):
        _refuse(text)
    length = (end - start) % _DAY or _DAY
    return {(day * _DAY + start + minute) % _WEEK for day in _days(first, last) for minute in range(length)}


def _days(first: str | None, last: str | None) -> list[int]:
    if first is None:
        return list(range(7))
    start = _DAYS.index(first)
    count = (_DAYS.index(last or first) - start) % 7 + 1
    return [(start + day) % 7 for day in range(count)]


def _spans_of(minutes: set[int]) -> tuple[tuple[int, int], ...]:
    # A span that runs over the end of the week is one span, so begin right after a minute that is open.
    first = next(minute for minute in range(_WEEK) if minute not in minutes)
    spans: list[tuple[int, int]] = []
    for minute in range(first, first + _WEEK):
        if minute % _WEEK in minutes:
            start = spans.pop()[0] if spans and spans[-1][1] == minute else minute
            spans.append((start, minute + 1))
    return tuple(spans)


def _load_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        message = f'zone must be a time zone such as "Europe/Lisbon" or "UTC", got {name!r}'
        raise UnknownTimeZone(message) from error


def _refuse(text: str) -> NoReturn:
    message = f'a span must look like "mon-fri 09:00-17:00" or "22:00-06:00", got {text!r}'
    raise InvalidWindow(message)
