"""The producer of pgqueuer: `python -m benchmarks.flow.pgqueuer_producer`, in the peer's environment."""

import json
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # has no types
from pgqueuer.db import AsyncpgPoolDriver  # type: ignore[import-not-found]  # lives in the peer's environment alone
from pgqueuer.queries import Queries  # type: ignore[import-not-found]  # as above

from benchmarks.flow import peer_jobs, producer
from benchmarks.flow.awaited import AwaitedProducer
from benchmarks.flow.track import PAYLOAD


class PgqueuerProducer(AwaitedProducer):
    """Enqueues through `Queries`; lists are stored in one statement."""

    _pool: Any
    _queries: Any

    async def open(self) -> None:
        """Connect, and install what is missing."""
        self._pool = await asyncpg.create_pool(peer_jobs.url(), min_size=4, max_size=8)
        self._queries = Queries(AsyncpgPoolDriver(self._pool))
        if not await self._queries.has_table("pgqueuer"):
            await self._queries.install()

    async def close(self) -> None:
        """Hang up."""
        await self._pool.close()

    async def one(self, task: str, sent: int) -> None:
        """Enqueue one job."""
        await self._queries.enqueue(task, _payload(sent))

    async def many(self, task: str, count: int) -> None:
        """Enqueue a list."""
        await self._queries.enqueue([task] * count, [_payload(0)] * count, [0] * count)


def _payload(sent: int) -> bytes:
    return json.dumps({"sent": sent, "payload": PAYLOAD}).encode()


if __name__ == "__main__":
    with PgqueuerProducer("pgqueuer") as peer:
        producer.main(peer)
