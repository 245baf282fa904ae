"""The jobs of chancy, and its worker: `python -m benchmarks.flow.chancy_jobs`, in its own environment."""

import asyncio
from typing import Any

from chancy import Chancy, Queue, Worker, job  # type: ignore[import-not-found]  # lives in the peer's environment alone
from chancy.job import QueuedJob  # type: ignore[import-not-found]  # as above
from chancy.plugins.retry import RetryPlugin  # type: ignore[import-not-found]  # as above

from benchmarks.flow import peer_jobs

EXECUTOR = "chancy.executors.asyncex.AsyncExecutor"
DELAYS = {"flaky": 0, "late": 1}


def open_app() -> Any:  # noqa: ANN401 - the peer's own
    """Answer the app of this measurement."""
    return Chancy(peer_jobs.url(), plugins=[RetryPlugin()])


def queue() -> Any:  # noqa: ANN401 - as above
    """Answer the queue: asynchronous jobs, and the next are fetched as soon as some have ended."""
    return Queue("default", concurrency=100, executor=EXECUTOR, polling_interval=1, eager_polling=True)


@job()  # type: ignore[untyped-decorator]  # as above
async def nothing(*, sent: int, payload: str, context: QueuedJob) -> None:  # noqa: ARG001 - all tasks take the same
    """Do nothing."""
    peer_jobs.run("nothing", context.id, context.attempts + 1, sent)


@job()  # type: ignore[untyped-decorator]  # as above
async def flaky(*, sent: int, payload: str, context: QueuedJob) -> None:  # noqa: ARG001 - as above
    """Fail once, then succeed."""
    peer_jobs.run("flaky", context.id, context.attempts + 1, sent)


@job()  # type: ignore[untyped-decorator]  # as above
async def prompt(*, sent: int, payload: str, context: QueuedJob) -> None:  # noqa: ARG001 - as above
    """Write down how long it took."""
    peer_jobs.run("prompt", context.id, context.attempts + 1, sent)


@job()  # type: ignore[untyped-decorator]  # as above
async def late(*, sent: int, payload: str, context: QueuedJob) -> None:  # noqa: ARG001 - as above
    """Fail once, and write down how much later than a second the retry came."""
    peer_jobs.run("late", context.id, context.attempts + 1, sent)


TASKS: dict[str, Any] = {"nothing": nothing, "flaky": flaky, "prompt": prompt, "late": late}


async def main() -> None:
    """Work until somebody ends the process."""
    async with open_app() as app, Worker(app) as worker:
        await worker.wait_for_shutdown()


if __name__ == "__main__":
    asyncio.run(main())
