"""The lifespans of an app in one process: entered before its first job and left after its last, within time limits."""

import asyncio
import os
import threading
from contextlib import AbstractAsyncContextManager, AsyncExitStack

import structlog

from reprieve.clock import ticks
from reprieve.core.failure import class_name
from reprieve.core.redact import redact
from reprieve.core.text import clean
from reprieve.errors import LifespanFailed
from reprieve.worker.tracebacks import describe

log = structlog.get_logger("reprieve")

START_TIMEOUT_SECONDS = 60.0
"""Seconds that the lifespans may take to start."""

SLOW_AFTER_SECONDS = 10.0
"""Seconds after which a start that goes on is logged."""

BLOCKED_AFTER_SECONDS = 5.0
"""Seconds after the timeout at which a start that blocks its event loop ends the process."""

MIN_STOP_SECONDS = 2.0
"""Seconds that the lifespans may take to stop, however little of the grace is left."""

START_FAILED_STATUS = 70
"""The exit status of a process whose lifespans did not start."""


class Lifespans:
    """Enters and leaves the lifespans of an app, both in the same asyncio task, as async context managers require."""

    def __init__(self, *, start_timeout: float = START_TIMEOUT_SECONDS) -> None:
        """Enter nothing yet."""
        self._start_timeout = start_timeout
        self._stack = AsyncExitStack()

    async def start(self, lifespans: AbstractAsyncContextManager[None]) -> None:
        """Enter the lifespans. Log and raise `LifespanFailed` when one raises or takes too long."""
        began = ticks()
        loop = asyncio.get_running_loop()
        slow = loop.call_later(SLOW_AFTER_SECONDS, self._log_slow)
        # A start that blocks the loop cannot be cancelled by it.
        watch = threading.Timer(self._start_timeout + BLOCKED_AFTER_SECONDS, self._end_blocked)
        watch.daemon = True
        watch.start()
        try:
            async with asyncio.timeout(self._start_timeout) as limit:
                await self._stack.enter_async_context(lifespans)
        except Exception as error:
            late = f"it did not start within {self._start_timeout:g} s" if limit.expired() else ""
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

    async def stop(self, timeout: float) -> None:  # noqa: ASYNC109 - a failure is logged here, not raised
        """Leave the lifespans, in reverse order. One that fails or takes too long is logged."""
        limit = max(MIN_STOP_SECONDS, timeout)
        try:
            async with asyncio.timeout(limit) as scope:
                await self._stack.aclose()
        except Exception as error:  # noqa: BLE001 - it is logged, and the jobs have ended
            reason = f"it did not stop within {limit:g} s" if scope.expired() else redact(clean(str(error)))
            log.warning(
                "lifespan did not stop",
                errorType=class_name(type(error)),
                errorReason=reason,
                traceback=describe(error),
            )

    def _log_slow(self) -> None:
        log.warning("lifespan is slow to start", seconds=SLOW_AFTER_SECONDS, limit=self._start_timeout)

    def _end_blocked(self) -> None:
        reason = f"it blocked the event loop for more than {self._start_timeout:g} s; await long calls"
        log.error("lifespan failed", errorType="TimeoutError", errorReason=reason)
        os._exit(START_FAILED_STATUS)
