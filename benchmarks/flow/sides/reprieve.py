"""Our own side, run by `reprieve worker benchmarks.flow.sides.reprieve:app`. Its store is `REPRIEVE_URL`."""

import asyncio
import sqlite3
from datetime import timedelta
from functools import cache
from typing import Any

from benchmarks.flow.producer import AsyncProducer
from benchmarks.flow.track import PAYLOAD
from benchmarks.flow.work import MOST_ATTEMPTS, RETRY_AFTER, SLOW_SECONDS, TASKS
from benchmarks.flow.work import work as attempt
from reprieve.app import Reprieve
from reprieve.context import current_job
from reprieve.core.backoff import fixed
from reprieve.core.policy import Policy
from reprieve.task import Task

app = Reprieve()


def _declare(name: str) -> Task[[int, str], Any]:
    async def run(sent: int, payload: str) -> None:  # noqa: ARG001 - all tasks take the same
        job = current_job()
        attempt(name, sent, job.id, is_first=job.attempt == 1)
        if name == "slow":
            await asyncio.sleep(SLOW_SECONDS)

    if name not in RETRY_AFTER:
        return app.task(name=name)(run)
    policy = Policy(max_attempts=MOST_ATTEMPTS, backoff=fixed(timedelta(seconds=RETRY_AFTER[name])))
    return app.task(name=name, policy=policy)(run)


TASK = {name: _declare(name) for name in TASKS}


class Producer(AsyncProducer):
    """Enqueues through the app, as an application would."""

    packages = ("reprieve", "uvloop")

    def versions(self) -> dict[str, str]:
        """Return what is at work."""
        facts = {"sqlite": sqlite3.sqlite_version, "synchronous": app.settings.durability}
        return super().versions() | facts

    def send(self, task: str, sent: int, tenant: int) -> None:
        """Enqueue one job through the sync face."""
        _using(task, tenant).enqueue(sent, PAYLOAD)

    async def put(self, task: str, sent: int, tenant: int) -> None:
        """Enqueue one job."""
        await _using(task, tenant).aenqueue(sent, PAYLOAD)

    async def put_many(self, task: str, count: int, tenants: int) -> bool:
        """Enqueue in bulk."""
        await app.aenqueue_many(_using(task, number % tenants).call(0, PAYLOAD) for number in range(count))
        return True

    def close(self) -> None:
        """Close the app."""
        app.close()


@cache
def _using(task: str, tenant: int) -> Task[[int, str], Any]:
    return TASK[task].using(tenant=f"tenant-{tenant}")
