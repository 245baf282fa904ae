"""procrastinate, run by its own command on the loop of ours: it knows none but asyncio's."""

import os

from procrastinate import App, JobContext, PsycopgConnector, RetryStrategy
from procrastinate.tasks import Task

from benchmarks.flow.producer import AsyncProducer
from benchmarks.flow.track import PAYLOAD, URL
from benchmarks.flow.work import MOST_ATTEMPTS, RETRY_AFTER, TASKS
from benchmarks.flow.work import work as attempt

CHUNK = 1_000
CONCURRENCY = 5

app = App(connector=PsycopgConnector(conninfo=os.environ[URL], min_size=2, max_size=CONCURRENCY + 2))


def _declare(name: str) -> Task:
    # Whole seconds are all that it takes.
    again = RetryStrategy(max_attempts=MOST_ATTEMPTS, wait=int(RETRY_AFTER.get(name, 0)))

    @app.task(name=name, pass_context=True, retry=again)
    async def run(context: JobContext, sent: int, payload: str) -> None:  # noqa: ARG001 - all tasks take the same
        attempt(name, sent, context.job.id, is_first=context.job.attempts == 0)

    return run


TASK = {name: _declare(name) for name in TASKS}


async def work() -> None:
    """Work until told to end."""
    async with app.open_async():
        await app.run_worker_async(concurrency=CONCURRENCY, delete_jobs="always", fetch_job_polling_interval=0.05)


class Producer(AsyncProducer):
    """Defers as its documents say. It knows no tenants."""

    packages = ("procrastinate", "psycopg", "uvloop")

    async def open(self) -> None:
        """Connect."""
        await app.open_async()

    def prepare(self) -> None:
        """Make the tables."""
        self.loop.run_until_complete(app.schema_manager.apply_schema_async())

    async def put(self, task: str, sent: int, tenant: int) -> None:  # noqa: ARG002 - it knows none
        """Enqueue one job."""
        await TASK[task].defer_async(sent=sent, payload=PAYLOAD)

    async def put_many(self, task: str, count: int, tenants: int) -> bool:  # noqa: ARG002 - it knows none
        """Enqueue in bulk."""
        for start in range(0, count, CHUNK):
            calls = [{"sent": 0, "payload": PAYLOAD}] * min(CHUNK, count - start)
            await TASK[task].batch_defer_async(*calls)
        return True

    def close(self) -> None:
        """Disconnect."""
        self.loop.run_until_complete(app.close_async())
