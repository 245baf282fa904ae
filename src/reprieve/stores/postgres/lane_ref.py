"""Lanes by their names: a queue, tenant, limiter or lane has a hash of its names as its id."""

import hashlib
from functools import lru_cache

from reprieve.core.job import Job
from reprieve.stores.record import model_of
from reprieve.stores.sql import lanes
from reprieve.stores.sql.lanes import MAX_CACHED_LANES


class LaneRef(lanes.LaneRef, frozen=True):
    """A lane, with the limiter of its queue."""

    queue_limiter: int

    def names(self) -> dict[str, object]:
        """Return its names and ids as the functions in the database read them from JSON."""
        fields = ("queue_id", "queue", "tenant", "task", "dependency", "group", "priority")
        return {"lane": self.id, **{field: getattr(self, field) for field in fields}}


def hash_id(*names: str) -> int:
    """Return the id of something by its names, as the function of that name in the database does."""
    return int.from_bytes(hashlib.sha256("\x01".join(names).encode()).digest()[:8], "big", signed=True)


@lru_cache(MAX_CACHED_LANES)
def lane_ref(queue: str, tenant: str, task: str, dependency: str, group: str, priority: int) -> LaneRef:
    """Return the lane of these names."""
    names = (queue, tenant, task, dependency, group, priority)
    limiters: list[tuple[str, ...]] = [("task", task)]
    if dependency:
        limiters += [("dependency", dependency), ("tenant_dependency", tenant, dependency)]
    if group:
        limiters += [("group", group)]
    return LaneRef(
        hash_id("lane", *map(str, names)),
        *names,
        hash_id("queue", queue),
        hash_id("tenant", queue, tenant),
        tuple(hash_id("limiter", *limiter) for limiter in limiters),
        model_of(*names),
        queue_limiter=hash_id("limiter", "queue", queue),
    )


def lane_of(job: Job) -> LaneRef:
    """Return the lane of a job."""
    # A property takes longer than all fields together.
    priority = 2 * job.priority if job.headers is None else job.lane_priority
    return lane_ref(job.queue, job.tenant, job.task, job.dependency, job.group, priority)
