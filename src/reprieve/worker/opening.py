"""Opening: a process enters the lifespans of its app before it runs jobs, and leaves them after, both within limits."""

import asyncio
import os
import threading
from contextlib import AbstractAsyncContextManager, AsyncExitStack

import structlog

from reprieve.clock import ticks
from reprieve.core.failure import class_name, clean
from reprieve.core.redact import redact
from reprieve.errors import LifespanFailed
from reprieve.worker.tracebacks import describe

log = structlog.get_logger("reprieve")

START_WITHIN_SECONDS = 60.0
"""Seconds that the lifespans may take to start."""

SLOW_AFTER_SECONDS = 10.0
"""Seconds of a start after which the log says that it goes on."""

BLOCKED_AFTER_SECONDS = 5.0
"""Seconds on top of that limit after which a start that blocks its event loop ends the process."""

STOP_AT_LEAST_SECONDS = 2.0
"""Seconds that the lifespans may take to stop, however much of the grace is used up."""

START_FAILED_STATUS = 70
"""The exit status of a process whose lifespans did not start."""


class Opening:
    """The lifespans of one process. Entered and left by one task, as async context managers want it."""

    def __init__(self, *, start_within: float = START_WITHIN_SECONDS) -> None:
        """Open nothing yet."""
        self._start_within = start_within
        self._stack = AsyncExitStack()

    async def start(self, lifespans: AbstractAsyncContextManager[None]) -> None:
        """Enter lifespans; raises `LifespanFailed`, which has been logged, when one raises or takes too long."""
        began = ticks()
        loop = asyncio.get_running_loop()
        slow = loop.call_later(SLOW_AFTER_SECONDS, self._note_slow)
        # A start that blocks the loop cannot be cancelled by it.
        watch = threading.Timer(self._start_within + BLOCKED_AFTER_SECONDS, self._end_blocked)
        watch.daemon = True
        watch.start()
        try:
            async with asyncio.timeout(self._start_within) as limit:
                await self._stack.enter_async_context(lifespans)
        except Exception as error:
            late = f"it did not start within {self._start_within:g} s" if limit.expired() else ""
            reason = late or redact(clean(str(error))) or class_name(type(error))
            log.error(  # noqa: TRY400 - the traceback is ours: the application's frames, without secrets
                "lifespan failed", errorType=class_name(type(error)), errorReason=reason, traceback=describe(error)
            )
            message = f"a lifespan of the app failed at its start: {reason}"
            raise LifespanFailed(message) from error
        finally:
            slow.cancel()
            watch.cancel()
        log.debug("lifespan started", durationMs=round((ticks() - began) * 1_000, 3))

    async def stop(self, within: float) -> None:
        """Leave what was entered, in reverse; what fails or takes too long is logged, and nothing else."""
        limit = max(STOP_AT_LEAST_SECONDS, within)
        try:
            async with asyncio.timeout(limit) as timeout:
                await self._stack.aclose()
        except Exception as error:  # noqa: BLE001 - it is logged, and the jobs have ended
            reason = f"it did not stop within {limit:g} s" if timeout.expired() else redact(clean(str(error)))
            log.warning(
                "lifespan did not stop",
                errorType=class_name(type(error)),
                errorReason=reason,
                traceback=describe(error),
            )

    def _note_slow(self) -> None:
        log.warning("lifespan is slow to start", seconds=SLOW_AFTER_SECONDS, limit=self._start_within)

    def _end_blocked(self) -> None:
        reason = f"it blocked the event loop for more than {self._start_within:g} s; await what takes long"
        log.error("lifespan failed", errorType="TimeoutError", errorReason=reason)
        os._exit(START_FAILED_STATUS)
