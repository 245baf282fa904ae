"""Persistence: whatever must go on while the store is away waits, says so once, and goes on by itself.

The same holds for errors that nobody expected: they are shown with all that is known of them, and work goes on.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

import structlog

from reprieve.errors import StoreError

log = structlog.get_logger("reprieve")

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds between two tries. The longest is short: the first job after an outage should not wait for it."""


class Patience:
    """Waits longer each time, and speaks twice: when something is wrong, and when all is well again."""

    def __init__(self, what: str) -> None:
        """Take what is being tried."""
        self._what = what
        self._pause = FIRST_PAUSE
        self._said: set[type[Exception]] = set()
        """The kinds of errors that were spoken of since all was well."""

    async def wait(self, error: Exception) -> None:
        """Wait before the next try."""
        if type(error) not in self._said:
            self._said.add(type(error))
            self._complain(error)
        await asyncio.sleep(self._pause)
        self._pause = min(LONGEST_PAUSE, self._pause * 2)

    def end(self) -> None:
        """Note that a try succeeded."""
        if self._said:
            log.info("store is back" if self._is_about_the_store() else "works again", while_=self._what)
        self._said, self._pause = set(), FIRST_PAUSE

    def _complain(self, error: Exception) -> None:
        if isinstance(error, StoreError):
            if not self._is_about_the_store(besides=type(error)):
                log.warning("store unavailable", while_=self._what, errorCode=error.code, errorReason=str(error))
        else:
            log.error("unexpected error", while_=self._what, exc_info=error)

    def _is_about_the_store(self, besides: type[Exception] | None = None) -> bool:
        return any(issubclass(kind, StoreError) for kind in self._said if kind is not besides)


async def persist(work: Callable[[], AsyncIterator[None]], what: str) -> None:
    """Do something that never ends, and begin again whenever it fails. It yields whenever something was done well."""
    patience = Patience(what)
    while True:
        try:
            async for _ in work():
                patience.end()
        except Exception as error:  # noqa: BLE001 - it is logged, and without its keepers a worker would only seem to work
            await patience.wait(error)
        else:
            return
