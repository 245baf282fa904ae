"""The notifier: wakes a loop whenever something was written to the store."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from reprieve.stores.protocol import Store

MIN_INTERVAL_SECONDS = 0.25
"""Seconds between two wake-ups, however often the store notifies."""


async def wake_ups(store: Store, queues: Sequence[str], at_most: float) -> AsyncGenerator[None]:
    """Yield at once, then after every notification, or after `at_most` seconds without one."""
    while True:
        # The wait begins before the loop reads: a write between the two is not missed.
        notification = asyncio.create_task(store.wait(queues, at_most))
        await asyncio.sleep(0)
        try:
            yield
            await notification
        finally:
            notification.cancel()
        await asyncio.sleep(MIN_INTERVAL_SECONDS)
