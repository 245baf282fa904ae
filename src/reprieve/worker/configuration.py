"""The configuration of a worker: what its supervisor runs."""

import os
from collections.abc import Sequence

from reprieve.core.record import Record
from reprieve.core.values import name
from reprieve.worker.logs import Logs
from reprieve.worker.worker_context import WorkerContext


class WorkerConfiguration(Record):
    """Which app and queues a worker serves, in how many processes, and with which limits. Durations are in seconds."""

    target: str
    url: str
    processes: int
    slots: int
    queues: tuple[str, ...]
    tasks: tuple[str, ...] = ()
    """The names of the tasks that the app declares."""
    grace: float
    lease: float
    heartbeat: float
    logs: Logs = Logs()


def configure_worker(
    context: WorkerContext, target: str, *, queues: Sequence[str] = (), logs: Logs | None = None
) -> WorkerConfiguration:
    """Return the configuration that an app's settings ask for; without queues, the queues of all its tasks."""
    settings = context.settings
    return WorkerConfiguration(
        target=target,
        url=settings.url,
        processes=settings.processes or cores(),
        slots=settings.slots,
        queues=tuple(dict.fromkeys(name(queue, "queue") for queue in queues)) or context.registry.queues(),
        tasks=tuple(task.name for task in context.registry),
        grace=settings.grace,
        lease=settings.lease,
        heartbeat=settings.heartbeat,
        logs=logs or Logs(),
    )


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
