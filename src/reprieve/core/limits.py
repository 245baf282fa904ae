"""What may run at once and what does: the limits of a queue, a tenant or a limiter, as a claim counts them."""

import msgspec

from reprieve.core.rate import Meter, Rate, opens_at, refund, room, spend


class Limits(msgspec.Struct, eq=False):
    """The limits of a row and its use of them. A claim changes it in memory and writes it back once."""

    id: int
    permits: int | None
    max_running: int | None
    rate: Rate | None
    meter: Meter
    running: int
    is_changed: bool = False
    is_unlimited: bool = False
    """Whether there is no limit at all, so that `room` need not be called."""

    def __post_init__(self) -> None:
        """Derive `is_unlimited`."""
        self.is_unlimited = self.permits is None and self.max_running is None and self.rate is None

    def room(self, now: int) -> int | None:
        """Return how many more jobs may start; None is any number."""
        if self.is_unlimited:
            return None
        limits = [limit - self.running for limit in (self.permits, self.max_running) if limit is not None]
        if self.rate is not None:
            limits.append(room(self.rate, self.meter, now))
        return max(0, min(limits))

    def take(self, now: int) -> None:
        """Count one more job."""
        self.running += 1
        if not self.is_changed:
            self.is_changed = True
        if self.rate is not None:
            self.meter = spend(self.rate, self.meter, now, 1)

    def give_back(self) -> None:
        """Count one job less, which was taken but does not run."""
        self.running -= 1
        self.is_changed = True
        self.meter = refund(self.meter, 1)

    def reopens_at(self, now: int) -> int | None:
        """Return when the rate has room again; None when it has, or has nothing to do with it."""
        if self.rate is None or room(self.rate, self.meter, now):
            return None
        return opens_at(self.rate, self.meter, now)
