"""arq, by a worker of its own class on the loop of ours: its command knows none but asyncio's."""

import os
from typing import Any

from arq import Retry, create_pool, func
from arq.connections import RedisSettings
from arq.worker import Worker

from benchmarks.flow.producer import AsyncProducer
from benchmarks.flow.track import PAYLOAD, URL
from benchmarks.flow.work import MOST_ATTEMPTS, RETRY_AFTER
from benchmarks.flow.work import work as attempt

MOST_JOBS = 100
POLL_DELAY = 0.005
"""Seconds between polls of the queue; nothing wakes it."""

_settings = RedisSettings.from_dsn(os.environ[URL])


async def run(context: dict[str, Any], task: str, sent: int, payload: str) -> None:  # noqa: ARG001 - as all
    """Run one attempt."""
    try:
        attempt(task, sent, context["job_id"], is_first=context["job_try"] == 1)
    except ConnectionError as error:
        raise Retry(defer=RETRY_AFTER[task]) from error


async def work() -> None:
    """Work until told to end."""
    function = func(run, name="run", keep_result=0, max_tries=MOST_ATTEMPTS)
    await Worker([function], redis_settings=_settings, max_jobs=MOST_JOBS, poll_delay=POLL_DELAY).async_run()


class Producer(AsyncProducer):
    """Enqueues as its documents say. It knows no tenants and no bulk."""

    packages = ("arq", "redis", "hiredis", "uvloop")

    async def open(self) -> None:
        """Connect."""
        self._redis = await create_pool(_settings)

    async def put(self, task: str, sent: int, tenant: int) -> None:  # noqa: ARG002 - it knows none
        """Enqueue one job."""
        await self._redis.enqueue_job("run", task, sent, PAYLOAD)

    def close(self) -> None:
        """Disconnect."""
        self.loop.run_until_complete(self._redis.aclose())
