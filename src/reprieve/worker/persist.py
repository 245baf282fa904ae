"""Persistence: what must go on while the store is away waits, says so once, and goes on by itself.

The same holds for unexpected errors: they are shown with all that is known of them, and work goes on.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

import structlog

from reprieve.clock import ticks
from reprieve.errors import StoreError

log = structlog.get_logger("reprieve")

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds between two tries. The longest is short: the first job after an outage should not wait for it."""

CHILD_WAITS_SECONDS = 5.0
"""Seconds that a child process leaves it to its supervisor to say that the store is away."""


class Outage:
    """Whether the store is away, as all loops of one process see it together: it is logged once, and once more after.

    It begins when the first of them fails, and ends when all that have failed have succeeded again.
    """

    def __init__(self, *, is_told: Callable[[], bool] = lambda: False, told_within: float = 0.0) -> None:
        """Log an outage at once; or, where another process may tell of it, only if it has not `told_within` seconds."""
        self._is_told = is_told
        self._told_within = told_within
        self._failing: set[object] = set()
        self._silent_since = 0.0
        """Since when, by `ticks`, the store is away and no process has told of it."""
        self._has_spoken = False

    @property
    def is_on(self) -> bool:
        """Whether the store is away."""
        return bool(self._failing)

    def begin(self, who: object, what: str, error: StoreError) -> None:
        """Note that a loop has failed while it did something."""
        if not self._failing or self._is_told():
            self._silent_since = ticks()
        self._failing.add(who)
        if self._has_spoken or ticks() - self._silent_since < self._told_within:
            return
        self._has_spoken = True
        log.warning("store unavailable", during=what, errorCode=error.code, errorReason=str(error))

    def end(self, who: object, what: str) -> None:
        """Note that a loop goes on, or is over."""
        self._failing.discard(who)
        if self._has_spoken and not self._failing:
            self._has_spoken = False
            log.info("store is back", during=what)


class Patience:
    """Waits longer each time, and speaks twice: when something is wrong, and when all is well again."""

    def __init__(self, what: str, outage: Outage | None = None) -> None:
        """Take what is being tried, and the outage that it shares with others."""
        self._what = what
        self._outage = outage or Outage()
        self._pause = FIRST_PAUSE
        self._said: set[type[Exception]] = set()
        """The kinds of unexpected errors that were spoken of since all was well."""

    async def wait(self, error: Exception) -> None:
        """Wait before the next try."""
        if isinstance(error, StoreError):
            self._outage.begin(self, self._what, error)
        elif type(error) not in self._said:
            self._said.add(type(error))
            log.error("unexpected error", during=self._what, exc_info=error)
        await asyncio.sleep(self._pause)
        self._pause = min(LONGEST_PAUSE, self._pause * 2)

    def end(self) -> None:
        """Note that a try succeeded."""
        if self._said:
            log.info("works again", during=self._what)
        self.give_up()

    def give_up(self) -> None:
        """Note that it is not tried any more, or need not be."""
        self._outage.end(self, self._what)
        self._said, self._pause = set(), FIRST_PAUSE


async def persist(work: Callable[[], AsyncIterator[None]], what: str, outage: Outage | None = None) -> None:
    """Do something that never ends, and begin again whenever it fails. It yields whenever something was done well."""
    patience = Patience(what, outage)
    while True:
        try:
            async for _ in work():
                patience.end()
        except Exception as error:  # noqa: BLE001 - it is logged, and without its keepers a worker would only seem to work
            await patience.wait(error)
        else:
            return
