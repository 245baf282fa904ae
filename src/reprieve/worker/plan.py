"""The plan: what a supervisor is asked to run."""

import os
from collections.abc import Sequence

from reprieve.core.record import Record
from reprieve.worker.logs import Logs
from reprieve.worker.workplace import Workplace


class Plan(Record):
    """How many processes serve which queues of which app, and how they are looked after."""

    target: str
    url: str
    processes: int
    slots: int
    queues: tuple[str, ...]
    grace: float
    lease: float
    heartbeat: float
    logs: Logs = Logs()


def plan_for(place: Workplace, target: str, *, queues: Sequence[str] = (), logs: Logs | None = None) -> Plan:
    """Make a plan from an app's settings; without queues named, every queue of its tasks is served."""
    settings = place.settings
    return Plan(
        target=target,
        url=settings.url,
        processes=settings.processes or cores(),
        slots=settings.slots,
        queues=tuple(queues) or place.registry.queues(),
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
