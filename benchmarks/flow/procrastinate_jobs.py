"""The jobs of procrastinate: its `worker --app benchmarks.flow.procrastinate_jobs.app`, in its own environment."""

from typing import Any

import procrastinate  # type: ignore[import-not-found]  # lives in the peer's environment alone

from benchmarks.flow import peer_jobs

app: Any = procrastinate.App(
    connector=procrastinate.PsycopgConnector(conninfo=peer_jobs.url(), min_size=4, max_size=20)
)
RETRIES = {
    "flaky": procrastinate.RetryStrategy(max_attempts=2),
    "late": procrastinate.RetryStrategy(max_attempts=2, wait=1),
}


def _job_of(task: str) -> Any:  # noqa: ANN401 - the peer's own
    async def job(context: Any, sent: int, payload: str) -> None:  # noqa: ANN401, ARG001 - all tasks take the same
        peer_jobs.run(task, context.job.id, context.job.attempts + 1, sent)

    return app.task(name=task, pass_context=True, retry=RETRIES.get(task, False))(job)


TASKS = {task: _job_of(task) for task in peer_jobs.TASKS}
