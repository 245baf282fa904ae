"""Inline mode: a job runs as soon as it is enqueued, before the caller goes on."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from reprieve.app import Reprieve
from reprieve.portal import Portal
from reprieve.testing.drain import is_in_loop, run_due
from reprieve.testing.drained import failure_of


@contextmanager
def inline(app: Reprieve, *, raises: bool = False) -> Iterator[None]:
    """Run every job as soon as it is enqueued, and before the enqueue answers.

    Time stands still: a job with a delay, and a retry, wait for their time as they always do; `drain` goes there. With
    `raises` whatever a task raises reaches the code that enqueued it. A job in a transaction of the caller's cannot run
    before the commit, and waits for the next enqueue or drain; with a store in memory there is nothing to wait for.
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
        if not is_in_loop():
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
        for attempt in drained.attempts if self._raises else ():
            if (failure := failure_of(attempt)) is not None:
                raise failure
