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
    """Run every job as soon as it is enqueued, before the enqueue returns.

    Time stands still: a job with a delay, and a retry, wait until their time; `drain` jumps there. With `raises`, the
    enqueue raises what the task raises. A job in a transaction of the caller cannot run before the commit, and waits
    for the next enqueue or drain; a store in memory has no such transactions, and runs it at once.
    """
    before = app.producer.follower
    app.producer.follower = Inline(app, raises=raises)
    try:
        yield
    finally:
        app.producer.follower = before


class Inline:
    """Runs the jobs that are due after every enqueue."""

    def __init__(self, app: Reprieve, *, raises: bool) -> None:
        """Run jobs of an app; with `raises`, raise their errors in the caller."""
        self._app = app
        self._raises = raises

    def follow(self) -> None:
        """Run the jobs that are due, in an event loop of its own."""
        if not is_in_loop():
            asyncio.run(self.afollow())
            return
        # A coroutine that enqueues without await blocks its event loop, as it would in production.
        portal = Portal()
        try:
            portal.run(self.afollow())
        finally:
            portal.close()

    async def afollow(self) -> None:
        """Run the jobs that are due, in the caller's event loop."""
        drained = await run_due(self._app, until=self._app.clock.now())
        for attempt in drained.attempts if self._raises else ():
            if (failure := failure_of(attempt)) is not None:
                raise failure
