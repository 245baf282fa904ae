"""Lanes by their names: a queue, tenant, limiter or lane has a hash of its names as its id."""

import hashlib
from functools import lru_cache

import msgspec

from reprieve.core.job import Job
from reprieve.stores.record import model_of


class LaneRef(msgspec.Struct, frozen=True):
    """A lane: what its jobs have in common, and the ids of the rows that it belongs to."""

    lane: int
    queue: str
    tenant: str
    task: str
    dependency: str
    group: str
    priority: int
    queue_id: int
    tenant_id: int
    limiters: tuple[int, ...]
    """Of its task, its dependency and its group."""
    queue_limiter: int
    model: Job
    """A job of this lane. Its other jobs are copies of it, which is six times as fast as making them."""

    def names(self) -> dict[str, object]:
        """Return its names and ids as the functions in the database read them from JSON."""
        fields = ("lane", "queue_id", "queue", "tenant", "task", "dependency", "group", "priority")
        return {field: getattr(self, field) for field in fields}


def hash_id(*names: str) -> int:
    """Return the id of something by its names, as the function of that name in the database does."""
    return int.from_bytes(hashlib.sha256("\x01".join(names).encode()).digest()[:8], "big", signed=True)


@lru_cache(maxsize=65_536)
def lane_ref(queue: str, tenant: str, task: str, dependency: str, group: str, priority: int) -> LaneRef:
    """Return the lane of these names."""
    limiters = (("task", task), ("dependency", dependency), ("group", group))
    return LaneRef(
        lane=hash_id("lane", queue, tenant, task, dependency, group, str(priority)),
        queue=queue,
        tenant=tenant,
        task=task,
        dependency=dependency,
        group=group,
        priority=priority,
        queue_id=hash_id("queue", queue),
        tenant_id=hash_id("tenant", queue, tenant),
        limiters=tuple(hash_id("limiter", subject, name) for subject, name in limiters if name),
        queue_limiter=hash_id("limiter", "queue", queue),
        model=model_of(queue, tenant, task, dependency, group, priority),
    )


def lane_of(job: Job) -> LaneRef:
    """Return the lane of a job."""
    return lane_ref(job.queue, job.tenant, job.task, job.dependency, job.group, job.priority)
