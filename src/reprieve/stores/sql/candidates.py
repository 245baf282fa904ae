"""Rows that a claim reads as JSON arrays before it chooses."""

import msgspec

from reprieve.core.limits import Limits
from reprieve.core.rate import Meter, Rate

_decode_meter = msgspec.json.Decoder(Meter).decode


class LimitsRow(msgspec.Struct, array_like=True, frozen=True):
    """The limits of a queue, a tenant or a limiter, and its use of them."""

    id: int
    permits: int | None
    max_running: int | None
    rate_count: int | None
    rate_window: float | None
    meter: str
    running: int

    def limits(self) -> Limits:
        """Return them as the choice counts them."""
        if self.rate_count is None or self.rate_window is None:
            return Limits(self.id, self.permits, self.max_running, None, (), self.running)
        rate = Rate(count=self.rate_count, window=self.rate_window)
        return Limits(self.id, self.permits, self.max_running, rate, _decode_meter(self.meter), self.running)


class CandidateRow(LimitsRow, frozen=True):
    """A tenant that a claim may choose."""

    name: str
    weight: float
    load: int
    finish: int
    served: int


class LaneRow(msgspec.Struct, array_like=True, frozen=True):
    """An open lane, with the ids of its limiters; 0 is none."""

    id: int
    priority: int
    served: int
    ready: int
    limiters: tuple[int, int, int, int]
    """Those of its task, its dependency, its group, and of its tenant and dependency together."""
