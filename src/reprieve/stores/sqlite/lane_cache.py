"""The lane cache: the lanes that this process has read or created, by their ids and by their names.

What an id stands for never changes, so an entry by its id stays valid. A lane that has a job exists; one without jobs
may be deleted by any process, and its names get another id with their next job. So a transaction that looks up names
reads first how often lanes were deleted: it sees the same state of the file as the rest of the transaction. After a
rollback the cache is cleared, since SQLite assigns an id that was rolled back again.
"""

from collections.abc import Iterator
from typing import Final, TypeAlias

from reprieve.core.job import Job
from reprieve.stores.record import model_of
from reprieve.stores.sql.lanes import CacheAge, LaneRef, SqlLaneCache
from reprieve.stores.sqlite.statements import Tx, statements

Names: TypeAlias = tuple[str, str, str, str, str, int]
"""Queue, tenant, task, dependency, group and the priority of the lane."""


_UNKNOWN: Final = -1
"""That it was not read yet how often lanes were deleted."""


class LaneCache(SqlLaneCache[Tx, LaneRef]):
    """The lanes that this process knows."""

    def __init__(self) -> None:
        """Start empty."""
        super().__init__()
        self._by_names: dict[Names, LaneRef] = {}
        self._lanes_deleted = _UNKNOWN
        self._age = CacheAge()

    def start(self, lanes_deleted: int) -> None:
        """Begin a transaction that looks up names; drop all lanes if some were deleted since the last one."""
        if lanes_deleted != self._lanes_deleted:
            self.clear()
            self._lanes_deleted = lanes_deleted

    def clear(self) -> None:
        """Drop all lanes. How often lanes were deleted may have been read in a transaction that was rolled back."""
        self._by_names.clear()
        self._by_id.clear()
        self._lanes_deleted = _UNKNOWN

    def trim(self) -> None:
        """Drop all lanes when it is time, between two transactions: one that began may rely on what it has loaded."""
        if self._age.is_over(len(self._by_id)):
            self.clear()

    def after(self, tx: Tx, lane: int, job: Job) -> LaneRef:
        """Return the lane of a job that was on this lane: the same one, unless a change gave it another name."""
        ref = self.get(tx, lane)
        if _names_of_lane(ref) != names_of(job):
            self.start(tx.execute(statements("lanes")["lanes_deleted"]).fetchone()[0])
            ref = self.of_job(tx, job)
        return ref

    def of_job(self, tx: Tx, job: Job) -> LaneRef:
        """Return the lane of a job, and create it if it is missing. The transaction has called `start`."""
        names = names_of(job)
        lane = self._by_names.get(names)
        if lane is None:
            row = tx.execute(statements("lanes")["by_names"], (*names[1:], names[0])).fetchone()
            lane = self._create(tx, names) if row is None else self._add(row)
        return lane

    def _read(self, tx: Tx, lanes: set[int]) -> Iterator[LaneRef]:
        ids = list(lanes)
        for start in range(0, len(ids), 500):
            part = ids[start : start + 500]
            placeholders = ",".join("?" * len(part))
            statement = statements("lanes")["by_ids"].replace("{placeholders}", placeholders)
            yield from map(self._add, tx.execute(statement, part).fetchall())

    def _add(self, row: tuple[int, str, str, str, str, str, int, int, int, int, int, int]) -> LaneRef:
        lane, queue, tenant, task, dependency, group, priority, queue_id, tenant_id, *limiters = row
        names = (queue, tenant, task, dependency, group, priority)
        ref = LaneRef(lane, *names, queue_id, tenant_id, tuple(filter(None, limiters)), model_of(*names))
        self._by_id[lane] = self._by_names[names] = ref
        return ref

    def _create(self, tx: Tx, names: Names) -> LaneRef:
        queue, tenant, task, dependency, group, priority = names
        queue_id = queue_of(tx, queue)
        tenant_id = tenant_of(tx, queue_id, tenant)
        limiters = (
            limiter_of(tx, "task", task),
            limiter_of(tx, "dependency", dependency) if dependency else 0,
            limiter_of(tx, "group", group) if group else 0,
        )
        pair = _pair_of(tx, tenant, dependency) if dependency else 0
        row = (queue_id, tenant_id, task, dependency, group, priority, *limiters, pair)
        sql = statements("lanes")
        lane = _insert(tx, sql["create_lane"], *row)
        tx.execute(sql["count_lane_of_tenant"], (tenant_id,))
        tx.execute(sql["count_lane_of_limiters"], (*limiters, pair))
        return self._add((lane, *names, queue_id, tenant_id, *limiters))


def names_of(job: Job) -> Names:
    """Return the names of the lane that a job belongs to."""
    # A property takes longer than all fields together.
    priority = 2 * job.priority if job.headers is None else job.lane_priority
    return job.queue, job.tenant, job.task, job.dependency, job.group, priority


def _names_of_lane(lane: LaneRef) -> Names:
    return lane.queue, lane.tenant, lane.task, lane.dependency, lane.group, lane.priority


def queue_of(tx: Tx, name: str) -> int:
    """Return the id of a queue, and create it if it is missing."""
    sql = statements("lanes")
    found = tx.execute(sql["queue"], (name,)).fetchone()
    return int(found[0]) if found else _insert(tx, sql["create_queue"], name, limiter_of(tx, "queue", name))


def tenant_of(tx: Tx, queue: int, name: str) -> int:
    """Return the id of a tenant of a queue, and create it if it is missing."""
    sql = statements("lanes")
    found = tx.execute(sql["tenant"], (queue, name)).fetchone()
    if found:
        return int(found[0])
    tx.execute(sql["count_tenant"], (queue,))
    return _insert(tx, sql["create_tenant"], queue, name)


def limiter_of(tx: Tx, subject: str, name: str, dependency: str = "") -> int:
    """Return the id of a limiter, and create it if it is missing."""
    found = find_limiter(tx, subject, name, dependency)
    return _insert(tx, statements("lanes")["create_limiter"], subject, name, dependency) if found is None else found


def find_limiter(tx: Tx, subject: str, name: str, dependency: str = "") -> int | None:
    """Return the id of a limiter, or None."""
    found = tx.execute(statements("lanes")["limiter"], (subject, name, dependency)).fetchone()
    return int(found[0]) if found else None


def _pair_of(tx: Tx, tenant: str, dependency: str) -> int:
    """Return the id of the limiter of a tenant and a dependency together; 0 if they have no limits."""
    if tx.execute(statements("lanes")["has_pair_default"], (dependency,)).fetchone():
        return limiter_of(tx, "tenant_dependency", tenant, dependency)
    return find_limiter(tx, "tenant_dependency", tenant, dependency) or 0


def _insert(tx: Tx, statement: str, *values: object) -> int:
    return tx.execute(statement, values).lastrowid or 0
