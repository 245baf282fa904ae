"""The producer of saq: `python -m benchmarks.flow.saq_producer`, in the peer's environment."""

import asyncio
from typing import Any

from benchmarks.flow import producer
from benchmarks.flow.awaited import AwaitedProducer
from benchmarks.flow.saq_jobs import queue
from benchmarks.flow.track import PAYLOAD

# Results of no-ops are not kept, as ours are not.
OPTIONS: dict[str, dict[str, Any]] = {
    "flaky": {"retries": 2, "retry_delay": 0.0, "ttl": -1},
    "late": {"retries": 2, "retry_delay": 1.0, "ttl": -1},
}


class SaqProducer(AwaitedProducer):
    """Enqueues as its documents say; it knows no bulk, so many are enqueued at once."""

    async def open(self) -> None:
        """Connect, which makes the tables."""
        await queue.connect()

    async def close(self) -> None:
        """Hang up."""
        await queue.disconnect()

    async def one(self, task: str, sent: int) -> None:
        """Enqueue one job."""
        await queue.enqueue(task, sent=sent, payload=PAYLOAD, **OPTIONS.get(task, {"ttl": -1}))

    async def many(self, task: str, count: int) -> None:
        """Enqueue many at once."""
        await asyncio.gather(*(self.one(task, 0) for _ in range(count)))


if __name__ == "__main__":
    with SaqProducer("saq") as peer:
        producer.main(peer)
