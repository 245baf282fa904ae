"""The clock: the only place that asks the machine what time it is."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from reprieve.errors import StoreError

TUNE_EVERY = 2.0
"""Seconds after which a server is asked for its time again."""

FORGET_AFTER = 60.0
"""Seconds after which what a server said counts no more."""

AT_FIRST = 5
"""Times that a server is asked at first: the first answer takes as long as it takes to connect."""

DRIFT = 20e-6
"""Seconds by which two clocks may part in a second."""

_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


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
        """Return the time in milliseconds since 1970, rounded down."""
        ...

    def next(self) -> int:
        """Return the time rounded up: a wait that is counted from it is never too short."""
        ...


class SystemClock:
    """The machine's own clock."""

    is_stale = False

    async def tune(self) -> None:
        """Do nothing: nobody else keeps its time."""

    def now(self) -> int:
        """Return the time in milliseconds since 1970, rounded down."""
        return now()

    def next(self) -> int:
        """Return the time in milliseconds since 1970, rounded up."""
        return -(-time.time_ns() // 1_000_000)


class ServerClock:
    """The clock of a server, as well as it can be known from here.

    What the server said is carried on by time that only grows, so it does not matter what time this machine thinks it
    is. When exactly the server said it, between question and answer, nobody knows: `now` answers what has surely come,
    and `next` what has surely not passed. What was never heard, or long ago, counts for nothing: then the machine's own
    clock must do, and whoever tunes waits for an answer.
    """

    def __init__(self, ask: Callable[[], Awaitable[int]]) -> None:
        """Take how to ask for the server's time, in microseconds since 1970."""
        self._ask = ask
        self._ask_at = -math.inf
        self._ahead: tuple[int, int, int] | None = None
        """By how many microseconds the server is ahead of our own, at least and at most, and when that was so."""
        self._asking: dict[asyncio.AbstractEventLoop, asyncio.Task[None]] = {}
        """Questions that are not answered yet."""

    @property
    def is_stale(self) -> bool:
        """Whether the server was heard too long ago, or never."""
        return ticks() >= self._ask_at or self._known(_microseconds()) is None

    async def tune(self) -> None:
        """Ask for the time, if that was long ago; wait for the answer only if nothing is known.

        Raises the `StoreError` that kept the server from answering then.
        """
        if not self.is_stale:
            return
        self._ask_at = ticks() + TUNE_EVERY
        loop = asyncio.get_running_loop()
        asking = self._asking.get(loop)
        if asking is None:
            asking = self._asking[loop] = loop.create_task(self._question())
            asking.add_done_callback(self._end)
        if self._known(_microseconds()) is None:
            # Whoever gives up waiting must not take the answer from the others.
            await asyncio.shield(asking)

    async def close(self) -> None:
        """Ask nothing more, before the store is closed; what other loops ask ends as soon as they come to it."""
        here = asyncio.get_running_loop()
        for loop, asking in list(self._asking.items()):
            if loop is here:
                asking.cancel()
                await asyncio.wait({asking})
            elif not loop.is_closed():
                loop.call_soon_threadsafe(asking.cancel)

    def now(self) -> int:
        """Return a time that the server's clock has reached, in milliseconds since 1970."""
        at = _microseconds()
        known = self._known(at)
        return now() if known is None else (at + known[0]) // 1_000

    def next(self) -> int:
        """Return a time that the server's clock has not passed, in milliseconds since 1970."""
        at = _microseconds()
        known = self._known(at)
        return SystemClock().next() if known is None else -(-(at + known[1]) // 1_000)

    def _known(self, at: int) -> tuple[int, int, int] | None:
        ahead = self._ahead
        return None if ahead is None or at - ahead[2] > FORGET_AFTER * 1_000_000 else ahead

    async def _question(self) -> None:
        for _ in range(AT_FIRST if self._known(_microseconds()) is None else 1):
            asked = _microseconds()
            said = await self._ask()
            self._hear(asked, said, _microseconds())

    def _end(self, asking: asyncio.Task[None]) -> None:
        self._asking.pop(asking.get_loop(), None)
        error = None if asking.cancelled() else asking.exception()
        # If nobody answers, whoever wants more than the time is about to hear why; what is known does for a while.
        if error is not None and not isinstance(error, StoreError):
            asking.get_loop().call_exception_handler({"message": "the time was not heard", "exception": error})

    def _hear(self, asked: int, said: int, heard: int) -> None:
        least, most = said - heard, said - asked
        if (known := self._known(heard)) is not None:
            drift = math.ceil((heard - known[2]) * DRIFT)
            both = max(least, known[0] - drift), min(most, known[1] + drift)
            if both[0] <= both[1]:
                # Otherwise it was set anew, or is another server's.
                least, most = both
        self._ahead = least, most, heard


def now() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def ticks() -> float:
    """Return seconds that only ever grow, whatever happens to the time of day: to measure how long something took."""
    return time.monotonic()


def _microseconds() -> int:
    """Return microseconds that only ever grow, also while the machine sleeps, where it can tell."""
    return time.clock_gettime_ns(_STEADY) // 1_000
