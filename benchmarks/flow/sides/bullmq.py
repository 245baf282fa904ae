"""BullMQ for Python, by a worker of its own class on the loop of ours: it has no command. Node's is in bullmq.cjs."""

import os
from typing import Any

from bullmq import Job, Queue, Worker

from benchmarks.flow.producer import AsyncProducer
from benchmarks.flow.track import PAYLOAD, URL
from benchmarks.flow.work import MOST_ATTEMPTS, RETRY_AFTER
from benchmarks.flow.work import work as attempt

CHUNK = 1_000
CONCURRENCY = 50
NAME = "bench"


async def _run(job: Job, _token: str) -> None:
    attempt(job.name, job.data["sent"], job.id, is_first=job.attemptsMade == 0)


async def work() -> None:
    """Work until the process ends."""
    options = {"connection": os.environ[URL], "concurrency": CONCURRENCY, "autorun": False}
    await Worker(NAME, _run, options).run()


def _options(task: str) -> dict[str, Any]:
    again = {"attempts": MOST_ATTEMPTS, "backoff": {"type": "fixed", "delay": round(RETRY_AFTER.get(task, 0) * 1_000)}}
    return {"removeOnComplete": True} | (again if task in RETRY_AFTER else {})


class Producer(AsyncProducer):
    """Adds as its documents say. It knows no tenants."""

    packages = ("bullmq", "redis", "hiredis", "uvloop")

    async def open(self) -> None:
        """Connect."""
        self._queue = Queue(NAME, {"connection": os.environ[URL]})

    async def put(self, task: str, sent: int, tenant: int) -> None:  # noqa: ARG002 - it knows none
        """Enqueue one job."""
        await self._queue.add(task, {"sent": sent, "payload": PAYLOAD}, _options(task))

    async def put_many(self, task: str, count: int, tenants: int) -> bool:  # noqa: ARG002 - it knows none
        """Enqueue in bulk."""
        job = {"name": task, "data": {"sent": 0, "payload": PAYLOAD}, "opts": _options(task)}
        for start in range(0, count, CHUNK):
            await self._queue.addBulk([job] * min(CHUNK, count - start))
        return True

    def close(self) -> None:
        """Disconnect."""
        self.loop.run_until_complete(self._queue.close())
