"""Inline mode: a job runs as soon as it is enqueued, before the caller goes on."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from reprieve.app import Reprieve
from reprieve.errors import ReprieveError
from reprieve.portal import Portal
from reprieve.signals import Fail, Retry, Signal
from reprieve.testing.drain import run_due
from reprieve.testing.drained import Attempted


@contextmanager
def inline(app: Reprieve, *, raises: bool = False) -> Iterator[None]:
    """Run every job as soon as it is enqueued, and before the enqueue answers.

    Time stands still: a job with a delay, and a retry, wait for their time as they always do; `drain` goes there. With
    `raises` whatever a task raises reaches the code that enqueued it. A job in a transaction of the caller's cannot run
    before the commit, and waits for the next enqueue or drain.
    """
    before = app.producer.follower
    app.producer.follower = Inline(app, raises=raises)
    try:
        yield
    finally:
        app.producer.follower = before


class Inline:
    """Runs what is due after every enqueue."""

    def __init__(self, app: Reprieve, *, raises: bool) -> None:
        """Take whose jobs to run, and whether their errors are the caller's."""
        self._app = app
        self._raises = raises

    def follow(self) -> None:
        """Run what is due, in a loop of its own."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            asyncio.run(self.afollow())
            return
        # A coroutine that enqueues without await holds up its own loop, as it would in production.
        portal = Portal()
        try:
            portal.run(self.afollow())
        finally:
            portal.close()

    async def afollow(self) -> None:
        """Run what is due, in the caller's loop."""
        drained = await run_due(self._app, until=self._app.clock.now())
        if self._raises:
            for attempt in drained.attempts:
                _raise(attempt)


def _raise(attempt: Attempted) -> None:
    """Raise what a failed attempt raised; what is no failure is nobody's business."""
    if attempt.error is not None and (not isinstance(attempt.error, Signal) or isinstance(attempt.error, Retry | Fail)):
        raise attempt.error
    if attempt.reason:
        message = f"job {attempt.job.id} of {attempt.task} is {attempt.ending}: {attempt.reason}"
        raise ReprieveError(message)
