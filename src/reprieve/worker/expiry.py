"""Expiry: ends waiting jobs that no worker claims, past their deadline or parked for too long.

Every supervisor does it every second. One would be enough, and many do no harm: a job ends once.
"""

import asyncio
from collections.abc import AsyncIterator

from reprieve.clock import Clock
from reprieve.stores.protocol import Store
from reprieve.worker.job_logging import log_expired

EXPIRY_INTERVAL_SECONDS = 1.0
"""Seconds between two checks when nothing was left to end."""

EXPIRE_AGAIN_SECONDS = 0.02
"""Seconds between two checks when there may be more to end: claims go first."""


async def expire_some(store: Store, clock: Clock) -> int:
    """End jobs whose time has come, a part of them if there are many; return how many."""
    jobs = await store.expire(clock.now())
    for job in jobs:
        log_expired(job)
    return len(jobs)


async def expire(store: Store, clock: Clock) -> AsyncIterator[None]:
    """End jobs whose time has come, until cancelled."""
    while True:
        ended = await expire_some(store, clock)
        yield
        await asyncio.sleep(EXPIRE_AGAIN_SECONDS if ended else EXPIRY_INTERVAL_SECONDS)
