"""Our producer: `python -m benchmarks.flow.reprieve_producer`."""

import asyncio
import platform
import sqlite3
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import reprieve
from benchmarks.flow import producer
from benchmarks.flow.reprieve_jobs import app, flaky, late, nothing, prompt
from benchmarks.flow.track import PAYLOAD
from reprieve.call import Call
from reprieve.worker.loop import run

TASKS = {task.name: task for task in (nothing, flaky, prompt, late)}


class ReprieveProducer:
    """Enqueues through the app, as an application would."""

    def versions(self) -> dict[str, str]:
        """Answer what is at work."""
        try:
            loop = f"uvloop {version('uvloop')}"
        except PackageNotFoundError:
            loop = "asyncio"
        return {
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
            "reprieve": reprieve.__version__,
            "loop": loop,
            "synchronous": app.settings.durability,
        }

    def fill(self, task: str, count: int, tenants: int) -> None:
        """Make a backlog in bulk."""
        run(_bulk(_calls(task, count, tenants)))

    def send(self, task: str, sent: int, tenant: int) -> None:
        """Enqueue one job through the sync face."""
        TASKS[task].using(tenant=f"tenant-{tenant}").enqueue(sent, PAYLOAD)

    def crowd(self, count: int, callers: int) -> None:
        """Enqueue from many coroutines at once."""
        run(_crowd(count, callers))

    def bulk(self, count: int) -> bool:
        """Enqueue in bulk."""
        run(_bulk(_calls("nothing", count, 10)))
        return True


def _calls(task: str, count: int, tenants: int) -> Iterator[Call]:
    using = [TASKS[task].using(tenant=f"tenant-{number}") for number in range(tenants)]
    return (using[number % tenants].call(0, PAYLOAD) for number in range(count))


async def _bulk(calls: Iterator[Call]) -> None:
    await app.aenqueue_many(calls)


async def _crowd(count: int, callers: int) -> None:
    async def call(number: int) -> None:
        task = nothing.using(tenant=f"tenant-{number % 10}")
        for _ in range(count // callers):
            await task.aenqueue(0, PAYLOAD)

    await asyncio.gather(*map(call, range(callers)))


if __name__ == "__main__":
    producer.main(ReprieveProducer())
    app.close()
