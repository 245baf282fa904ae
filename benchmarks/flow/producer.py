"""A producer: enqueues for a measurement, in a process of its own, and prints what it found as JSON.

`python -m benchmarks.flow.producer benchmarks.flow.sides.huey one --count 100`. The module of a side has a `Producer`.
All understand the same words; this module imports nothing but the standard library and the side that it is told.
"""

import argparse
import asyncio
import importlib
import json
import platform
import time
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version

from benchmarks.flow.loop import new_loop
from benchmarks.flow.track import SECOND

WARM_UP = 20
"""Calls before the first that counts."""

CALLERS = 100


class BaseProducer(ABC):
    """What a side can do. Tasks are those of `work`."""

    packages: tuple[str, ...] = ()
    """What is at work, by the names of its distributions."""

    def versions(self) -> dict[str, str]:
        """Return what is at work."""
        return {"python": platform.python_version()} | {name: _version(name) for name in self.packages}

    def prepare(self) -> None:
        """Make what an empty store needs before anything can be enqueued."""
        return

    def fill(self, task: str, count: int, tenants: int) -> None:
        """Make a backlog, in the quickest way there is: this is not measured."""
        if not self.bulk(task, count, tenants):
            self.crowd(task, count, min(count, CALLERS))

    @abstractmethod
    def send(self, task: str, sent: int, tenant: int) -> None:
        """Enqueue one job, from code without a loop, and return when it is stored."""

    @abstractmethod
    def crowd(self, task: str, count: int, callers: int) -> None:
        """Enqueue jobs one by one, so many callers at once."""

    @abstractmethod
    def bulk(self, task: str, count: int, tenants: int) -> bool:
        """Enqueue jobs in bulk; return False where there is no such call."""

    def close(self) -> None:
        """End what was opened."""
        return


class SyncProducer(BaseProducer):
    """A side without coroutines: its callers are threads."""

    def crowd(self, task: str, count: int, callers: int) -> None:
        """Enqueue from many threads at once."""
        with ThreadPoolExecutor(callers) as threads:
            for _ in threads.map(lambda number: self.send(task, 0, number % 10), range(count)):
                pass

    def bulk(self, task: str, count: int, tenants: int) -> bool:  # noqa: ARG002 - for producers that use it
        """Return that there is no such thing."""
        return False


class AsyncProducer(BaseProducer):
    """A side of coroutines. Who enqueues without a loop runs one for each call."""

    def __init__(self) -> None:
        """Make a loop, and connect."""
        self.loop = new_loop()
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self.open())

    async def open(self) -> None:
        """Connect."""
        return

    @abstractmethod
    async def put(self, task: str, sent: int, tenant: int) -> None:
        """Enqueue one job."""

    async def put_many(self, task: str, count: int, tenants: int) -> bool:  # noqa: ARG002 - for producers that use it
        """Enqueue jobs in bulk; return False where there is no such call."""
        return False

    def send(self, task: str, sent: int, tenant: int) -> None:
        """Enqueue one job."""
        self.loop.run_until_complete(self.put(task, sent, tenant))

    def crowd(self, task: str, count: int, callers: int) -> None:
        """Enqueue from many coroutines at once."""

        async def call(number: int) -> None:
            for _ in range(count // callers):
                await self.put(task, 0, number % 10)

        async def gather() -> None:
            await asyncio.gather(*map(call, range(callers)))

        self.loop.run_until_complete(gather())

    def bulk(self, task: str, count: int, tenants: int) -> bool:
        """Enqueue jobs in bulk, where there is such a thing."""
        return self.loop.run_until_complete(self.put_many(task, count, tenants))


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("module")
    parser.add_argument("word", choices=["versions", "fill", "one", "awaited", "crowd", "bulk", "pace"])
    parser.add_argument("--task", default="nothing")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--tenants", type=int, default=10)
    parser.add_argument("--every", type=float, default=0.02)
    wanted = parser.parse_args()
    producer: BaseProducer = importlib.import_module(wanted.module).Producer()
    count: int = wanted.count
    result: object = None
    if wanted.word not in ("versions", "pace"):
        # The store has been filled before.
        producer.prepare()
    match wanted.word:
        case "versions":
            result = producer.versions()
        case "fill":
            producer.fill(wanted.task, count, wanted.tenants)
        case "pace":
            result = _pace(producer, wanted.task, count, wanted.every)
        case word:
            result = _speed(producer, word, count)
    producer.close()
    print(json.dumps(result))


def _speed(producer: BaseProducer, word: str, count: int) -> float | None:
    """Return jobs per second."""
    for number in range(WARM_UP):
        producer.send("nothing", 0, number % 10)
    started = time.perf_counter()
    if word == "one":
        for number in range(count):
            producer.send("nothing", 0, number % 10)
    elif word in ("awaited", "crowd"):
        producer.crowd("nothing", count, 1 if word == "awaited" else CALLERS)
    elif not producer.bulk("nothing", count, 10):
        return None
    return count / (time.perf_counter() - started)


def _pace(producer: BaseProducer, task: str, count: int, every: float) -> list[float]:
    """Enqueue a job every so many seconds; return how many milliseconds each call took."""
    took = []
    begun = time.monotonic()
    for number in range(-WARM_UP, count):
        # Jobs of the warm-up carry no moment, and are not stamped.
        sent = time.monotonic_ns() if number >= 0 else 0
        # The first tenant may have a backlog, and is not among them.
        producer.send(task, sent, 1 + number % 9)
        if sent:
            took.append((time.monotonic_ns() - sent) / SECOND * 1e3)
        due = begun + (number + WARM_UP + 1) * every
        time.sleep(max(0.0, due - time.monotonic()))  # noqa: TID251 - the pace is real
    return took


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "–"


if __name__ == "__main__":
    main()
