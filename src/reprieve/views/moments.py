"""Instants and durations as people read them."""

from datetime import UTC, datetime

from reprieve.core.duration import spell


def clock_time(at: int, now: int) -> str:
    """Return an instant in local time, with the date unless it is today: `14:02:11`, `2026-07-08 14:02:11`."""
    moment, today = (datetime.fromtimestamp(instant / 1_000, UTC).astimezone() for instant in (at, now))
    return f"{moment:%H:%M:%S}" if moment.date() == today.date() else f"{moment:%Y-%m-%d %H:%M:%S}"


def timestamp(at: int) -> str:
    """Return an instant with date and milliseconds, in UTC, as scripts sort it."""
    return datetime.fromtimestamp(at / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def relative(at: int, now: int) -> str:
    """Return the time between an instant and now: `in 5m`, `12s ago`."""
    return f"in {length(at - now)}" if at > now else f"{length(now - at)} ago"


def roughly(at: int, now: int) -> str:
    """Return the time between an instant and now, in its largest unit: `in 59m`, `3d ago`, `now`."""
    distance = _largest_unit(abs(at - now))
    if not distance:
        return "now"
    return f"in {distance}" if at > now else f"{distance} ago"


def lasting(since_at: int, now: int) -> str:
    """Return for how long something lasts, in its largest unit: `for 59m`; less than a second is `for 1s`."""
    return f"for {_largest_unit(now - since_at) or '1s'}"


def _largest_unit(milliseconds: int) -> str:
    seconds = milliseconds // 1_000
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return ""


def both(at: int, now: int) -> str:
    """Return an instant in local time, and the time between it and now."""
    return f"{clock_time(at, now)} ({relative(at, now)})"


def length(milliseconds: int) -> str:
    """Return a duration, in whole seconds from one second on: `0.3s`, `48s`, `1m20s`."""
    seconds = milliseconds / 1_000
    return spell(round(seconds, 1) if seconds < 1 else float(round(seconds)))
