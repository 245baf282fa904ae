"""PgQueuer, by an application of its own class on the loop of ours: its command writes a line for each retry."""

import functools
import json
import os
from datetime import timedelta

import asyncpg  # type: ignore[import-untyped]  # it has none
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.executors import DatabaseRetryEntrypointExecutor
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from benchmarks.flow.producer import AsyncProducer
from benchmarks.flow.track import PAYLOAD, URL
from benchmarks.flow.work import MOST_ATTEMPTS, RETRY_AFTER, TASKS
from benchmarks.flow.work import work as attempt

CHUNK = 1_000
BATCH = 1_000


async def work() -> None:
    """Work until the process ends, on a pool: with one connection claims would wait for outcomes."""
    async with asyncpg.create_pool(os.environ[URL], min_size=2) as pool:
        app = PgQueuer.from_asyncpg_pool(pool)
        for name in TASKS:
            again = functools.partial(
                DatabaseRetryEntrypointExecutor,
                max_attempts=MOST_ATTEMPTS,
                initial_delay=timedelta(seconds=RETRY_AFTER.get(name, 0)),
                backoff_multiplier=1.0,
            )
            app.entrypoint(name, executor_factory=again if name in RETRY_AFTER else None)(_run)
        await app.run(batch_size=BATCH)


async def _run(job: Job) -> None:
    sent, _ = json.loads(job.payload)
    attempt(job.entrypoint, sent, job.id, is_first=job.attempts == 0)


class Producer(AsyncProducer):
    """Enqueues as its documents say; a list is one statement. It knows no tenants."""

    packages = ("pgqueuer", "asyncpg", "uvloop")

    async def open(self) -> None:
        """Connect."""
        self._pool = await asyncpg.create_pool(os.environ[URL], min_size=1)
        self._queries = Queries(AsyncpgPoolDriver(self._pool))

    def prepare(self) -> None:
        """Make the tables."""
        self.loop.run_until_complete(self._queries.install())

    async def put(self, task: str, sent: int, tenant: int) -> None:  # noqa: ARG002 - it knows none
        """Enqueue one job."""
        await self._queries.enqueue(task, json.dumps([sent, PAYLOAD]).encode())

    async def put_many(self, task: str, count: int, tenants: int) -> bool:  # noqa: ARG002 - it knows none
        """Enqueue in bulk."""
        for start in range(0, count, CHUNK):
            size = min(CHUNK, count - start)
            payloads: list[bytes | None] = [json.dumps([0, PAYLOAD]).encode() for _ in range(size)]
            await self._queries.enqueue([task] * size, payloads, [0] * size)
        return True
