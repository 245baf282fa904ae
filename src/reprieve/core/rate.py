"""A rate: at most `count` grants in any sliding window of `window` seconds.

The meter counts grants in 64 buckets per window and drops a bucket only when all of it has left the window, so that no
window ever exceeds the rate; in return, up to 1/64 of the window may go unused.
"""

from msgspec.structs import force_setattr

from reprieve.core import values
from reprieve.core.duration import milliseconds
from reprieve.core.record import Record
from reprieve.errors import ValidationError

BUCKETS = 64


class Rate(Record):
    """At most `count` grants in any `window` seconds."""

    count: int
    window: float

    def __post_init__(self) -> None:
        """Refuse a count below 1 and a window outside 64 ms … 31 days."""
        if type(self.count) is not int or type(self.window) is not float:
            # Claims read many rates, and those are plain.
            force_setattr(self, "count", values.whole(self.count, "count of a rate", ValidationError))
            force_setattr(self, "window", values.to_float(self.window))
        if self.count < 1 or not 0.064 <= self.window <= 31 * 86_400:  # noqa: PLR2004 - a bucket of 1 ms up to a month
            message = f"a rate must be 1 or more in 64 ms to 31 days, got {self.count} in {self.window} s"
            raise ValidationError(message)

    @property
    def bucket(self) -> int:
        """The length of one bucket in milliseconds."""
        return -(-milliseconds(self.window) // BUCKETS)


Meter = tuple[tuple[int, int], ...]
"""Buckets with grants in them, oldest first: the bucket's number and its grants."""


def room(rate: Rate, meter: Meter, now: int) -> int:
    """Return how many grants are left now."""
    return max(0, rate.count - sum(grants for _, grants in _current(rate, meter, now)))


def spend(rate: Rate, meter: Meter, now: int, grants: int) -> Meter:
    """Return the meter after `grants` at `now`; after the clock went back, they count in the newest bucket."""
    current = _current(rate, meter, now)
    number = max(now // rate.bucket, current[-1][0]) if current else now // rate.bucket
    if current and current[-1][0] == number:
        return (*current[:-1], (number, current[-1][1] + grants))
    return (*current, (number, grants))


def refund(meter: Meter, grants: int) -> Meter:
    """Return the meter without the newest `grants`, which were not used."""
    kept = list(meter)
    while grants and kept:
        number, last = kept.pop()
        if last > grants:
            kept.append((number, last - grants))
        grants -= min(grants, last)
    return tuple(kept)


def opens_at(rate: Rate, meter: Meter, now: int) -> int:
    """Return when the next grant is possible: now, or when enough of the oldest buckets have left the window."""
    current = _current(rate, meter, now)
    excess = sum(grants for _, grants in current) - rate.count + 1
    for number, grants in current:
        if excess <= 0:
            break
        excess -= grants
        now = max(now, (number + BUCKETS + 1) * rate.bucket)
    return now


def carry(old: Rate, meter: Meter, new: Rate, now: int) -> Meter:
    """Return the meter for a rate that replaces another: earlier grants keep counting from when they were granted.

    A bucket does not say when exactly, so its grants count as late as possible.
    """
    current = _current(old, meter, now)
    if old.window == new.window:
        return current
    carried: Meter = ()
    for number, grants in current:
        carried = spend(new, carried, min(now, (number + 1) * old.bucket - 1), grants)
    return _current(new, carried, now)


def _current(rate: Rate, meter: Meter, now: int) -> Meter:
    oldest = now // rate.bucket - BUCKETS
    return tuple(entry for entry in meter if entry[0] >= oldest)
