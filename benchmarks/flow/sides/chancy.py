"""Chancy, by a worker of its own class on the loop of ours: its command knows none but asyncio's."""

import logging
import os

from chancy import Chancy, Job, Queue, QueuedJob, Worker
from chancy.plugins.leadership import Leadership
from chancy.plugins.pruner import Pruner
from chancy.plugins.recovery import Recovery
from chancy.plugins.retry import RetryPlugin

from benchmarks.flow.producer import AsyncProducer
from benchmarks.flow.track import PAYLOAD, URL
from benchmarks.flow.work import MOST_ATTEMPTS, RETRY_AFTER
from benchmarks.flow.work import work as attempt

QUEUE = Queue(
    "bench",
    executor=Chancy.Executor.Async,
    concurrency=1_000,
    polling_interval=1,
    eager_polling=True,
)
OUTGOING_INTERVAL = 0.02
"""Seconds between writes of outcomes. A retry is such an outcome, and is not visible before."""

_log = logging.getLogger("chancy")
_log.setLevel(logging.WARNING)


def _make() -> Chancy:
    plugins = [Leadership(), Pruner(), Recovery(), RetryPlugin()]
    return Chancy(os.environ[URL], plugins=plugins, no_default_plugins=True, log=_log)


async def run(task: str, sent: int, payload: str, *, job: QueuedJob) -> None:  # noqa: ARG001 - all tasks take the same
    """Run one attempt."""
    attempt(task, sent, job.id, is_first=job.attempts == 0)


def _job(task: str, sent: int) -> Job:
    job = Job(func=f"{__name__}.run", queue=QUEUE.name, kwargs={"task": task, "sent": sent, "payload": PAYLOAD})
    if task not in RETRY_AFTER:
        return job
    again = {"backoff": RETRY_AFTER[task], "backoff_factor": 1, "backoff_jitter": [0, 0]}
    return job.with_max_attempts(MOST_ATTEMPTS).with_meta({"retry_settings": again})


async def work() -> None:
    """Work until told to end."""
    async with _make() as app, Worker(app) as worker:
        worker.send_outgoing_interval = OUTGOING_INTERVAL
        await worker.wait_for_shutdown()


class Producer(AsyncProducer):
    """Pushes as its documents say. It knows no tenants."""

    packages = ("chancy", "psycopg", "uvloop")

    async def open(self) -> None:
        """Connect."""
        self._app = _make()
        await self._app.pool.open()

    def prepare(self) -> None:
        """Make the tables and the queue."""
        self.loop.run_until_complete(self._app.migrate())
        self.loop.run_until_complete(self._app.declare(QUEUE, upsert=True))

    async def put(self, task: str, sent: int, tenant: int) -> None:  # noqa: ARG002 - it knows none
        """Enqueue one job."""
        await self._app.push(_job(task, sent))

    async def put_many(self, task: str, count: int, tenants: int) -> bool:  # noqa: ARG002 - it knows none
        """Enqueue in bulk."""
        async for _ in self._app.push_many([_job(task, 0) for _ in range(count)]):
            pass
        return True

    def close(self) -> None:
        """Disconnect."""
        self.loop.run_until_complete(self._app.pool.close())
