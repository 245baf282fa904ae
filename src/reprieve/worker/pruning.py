"""Pruning: removes succeeded jobs that are kept no longer."""

import asyncio
from collections.abc import AsyncIterator

from reprieve.stores.protocol import Retention
from reprieve.worker.worker_context import WorkerContext

PRUNE_INTERVAL_SECONDS = 10.0
"""Seconds between two prunings when nothing was left to remove."""

PRUNE_AGAIN_SECONDS = 0.05
"""Seconds between two prunings when there may be more to remove."""


async def prune(context: WorkerContext) -> AsyncIterator[None]:
    """Prune by the app's settings, until cancelled."""
    settings = context.settings
    while True:
        retention = Retention(
            now=context.clock.now(),
            succeeded=settings.succeeded_kept,
            succeeded_for=settings.succeeded_kept_for,
            events=settings.events_kept,
            events_for=settings.events_kept_for,
        )
        pruned = await context.store.prune(retention)
        yield
        await asyncio.sleep(PRUNE_INTERVAL_SECONDS if pruned.is_all else PRUNE_AGAIN_SECONDS)
