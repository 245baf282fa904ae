"""A producer of a peer that is used with await: it is given a loop, and code without one waits for it."""

import asyncio
import platform
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from importlib.metadata import version
from typing import Any, Self

CHUNK = 1_000
"""Jobs that are stored together, as ours are."""


class AwaitedProducer(ABC):
    """Enqueues through a peer's own interface. The store is made when it is first needed."""

    def __init__(self, package: str) -> None:
        """Take the name of the peer."""
        self._package = package
        self._loop = asyncio.new_event_loop()
        self._is_open = False

    @abstractmethod
    async def open(self) -> None:
        """Connect, and make the peer's tables if they are missing."""

    @abstractmethod
    async def one(self, task: str, sent: int) -> None:
        """Enqueue one job."""

    @abstractmethod
    async def many(self, task: str, count: int) -> None:
        """Enqueue so many jobs in as few trips as the peer knows how to."""

    @abstractmethod
    async def close(self) -> None:
        """Hang up."""

    def versions(self) -> dict[str, str]:
        """Answer what is at work."""
        return {"python": platform.python_version(), self._package: version(self._package)}

    def fill(self, task: str, count: int, tenants: int) -> None:  # noqa: ARG002 - peers know none
        """Make a backlog."""
        self._run(self._chunks(task, count))

    def send(self, task: str, sent: int, tenant: int) -> None:  # noqa: ARG002 - as above
        """Enqueue one job, and wait for it."""
        self._run(self.one(task, sent))

    def crowd(self, count: int, callers: int) -> None:
        """Enqueue from many coroutines at once."""
        self._run(self._crowd(count, callers))

    def bulk(self, count: int) -> bool:
        """Enqueue in bulk."""
        self._run(self._chunks("nothing", count))
        return True

    async def _chunks(self, task: str, count: int) -> None:
        for start in range(0, count, CHUNK):
            await self.many(task, min(CHUNK, count - start))

    async def _crowd(self, count: int, callers: int) -> None:
        async def call() -> None:
            for _ in range(count // callers):
                await self.one("nothing", 0)

        await asyncio.gather(*(call() for _ in range(callers)))

    def __enter__(self) -> Self:
        """Open nothing yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Hang up, if it was opened."""
        if self._is_open:
            self._loop.run_until_complete(self.close())
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        if not self._is_open:
            self._is_open = True
            self._loop.run_until_complete(self.open())
        self._loop.run_until_complete(work)
