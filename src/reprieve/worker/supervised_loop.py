"""Supervised loops: work beside the jobs that must go on when the store is away or something fails.

A loop that fails is logged once, waits with a backoff, and begins again.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TypeAlias

import structlog

from reprieve.clock import ticks
from reprieve.errors import StoreError

log = structlog.get_logger("reprieve")

MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.05, 1.0
"""Seconds between two tries. The longest is short: the first job after an outage should not wait for it."""

CHILD_SILENCE_SECONDS = 5.0
"""Seconds that a child process leaves it to its supervisor to log that the store is away."""

LOG_AGAIN_SECONDS = 10.0
"""Seconds after an outage was logged before another one is: a store that comes and goes does not fill the log."""

Loop: TypeAlias = Callable[[], AsyncIterator[None]]
"""Starts a loop, which yields after every round that went well."""


class Outage:
    """Whether the store is away, for all loops of a process together; its begin and its end are logged once each.

    An outage begins with the first loop that fails, and ends when every loop that failed has succeeded again. One that
    begins soon after another was logged is logged only if it lasts.
    """

    def __init__(self, *, is_logged: Callable[[], bool] = lambda: False, silence: float = 0.0) -> None:
        """Log an outage at once; or only after `silence` seconds in which another process has not logged it."""
        self._is_logged = is_logged
        self._silence = silence
        self._failing: set[object] = set()
        self._unlogged_since = 0.0
        """Since when, by `ticks`, the store is away and no process has logged it."""
        self._has_logged = False
        self._logged_at = -LOG_AGAIN_SECONDS

    @property
    def is_on(self) -> bool:
        """Whether the store is away."""
        return bool(self._failing)

    def begin(self, loop: object, what: str, error: StoreError) -> None:
        """Record that a loop has failed; `what` says what it was doing."""
        if not self._failing or self._is_logged():
            self._unlogged_since = ticks()
        self._failing.add(loop)
        if self._has_logged or ticks() - self._unlogged_since < self._silence:
            return
        if ticks() - self._logged_at < LOG_AGAIN_SECONDS:
            return
        self._has_logged, self._logged_at = True, ticks()
        log.warning("store unavailable", during=what, errorCode=error.code, errorReason=str(error))

    def end(self, loop: object, what: str) -> None:
        """Record that a loop goes on, or is over."""
        self._failing.discard(loop)
        if self._has_logged and not self._failing:
            self._has_logged = False
            log.info("store is back", during=what)


class LoopBackoff:
    """The pauses of one loop: longer after each failure. Logs the first failure, and the success after it."""

    def __init__(self, what: str, outage: Outage | None = None) -> None:
        """Take what the loop does, for the log, and the outage that it shares with other loops."""
        self._what = what
        self._outage = outage or Outage()
        self._pause = MIN_PAUSE_SECONDS
        self._logged: set[type[Exception]] = set()
        """The unexpected errors that were logged since the last success."""

    async def wait(self, error: Exception) -> None:
        """Log a failure, and wait before the next try."""
        if isinstance(error, StoreError):
            self._outage.begin(self, self._what, error)
        elif type(error) not in self._logged:
            self._logged.add(type(error))
            log.error("unexpected error", during=self._what, exc_info=error)
        await asyncio.sleep(self._pause)
        self._pause = min(MAX_PAUSE_SECONDS, self._pause * 2)

    def succeed(self) -> None:
        """Record that a try succeeded."""
        if self._logged:
            log.info("works again", during=self._what)
        self.reset()

    def reset(self) -> None:
        """Record that there is no further try, or that none is needed."""
        self._outage.end(self, self._what)
        self._logged, self._pause = set(), MIN_PAUSE_SECONDS


async def run_supervised(loop: Loop, what: str, outage: Outage | None = None) -> None:
    """Run a loop to its end, and start it again whenever it fails; `what` says what it does, for the log."""
    backoff = LoopBackoff(what, outage)
    while True:
        try:
            async for _ in loop():
                backoff.succeed()
        except Exception as error:  # noqa: BLE001 - it is logged, and a worker without its loops would only seem to work
            await backoff.wait(error)
        else:
            return


@asynccontextmanager
async def supervised_loops(loops: Mapping[str, Loop], outage: Outage | None = None) -> AsyncGenerator[None]:
    """Run loops in the background, each under what it does, until the context is left."""
    tasks = [asyncio.create_task(run_supervised(loop, what, outage)) for what, loop in loops.items()]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
