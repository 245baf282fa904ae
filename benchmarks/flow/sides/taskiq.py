"""taskiq, run by its own command, which takes uvloop by itself.

The broker of streams, because it is the one that acknowledges: a list forgets a job when a worker takes it. Neither
keeps a job until later, which takes a scheduler in a process of its own: a retry comes at once, none after a second.
"""

import os
from typing import Annotated, Any

from taskiq import Context, SimpleRetryMiddleware, TaskiqDepends
from taskiq_redis import RedisStreamBroker

from benchmarks.flow.producer import AsyncProducer
from benchmarks.flow.track import PAYLOAD, URL
from benchmarks.flow.work import MOST_ATTEMPTS, RETRY_AFTER, TASKS
from benchmarks.flow.work import work as attempt

broker = RedisStreamBroker(os.environ[URL]).with_middlewares(SimpleRetryMiddleware(default_retry_count=MOST_ATTEMPTS))


def _declare(name: str) -> Any:  # noqa: ANN401 - depends on the task
    async def run(sent: int, payload: str) -> None:  # noqa: ARG001 - all tasks take the same
        attempt(name, sent)

    async def fail(sent: int, payload: str, context: Annotated[Context, TaskiqDepends()]) -> None:  # noqa: ARG001
        message = context.message
        attempt(name, sent, message.task_id, is_first="_retries" not in message.labels)

    if name in RETRY_AFTER:
        return broker.task(task_name=name, retry_on_error=True)(fail)
    return broker.task(task_name=name)(run)


TASK = {name: _declare(name) for name in TASKS}


class Producer(AsyncProducer):
    """Kicks as its documents say. It knows no tenants and no bulk."""

    packages = ("taskiq", "taskiq-redis", "redis", "hiredis", "uvloop")

    async def open(self) -> None:
        """Connect, which makes the group of consumers too."""
        await broker.startup()

    async def put(self, task: str, sent: int, tenant: int) -> None:  # noqa: ARG002 - it knows none
        """Enqueue one job."""
        await TASK[task].kiq(sent, PAYLOAD)

    def close(self) -> None:
        """Disconnect."""
        self.loop.run_until_complete(broker.shutdown())
