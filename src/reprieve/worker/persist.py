"""Persistence: whatever must go on while the store is away waits, says so once, and goes on by itself."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from reprieve.clock import ticks
from reprieve.errors import StoreError

log = structlog.get_logger("reprieve")

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds between two tries. The longest is short: the first job after an outage should not wait for it."""


WELL_AFTER = 2.0
"""Seconds of work without an error after which the next one is news."""


class Patience:
    """Waits longer each time, and speaks twice: when the store is gone, and when it is back."""

    def __init__(self, what: str) -> None:
        """Take what is being tried."""
        self._what = what
        self._pause = FIRST_PAUSE
        self._is_waiting = False

    async def wait(self, error: StoreError) -> None:
        """Wait before the next try."""
        if not self._is_waiting:
            self._is_waiting = True
            log.warning("store unavailable", while_=self._what, errorCode=error.code, errorReason=str(error))
        await asyncio.sleep(self._pause)
        self._pause = min(LONGEST_PAUSE, self._pause * 2)

    def end(self) -> None:
        """Note that a try succeeded."""
        if self._is_waiting:
            log.info("store is back", while_=self._what)
        self._is_waiting, self._pause = False, FIRST_PAUSE


async def persist(work: Callable[[], Awaitable[None]], what: str) -> None:
    """Do something that never ends, and begin again whenever the store fails it."""
    patience = Patience(what)
    while True:
        began = ticks()
        try:
            await work()
        except StoreError as error:
            if ticks() - began > WELL_AFTER:
                patience.end()
            await patience.wait(error)
        else:
            return
