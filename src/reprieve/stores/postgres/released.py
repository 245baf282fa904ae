"""Slots that changes release, which a claim hands out again, and what else a claim must know of the changes."""

from collections import Counter

from reprieve.stores.postgres.lane_ref import LaneRef
from reprieve.stores.postgres.pool import Tx
from reprieve.stores.postgres.rows import array_of
from reprieve.stores.postgres.statements import statements


class ReleasedSlots:
    """Slots that tenants and limiters have back, and the jobs that held them."""

    def __init__(self) -> None:
        """Begin with no slot."""
        self.tenants: Counter[int] = Counter()
        self.limiters: Counter[int] = Counter()
        self.jobs: list[str] = []
        self.may_have_cancel_requests = True
        """Whether a running job may have a cancel request."""
        self.has_moved_jobs = False
        """Whether the changes made jobs ready, or took ready jobs away."""
        self.written_lanes: set[int] = set()
        """Lanes whose rows the changes have written."""
        self.delayed: list[tuple[int, int]] = []
        """Queues, and when a job is due in them."""

    def add(self, lane: LaneRef, count: int) -> None:
        """Release slots of a lane."""
        self.tenants[lane.tenant_id] += count
        for limiter in (*lane.limiters, lane.queue_limiter):
            self.limiters[limiter] += count

    def is_within(self, other: "ReleasedSlots") -> bool:
        """Whether all tenants and limiters here are among those of another."""
        return self.tenants.keys() <= other.tenants.keys() and self.limiters.keys() <= other.limiters.keys()

    def due_ats(self, queue: int) -> list[int]:
        """Return when jobs are due in a queue."""
        return [due_at for delayed_in, due_at in self.delayed if delayed_in == queue]

    def clear(self) -> None:
        """Forget the slots, which are written."""
        self.tenants.clear()
        self.limiters.clear()
        self.jobs.clear()

    def write(self, tx: Tx) -> None:
        """Write the slots that are not written yet; a tenant or limiter that was full has room again."""
        if not self.jobs:
            return
        row = {
            "tenants": array_of(self.tenants),
            "tenant_counts": array_of(self.tenants.values()),
            "limiters": array_of(self.limiters),
            "limiter_counts": array_of(self.limiters.values()),
            "jobs": array_of(self.jobs),
        }
        tx.execute(statements("settle")["release_slots"], row)
        self.clear()
