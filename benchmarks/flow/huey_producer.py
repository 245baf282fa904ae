"""The producer of huey: `python -m benchmarks.flow.huey_producer`, in the peer's environment."""

import platform
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import huey as peer  # type: ignore[import-not-found]  # lives in the peer's environment alone

from benchmarks.flow import huey_jobs, producer
from benchmarks.flow.track import PAYLOAD

TASKS: dict[str, Any] = {name: getattr(huey_jobs, name) for name in ("nothing", "flaky", "prompt", "late")}
LEVELS = ("off", "normal", "full", "extra")


class HueyProducer:
    """Enqueues as huey's documents say: by calling the task. It knows no tenants, no bulk and no coroutines."""

    def versions(self) -> dict[str, str]:
        """Answer what is at work."""
        level = huey_jobs.huey.storage.conn.execute("pragma synchronous").fetchone()[0]
        return {
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
            "huey": peer.__version__,
            "synchronous": LEVELS[level],
        }

    def fill(self, task: str, count: int, tenants: int) -> None:  # noqa: ARG002 - huey knows none
        """Make a backlog, without waiting for the disk each time."""
        huey_jobs.huey.storage.conn.execute("pragma synchronous = off")
        for _ in range(count):
            TASKS[task](0, PAYLOAD)

    def send(self, task: str, sent: int, tenant: int) -> None:  # noqa: ARG002 - huey knows none
        """Enqueue one job."""
        TASKS[task](sent, PAYLOAD)

    def crowd(self, count: int, callers: int) -> None:
        """Enqueue from many threads at once."""
        with ThreadPoolExecutor(callers) as threads:
            for _ in threads.map(lambda _: TASKS["nothing"](0, PAYLOAD), range(count)):
                pass

    def bulk(self, count: int) -> bool:  # noqa: ARG002 - there is no such thing
        """Answer that there is no such thing: `map` stores one by one."""
        return False


if __name__ == "__main__":
    producer.main(HueyProducer())
