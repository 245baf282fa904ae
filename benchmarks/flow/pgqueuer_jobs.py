"""The jobs of pgqueuer, and its worker: `python -m benchmarks.flow.pgqueuer_jobs`, in its own environment.

Without its command line, which does not start with the newest typer.
"""

import json
from datetime import timedelta
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # has no types
import uvloop
from pgqueuer import PgQueuer, RetryRequested  # type: ignore[import-not-found]  # lives in the peer's environment alone
from pgqueuer.db import AsyncpgPoolDriver  # type: ignore[import-not-found]  # as above

from benchmarks.flow import peer_jobs

DELAYS = {"late": timedelta(seconds=1)}


async def main() -> None:
    """Work until somebody ends the process, with as large batches as our own."""
    queuer = PgQueuer(AsyncpgPoolDriver(await asyncpg.create_pool(peer_jobs.url(), min_size=4, max_size=8)))
    for task in peer_jobs.TASKS:
        queuer.entrypoint(task)(_job_of(task))
    await queuer.run(batch_size=100, max_concurrent_tasks=200)


def _job_of(task: str) -> Any:  # noqa: ANN401 - the peer's own
    async def job(job: Any) -> None:  # noqa: ANN401 - as above
        sent = json.loads(job.payload)["sent"]
        try:
            peer_jobs.run(task, job.id, job.attempts + 1, sent)
        except ConnectionError as error:
            raise RetryRequested(delay=DELAYS.get(task, timedelta(0))) from error

    return job


if __name__ == "__main__":
    uvloop.run(main())
