"""The producer of chancy: `python -m benchmarks.flow.chancy_producer`, in the peer's environment."""

from typing import Any

from benchmarks.flow import producer
from benchmarks.flow.awaited import AwaitedProducer
from benchmarks.flow.chancy_jobs import DELAYS, TASKS, open_app, queue
from benchmarks.flow.track import PAYLOAD


class ChancyProducer(AwaitedProducer):
    """Pushes as its documents say."""

    _app: Any

    async def open(self) -> None:
        """Connect, migrate, and declare the queue."""
        self._app = open_app()
        await self._app.pool.open()
        await self._app.migrate()
        await self._app.declare(queue(), upsert=True)

    async def close(self) -> None:
        """Hang up."""
        await self._app.pool.close()

    async def one(self, task: str, sent: int) -> None:
        """Push one job."""
        await self._app.push(_job(task, sent))

    async def many(self, task: str, count: int) -> None:
        """Push a batch."""
        async for _ in self._app.push_many([_job(task, 0) for _ in range(count)]):
            pass


def _job(task: str, sent: int) -> Any:  # noqa: ANN401 - the peer's own
    made = TASKS[task].job.with_kwargs(sent=sent, payload=PAYLOAD)
    if task not in DELAYS:
        return made
    delay = {"backoff": DELAYS[task], "backoff_factor": 1, "backoff_jitter": [0, 0]}
    return made.with_max_attempts(2).with_meta({"retry_settings": delay})


if __name__ == "__main__":
    with ChancyProducer("chancy") as peer:
        producer.main(peer)
