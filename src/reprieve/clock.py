"""The clock: the only place that asks the machine what time it is."""

import time
from typing import Protocol


class Clock(Protocol):
    """Answers the time. Tests hand in one that jumps."""

    def now(self) -> int:
        """Answer the time in milliseconds since 1970, rounded down."""
        ...

    def next(self) -> int:
        """Answer the time rounded up: a wait that is counted from it is never too short."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> int:
        """Answer the time in milliseconds since 1970, rounded down."""
        return now()

    def next(self) -> int:
        """Answer the time in milliseconds since 1970, rounded up."""
        return -(-time.time_ns() // 1_000_000)


def now() -> int:
    """Answer the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def ticks() -> float:
    """Answer seconds that only ever grow, whatever happens to the time of day: to measure how long something took."""
    return time.monotonic()
