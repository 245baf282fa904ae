"""Hang detection: finds children whose event loop is blocked, or whose jobs do not end after their timeout."""

import asyncio
from collections.abc import AsyncIterator, Collection

import structlog

from reprieve.clock import ticks
from reprieve.worker.child_process import ChildProcess
from reprieve.worker.supervised_loop import Outage

log = structlog.get_logger("reprieve")

WATCH_INTERVAL_SECONDS = 0.5
"""Seconds between two checks of the children's in-flight tables."""

BLOCKED_AFTER_SECONDS = 2.0
"""Seconds that a job may overrun while the event loop of its child does not turn; then the child is killed."""

HUNG_AFTER_SECONDS = 10.0
"""Seconds that a job may go on after it was given up, before its child is replaced."""


async def watch_for_hangs(children: Collection[ChildProcess], outage: Outage) -> AsyncIterator[None]:
    """Check the children, and tell them whether the store is away, until cancelled."""
    last = ticks()
    while True:
        now = ticks()
        for child in children:
            child.in_flight.set_store_away(is_away=outage.is_on)
        # After a standstill of this process everything looks late; what really is late is found by the next check.
        if now - last < BLOCKED_AFTER_SECONDS:
            for child in list(children):
                _check(child, now)
        last = now
        yield
        await asyncio.sleep(WATCH_INTERVAL_SECONDS)


def _check(child: ChildProcess, now: float) -> None:
    attempts = child.in_flight.attempts()
    late = [one.job_id for one in attempts if now > one.overdue_at + BLOCKED_AFTER_SECONDS and not one.is_abandoned]
    hung = [one.job_id for one in attempts if now > one.overdue_at + HUNG_AFTER_SECONDS]
    if late and child.in_flight.pulse() + BLOCKED_AFTER_SECONDS < now:
        log.error("child is blocked", session=child.session, jobs=late)
        child.is_blocked = True
        child.kill()
    elif hung and not child.is_ending:
        log.warning("child has jobs that do not end", session=child.session, jobs=hung)
        child.retire()
    elif hung and child.retired.is_set() and len(hung) == len(attempts):
        child.kill(frozenset(hung))
