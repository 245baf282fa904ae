"""The jobs of saq: `saq benchmarks.flow.saq_jobs.settings`, in its own environment."""

from typing import Any

from saq import Queue  # type: ignore[import-not-found]  # lives in the peer's environment alone

from benchmarks.flow import peer_jobs

queue: Any = Queue.from_url(peer_jobs.url(), min_size=4, max_size=20)


def _job_of(task: str) -> tuple[str, Any]:
    async def job(context: Any, *, sent: int, payload: str) -> None:  # noqa: ANN401, ARG001 - all tasks take the same
        peer_jobs.run(task, context["job"].id, context["job"].attempts, sent)

    return task, job


settings = {"queue": queue, "functions": [_job_of(task) for task in peer_jobs.TASKS], "concurrency": 100}
