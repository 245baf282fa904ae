"""The clock: the only module that reads the time of the machine."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol

from reprieve.errors import StoreError

TUNE_EVERY_SECONDS = 2.0
"""Seconds after which the time of a server is read again."""

VALID_SECONDS = 60.0
"""Seconds for which the time that was read from a server can be used."""

RECENT_SECONDS = 0.05
"""Seconds for which the time that was read from a server is recent enough to count a wait from it."""

FIRST_READS = 5
"""How often the time of a server is read at first: the first read includes the time to connect."""

DRIFT = 20e-6
"""Seconds by which two clocks may drift apart in a second."""

_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """A clock. Tests use one that they move."""

    @property
    def is_stale(self) -> bool:
        """Whether `tune` should be called."""
        ...

    @property
    def is_recent(self) -> bool:
        """Whether a wait may be counted from it as it is: a clock that was set just now is known to be."""
        ...

    async def tune(self, *, waits: bool = False) -> None:
        """Synchronise with the server that keeps the time, if that was long ago; call it before dating a job.

        With `waits` it is done unless it was done just now, and waited for: an instant that lies ahead depends on it.
        """
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
    is_recent = True

    async def tune(self, *, waits: bool = False) -> None:
        """Do nothing: there is no server to synchronise with."""

    def now(self) -> int:
        """Return the time in milliseconds since 1970, rounded down."""
        return now()

    def next(self) -> int:
        """Return the time in milliseconds since 1970, rounded up."""
        return -(-time.time_ns() // 1_000_000)


class _Offset(NamedTuple):
    """By how many microseconds a server's clock is ahead of the steady clock here."""

    least: int
    most: int
    read_at: int
    """When that was measured, by the steady clock."""


class ServerClock:
    """The clock of a server, as exactly as it can be known here.

    The time that was read from the server is carried on with a steady clock, so the time of this machine does not
    matter. The server read its clock at some moment between request and response; so `now` is a time that the server's
    clock has certainly reached, and `next` one that it has certainly not passed. Without a recent read, the machine's
    own clock is used, and `tune` waits for the server.
    """

    def __init__(self, read: Callable[[], Awaitable[int]]) -> None:
        """Take a function that reads the server's time, in microseconds since 1970."""
        self._read = read
        self._tune_at = -math.inf
        self._offset: _Offset | None = None
        self._reads: dict[asyncio.AbstractEventLoop, asyncio.Task[None]] = {}
        """Reads that are under way."""

    @property
    def is_stale(self) -> bool:
        """Whether the server's time was read too long ago, or never."""
        return ticks() >= self._tune_at or self._valid_offset(_microseconds()) is None

    @property
    def is_recent(self) -> bool:
        """Whether the server's time was read just now."""
        return self._offset is not None and _microseconds() - self._offset.read_at < RECENT_SECONDS * 1_000_000

    async def tune(self, *, waits: bool = False) -> None:
        """Read the server's time if that was long ago; wait for it with `waits`, or if no valid time is known.

        In these cases it raises the `StoreError` of a server that is not reachable.
        """
        if not self.is_stale and (self.is_recent or not waits):
            return
        self._tune_at = ticks() + TUNE_EVERY_SECONDS
        loop = asyncio.get_running_loop()
        read = self._reads.get(loop)
        if read is None:
            read = self._reads[loop] = loop.create_task(self._measure())
            read.add_done_callback(self._end)
        if waits or self._valid_offset(_microseconds()) is None:
            # A caller that is cancelled must not cancel the read for the others.
            await asyncio.shield(read)

    async def close(self) -> None:
        """Cancel the reads, before the store is closed; those of other loops end as soon as these loops run."""
        here = asyncio.get_running_loop()
        for loop, read in list(self._reads.items()):
            if loop is here:
                read.cancel()
                await asyncio.wait({read})
            elif not loop.is_closed():
                loop.call_soon_threadsafe(read.cancel)

    def now(self) -> int:
        """Return a time that the server's clock has reached, in milliseconds since 1970."""
        at = _microseconds()
        offset = self._valid_offset(at)
        return now() if offset is None else (at + offset.least) // 1_000

    def next(self) -> int:
        """Return a time that the server's clock has not passed, in milliseconds since 1970."""
        at = _microseconds()
        offset = self._valid_offset(at)
        return SystemClock().next() if offset is None else -(-(at + offset.most) // 1_000)

    def _valid_offset(self, at: int) -> _Offset | None:
        offset = self._offset
        return None if offset is None or at - offset.read_at > VALID_SECONDS * 1_000_000 else offset

    async def _measure(self) -> None:
        for _ in range(FIRST_READS if self._valid_offset(_microseconds()) is None else 1):
            sent_at = _microseconds()
            server_time = await self._read()
            self._note(sent_at, server_time, _microseconds())

    def _end(self, read: asyncio.Task[None]) -> None:
        self._reads.pop(read.get_loop(), None)
        error = None if read.cancelled() else read.exception()
        # An unreachable server is reported by the next call of the store; the last offset is used until then.
        if error is not None and not isinstance(error, StoreError):
            read.get_loop().call_exception_handler({"message": "the server's time was not read", "exception": error})

    def _note(self, sent_at: int, server_time: int, received_at: int) -> None:
        """Narrow the offset by a read; start anew if both do not overlap."""
        least, most = server_time - received_at, server_time - sent_at
        if (offset := self._valid_offset(received_at)) is not None:
            drift = math.ceil((received_at - offset.read_at) * DRIFT)
            narrowed = max(least, offset.least - drift), min(most, offset.most + drift)
            if narrowed[0] <= narrowed[1]:
                # Otherwise the server's clock was set, or it is another server.
                least, most = narrowed
        self._offset = _Offset(least, most, received_at)


def now() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def ticks() -> float:
    """Return the seconds of a steady clock, which is never set: to measure how long something took."""
    return time.monotonic()


def _microseconds() -> int:
    """Return the microseconds of a steady clock, which also counts while the machine sleeps, where there is one."""
    return time.clock_gettime_ns(_STEADY) // 1_000
