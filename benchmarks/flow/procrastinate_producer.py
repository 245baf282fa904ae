"""The producer of procrastinate: `python -m benchmarks.flow.procrastinate_producer`, in the peer's environment."""

from benchmarks.flow import producer
from benchmarks.flow.awaited import AwaitedProducer
from benchmarks.flow.procrastinate_jobs import TASKS, app
from benchmarks.flow.track import PAYLOAD


class ProcrastinateProducer(AwaitedProducer):
    """Defers as its documents say."""

    async def open(self) -> None:
        """Connect, and apply the schema where it is missing."""
        await app.open_async()
        if not await app.check_connection_async():
            await app.schema_manager.apply_schema_async()

    async def close(self) -> None:
        """Hang up."""
        await app.close_async()

    async def one(self, task: str, sent: int) -> None:
        """Defer one job."""
        await TASKS[task].defer_async(sent=sent, payload=PAYLOAD)

    async def many(self, task: str, count: int) -> None:
        """Defer a batch."""
        await TASKS[task].batch_defer_async(*({"sent": 0, "payload": PAYLOAD} for _ in range(count)))


if __name__ == "__main__":
    with ProcrastinateProducer("procrastinate") as peer:
        producer.main(peer)
