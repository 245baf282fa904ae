"""The clock: the only place that asks the machine what time it is."""

import math
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from reprieve.errors import StoreError

TUNE_EVERY = 2.0
"""Seconds after which a server is asked for its time again."""

TUNE_AGAIN = 0.2
"""Seconds after which one that did not answer is asked again."""

AT_FIRST = 5
"""Times that a server is asked at first: the first answer takes as long as it takes to connect."""

DRIFT = 20e-6
"""Seconds by which two clocks may part in a second."""


class Clock(Protocol):
    """Answers the time. Tests hand in one that jumps."""

    @property
    def is_stale(self) -> bool:
        """Whether it should be tuned."""
        ...

    async def tune(self) -> None:
        """Hear the time from whoever keeps it, if that was long ago: before moments that others will read."""
        ...

    def now(self) -> int:
        """Answer the time in milliseconds since 1970, rounded down."""
        ...

    def next(self) -> int:
        """Answer the time rounded up: a wait that is counted from it is never too short."""
        ...


class SystemClock:
    """The machine's own clock."""

    is_stale = False

    async def tune(self) -> None:
        """Do nothing: nobody else keeps its time."""

    def now(self) -> int:
        """Answer the time in milliseconds since 1970, rounded down."""
        return now()

    def next(self) -> int:
        """Answer the time in milliseconds since 1970, rounded up."""
        return -(-time.time_ns() // 1_000_000)


class ServerClock:
    """The clock of a server, as well as it can be known from here.

    What the server said is carried on by seconds that only grow, so it does not matter what time this machine thinks it
    is. When exactly the server said it, between question and answer, nobody knows: `now` answers what has surely come,
    and `next` what has surely not passed. Until the server was heard, the machine's own clock must do.
    """

    def __init__(self, ask: Callable[[], Awaitable[int]]) -> None:
        """Take how to ask for the server's time, in microseconds since 1970."""
        self._ask = ask
        self._ask_at = -math.inf
        self._ahead: tuple[int, int, int] | None = None
        """By how many microseconds the server is ahead of our ticks, at least and at most, and when that was so."""

    @property
    def is_stale(self) -> bool:
        """Whether the server was heard too long ago, or never."""
        return ticks() >= self._ask_at

    async def tune(self) -> None:
        """Ask for the time, if that was long ago; a server that does not answer is asked again a little later."""
        if not self.is_stale:
            return
        try:
            for _ in range(AT_FIRST if self._ahead is None else 1):
                asked = _ticks()
                said = await self._ask()
                self._hear(asked, said, _ticks())
        except StoreError:
            # Whoever wants more of it than the time is about to hear what is wrong.
            self._ask_at = ticks() + TUNE_AGAIN
        else:
            self._ask_at = ticks() + TUNE_EVERY

    def now(self) -> int:
        """Answer a time that the server's clock has reached, in milliseconds since 1970."""
        if self._ahead is None:
            return now()
        return (_ticks() + self._ahead[0]) // 1_000

    def next(self) -> int:
        """Answer a time that the server's clock has not passed, in milliseconds since 1970."""
        if self._ahead is None:
            return SystemClock().next()
        return -(-(_ticks() + self._ahead[1]) // 1_000)

    def _hear(self, asked: int, said: int, heard: int) -> None:
        least, most = said - heard, said - asked
        if self._ahead is not None:
            known_least, known_most, known_at = self._ahead
            drift = math.ceil((heard - known_at) * DRIFT)
            both = max(least, known_least - drift), min(most, known_most + drift)
            if both[0] <= both[1]:
                # Otherwise it was set anew, or is another server's.
                least, most = both
        self._ahead = least, most, heard


def now() -> int:
    """Answer the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def ticks() -> float:
    """Answer seconds that only ever grow, whatever happens to the time of day: to measure how long something took."""
    return time.monotonic()


def _ticks() -> int:
    """Answer microseconds that only ever grow."""
    return time.monotonic_ns() // 1_000
