"""The lane cache: the lanes that this process has read or created, by their ids and by their names.

Ids of lanes, tenants, limiters and queues never change, so an entry stays valid. After a rollback the cache is cleared,
since SQLite assigns an id that was rolled back again.
"""

from collections.abc import Iterator
from typing import TypeAlias

from reprieve.core.job import Job
from reprieve.stores.record import model_of
from reprieve.stores.sql.lanes import LaneRef, SqlLaneCache
from reprieve.stores.sqlite.statements import Tx, statements

Names: TypeAlias = tuple[str, str, str, str, str, int]
"""Queue, tenant, task, dependency, group and priority."""


class LaneCache(SqlLaneCache[Tx, LaneRef]):
    """The lanes that this process knows."""

    def __init__(self) -> None:
        """Start empty."""
        super().__init__()
        self._by_names: dict[Names, LaneRef] = {}

    def clear(self) -> None:
        """Drop all lanes, because a transaction was rolled back."""
        self._by_names.clear()
        self._by_id.clear()

    def of_job(self, tx: Tx, job: Job) -> LaneRef:
        """Return the lane of a job, and create it if it is missing."""
        names = (job.queue, job.tenant, job.task, job.dependency, job.group, job.priority)
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
        lane = _insert(tx, statements("lanes")["create_lane"], *row)
        return self._add((lane, *names, queue_id, tenant_id, *limiters))


def queue_of(tx: Tx, name: str) -> int:
    """Return the id of a queue, and create it if it is missing."""
    sql = statements("lanes")
    found = tx.execute(sql["queue"], (name,)).fetchone()
    return int(found[0]) if found else _insert(tx, sql["create_queue"], name, limiter_of(tx, "queue", name))


def tenant_of(tx: Tx, queue: int, name: str) -> int:
    """Return the id of a tenant of a queue, and create it if it is missing."""
    sql = statements("lanes")
    found = tx.execute(sql["tenant"], (queue, name)).fetchone()
    return int(found[0]) if found else _insert(tx, sql["create_tenant"], queue, name)


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
