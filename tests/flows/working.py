"""A worker in the process of its test, where the test can look into it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from reprieve import Reprieve
from reprieve.stores.protocol import Heartbeat
from reprieve.worker.isolation import Processes
from reprieve.worker.worker import Worker


@asynccontextmanager
async def working(app: Reprieve, slots: int) -> AsyncGenerator[Worker]:
    """Let a worker work in this process."""
    heartbeat = Heartbeat(session="one", now=app.clock.now(), lease=600.0, slots=slots, is_new=True)
    await app.store.heartbeat(heartbeat)
    processes = Processes()
    worker = Worker(app, "one", slots=slots, isolation=processes)
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop_now()
        await running
        await processes.close()
