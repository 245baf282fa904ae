"""RQ, run by its own command with a `SimpleWorker`: it starts no process for each job, which its usual worker does."""

import os
from typing import Any

from redis import Redis
from rq import Queue, Retry, get_current_job

from benchmarks.flow.producer import SyncProducer
from benchmarks.flow.track import PAYLOAD, URL
from benchmarks.flow.work import MOST_ATTEMPTS, RETRY_AFTER
from benchmarks.flow.work import work as attempt

REDIS_URL = os.environ[URL]
"""Read by the worker's command."""

CHUNK = 1_000


def run(task: str, sent: int, payload: str) -> None:  # noqa: ARG001 - all tasks take the same
    """Run one attempt."""
    job = get_current_job()
    attempt(task, sent, job.id, is_first=job.retries_left in (None, MOST_ATTEMPTS))


def _options(task: str) -> dict[str, Any]:
    # Whole seconds are all that it takes, and nothing of a job that has run is kept.
    again = Retry(max=MOST_ATTEMPTS, interval=int(RETRY_AFTER[task])) if task in RETRY_AFTER else None
    return {"retry": again, "result_ttl": 0, "description": task}


class Producer(SyncProducer):
    """Enqueues as its documents say. It knows no tenants."""

    packages = ("rq", "redis", "hiredis")

    def __init__(self) -> None:
        """Connect."""
        self._queue = Queue(connection=Redis.from_url(REDIS_URL))

    def send(self, task: str, sent: int, tenant: int) -> None:  # noqa: ARG002 - it knows none
        """Enqueue one job."""
        self._queue.enqueue(run, args=(task, sent, PAYLOAD), **_options(task))

    def bulk(self, task: str, count: int, tenants: int) -> bool:  # noqa: ARG002 - it knows none
        """Enqueue in bulk."""
        for start in range(0, count, CHUNK):
            size = min(CHUNK, count - start)
            self._queue.enqueue_many(
                Queue.prepare_data(run, args=(task, 0, PAYLOAD), **_options(task)) for _ in range(size)
            )
        return True
