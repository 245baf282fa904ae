"""Expiry: ends waiting jobs that no worker claims, past their deadline or parked for too long.

Every supervisor does it every second. One would be enough, and many do no harm: a job ends once.
"""

import asyncio
from collections.abc import AsyncIterator

from reprieve.clock import Clock
from reprieve.stores.protocol import Store
from reprieve.worker.job_logging import log_expired

EXPIRY_INTERVAL_SECONDS = 1.0
"""Seconds between two checks when nothing was left to do."""

EXPIRE_AGAIN_SECONDS = 0.02
"""Seconds between two checks when there is more to do: claims go first."""


async def expire_some(store: Store, clock: Clock) -> bool:
    """End jobs whose time has come, a part of them if there are many; return whether there is more to do."""
    expired = await store.expire(clock.now())
    for job in expired.jobs:
        log_expired(job)
    return expired.has_more


async def expire(store: Store, clock: Clock) -> AsyncIterator[None]:
    """End jobs whose time has come, until cancelled."""
    while True:
        has_more = await expire_some(store, clock)
        yield
        await asyncio.sleep(EXPIRE_AGAIN_SECONDS if has_more else EXPIRY_INTERVAL_SECONDS)
