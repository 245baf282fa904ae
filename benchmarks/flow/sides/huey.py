"""huey, run by its own consumer.

`fsync=True` is `synchronous = FULL`, as our `durability="full"`. It is what huey leaves to SQLite when nothing is said,
which is FULL as well unless SQLite was built otherwise. `results=False` spares it a write that a no-op needs not.
"""

import os
import sqlite3
from typing import Any

from huey import SqliteHuey

from benchmarks.flow.producer import SyncProducer
from benchmarks.flow.track import DATABASE, PAYLOAD, folder
from benchmarks.flow.work import RETRY_AFTER, TASKS
from benchmarks.flow.work import work as attempt

DEFAULTS = "BENCH_DEFAULTS"
"""The variable that asks for huey as it comes."""

LEVELS = ("off", "normal", "full", "extra")

_settings: dict[str, Any] = {} if os.environ.get(DEFAULTS) else {"fsync": True, "results": False}
huey = SqliteHuey(filename=str(folder() / DATABASE), **_settings)


def _declare(name: str) -> Any:  # noqa: ANN401 - huey has no types
    # Whole seconds: any part of one would be rounded up to the scheduler's second.
    @huey.task(name=name, retries=1, retry_delay=int(RETRY_AFTER.get(name, 0)), context=True)
    def run(sent: int, payload: str, task: Any) -> None:  # noqa: ANN401, ARG001 - huey has no types
        attempt(name, sent, task.id, is_first=task.retries > 0)

    return run


TASK = {name: _declare(name) for name in TASKS}


class Producer(SyncProducer):
    """Enqueues as huey's documents say: by calling the task. No tenants, and no bulk, as `map` stores one by one."""

    packages = ("huey",)

    def versions(self) -> dict[str, str]:
        """Return what is at work."""
        level = huey.storage.conn.execute("pragma synchronous").fetchone()[0]
        return super().versions() | {"sqlite": sqlite3.sqlite_version, "synchronous": LEVELS[level]}

    def fill(self, task: str, count: int, tenants: int) -> None:  # noqa: ARG002 - huey knows none
        """Make a backlog, without waiting for the disk each time."""
        huey.storage.conn.execute("pragma synchronous = off")
        for _ in range(count):
            TASK[task](0, PAYLOAD)

    def send(self, task: str, sent: int, tenant: int) -> None:  # noqa: ARG002 - huey knows none
        """Enqueue one job."""
        TASK[task](sent, PAYLOAD)
