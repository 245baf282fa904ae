"""SAQ, on PostgreSQL or on Redis as the URL says, by a worker of its own class on the loop of ours."""

import os
from typing import Any

from saq import Queue, Worker

from benchmarks.flow.producer import AsyncProducer
from benchmarks.flow.track import PAYLOAD, URL
from benchmarks.flow.work import MOST_ATTEMPTS, RETRY_AFTER
from benchmarks.flow.work import work as attempt

CONCURRENCY = 50


async def run(context: dict[str, Any], *, task: str, sent: int, payload: str) -> None:  # noqa: ARG001 - as all
    """Run one attempt."""
    job = context["job"]
    attempt(task, sent, job.key, is_first=job.attempts == 1)


async def work() -> None:
    """Work until told to end."""
    queue = Queue.from_url(os.environ[URL])
    await queue.connect()
    await Worker(queue, [("run", run)], concurrency=CONCURRENCY).start()


class Producer(AsyncProducer):
    """Enqueues as its documents say. It knows no tenants and no bulk."""

    packages = ("saq", "psycopg", "redis", "uvloop")

    async def open(self) -> None:
        """Connect, which makes the tables too."""
        self._queue = Queue.from_url(os.environ[URL])
        await self._queue.connect()

    async def put(self, task: str, sent: int, tenant: int) -> None:  # noqa: ARG002 - it knows none
        """Enqueue one job."""
        # Whole seconds: it polls for due jobs once a second; a job that is due at once does not wait for that.
        again = {"retries": MOST_ATTEMPTS, "retry_delay": int(RETRY_AFTER[task])} if task in RETRY_AFTER else {}
        await self._queue.enqueue("run", task=task, sent=sent, payload=PAYLOAD, ttl=-1, **again)

    def close(self) -> None:
        """Disconnect."""
        self.loop.run_until_complete(self._queue.disconnect())
