"""What was granted under a rate, as rows keep it."""

from typing import NamedTuple

import msgspec

from reprieve.core.rate import BUCKETS, Meter, Rate, carry

_decode_meter = msgspec.json.Decoder(Meter).decode


class RateRow(NamedTuple):
    """The rate of a tenant or limiter, and what was granted under it."""

    rate_count: int | None
    rate_window: float | None
    meter: str


def rate_of(count: int | None, window: float | None) -> Rate | None:
    """Return the rate of two columns."""
    return None if count is None or window is None else Rate(count=count, window=window)


def carried(row: RateRow, new: Rate | None, now: int) -> str:
    """Return the meter under a new rate: setting a rate again does not forget what was granted."""
    old = rate_of(row.rate_count, row.rate_window)
    if old is None or new is None:
        return "[]"
    return msgspec.json.encode(carry(old, _decode_meter(row.meter), new, now)).decode()


def kept_until(rate: Rate | None, now: int) -> int:
    """Return until when a rate counts what it has granted up to now."""
    return 0 if rate is None else now + (BUCKETS + 1) * rate.bucket
