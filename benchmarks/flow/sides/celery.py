"""Celery, run by its own command."""

import os
from typing import Any

from celery import Celery, Task

from benchmarks.flow.producer import SyncProducer
from benchmarks.flow.track import PAYLOAD, URL
from benchmarks.flow.work import RETRY_AFTER, TASKS
from benchmarks.flow.work import work as attempt

app = Celery("bench", broker=os.environ[URL])
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=100,
    worker_hijack_root_logger=False,
)


def _declare(name: str) -> Any:  # noqa: ANN401 - Celery has no types
    @app.task(name=name, bind=True, autoretry_for=(ConnectionError,), default_retry_delay=int(RETRY_AFTER.get(name, 0)))
    def run(self: Task, sent: int, payload: str) -> None:  # noqa: ARG001 - all tasks take the same
        attempt(name, sent, self.request.id, is_first=self.request.retries == 0)

    return run


TASK = {name: _declare(name) for name in TASKS}


class Producer(SyncProducer):
    """Sends as its documents say. It knows no tenants, and no bulk: a group sends one by one."""

    packages = ("celery", "kombu", "redis", "hiredis")

    def send(self, task: str, sent: int, tenant: int) -> None:  # noqa: ARG002 - it knows none
        """Enqueue one job."""
        TASK[task].delay(sent, PAYLOAD)
