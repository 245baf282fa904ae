"""The bell: looking again whenever something was written."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from reprieve.stores.protocol import Store

LOOK_AGAIN = 0.25
"""Seconds between two looks at the least, however often the bell rings."""


async def rings(store: Store, queues: Sequence[str], at_most: float) -> AsyncGenerator[None]:
    """Yield when it is time to look: now, and again at every ring, or after so many seconds without one."""
    while True:
        # The bell is listened to before the look, so that nothing falls in between.
        bell = asyncio.create_task(store.wait(queues, at_most))
        await asyncio.sleep(0)
        try:
            yield
            await bell
        finally:
            bell.cancel()
        await asyncio.sleep(LOOK_AGAIN)
