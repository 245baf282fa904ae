"""Lanes, tenants, limiters and queues by their names: found, or made when a first job needs them.

What is found or made is remembered, since ids never change; after a rollback everything is forgotten, since an id that
was rolled back is given out again.
"""

from collections.abc import Iterable
from typing import TypeAlias

from reprieve.core.job import Job
from reprieve.stores.sqlite.rows import Place, model_of
from reprieve.stores.sqlite.statements import Tx, statements

Names: TypeAlias = tuple[str, str, str, str, str, int]
"""Queue, tenant, task, dependency, group and priority."""


class Places:
    """What this process knows of lanes."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._by_names: dict[Names, int] = {}
        self._by_id: dict[int, Place] = {}
        self._models: dict[int, Job] = {}

    def forget(self) -> None:
        """Forget everything: a transaction was rolled back."""
        self._by_names.clear()
        self._by_id.clear()
        self._models.clear()

    def of_job(self, tx: Tx, job: Job) -> tuple[int, Place]:
        """Return the lane that a job belongs on, made where it is missing."""
        names = (job.queue, job.tenant, job.task, job.dependency, job.group, job.priority)
        lane = self._by_names.get(names)
        if lane is None:
            row = tx.execute(statements("places")["by_names"], (*names[1:], names[0])).fetchone()
            lane = self._make(tx, names) if row is None else self._remember(row)
        return lane, self._by_id[lane]

    def __getitem__(self, lane: int) -> Place:
        """Return a lane that was loaded."""
        return self._by_id[lane]

    def model(self, lane: int) -> Job:
        """Return the model of the jobs of a lane that was loaded."""
        model = self._models.get(lane)
        if model is None:
            model = self._models[lane] = model_of(self._by_id[lane])
        return model

    def at(self, tx: Tx, lane: int) -> Place:
        """Return a lane, loaded if it must be."""
        if lane not in self._by_id:
            self.load(tx, (lane,))
        return self._by_id[lane]

    def load(self, tx: Tx, lanes: Iterable[int]) -> None:
        """Get to know lanes by their ids."""
        missing = [lane for lane in set(lanes) if lane not in self._by_id]
        for start in range(0, len(missing), 500):
            part = missing[start : start + 500]
            placeholders = ",".join("?" * len(part))
            for row in tx.execute(
                statements("places")["by_ids"].replace("{placeholders}", placeholders), part
            ).fetchall():
                self._remember(row)

    def _remember(self, row: tuple[int, str, str, str, str, str, int, int, int, int, int, int]) -> int:
        lane, queue, tenant, task, dependency, group, priority, queue_id, tenant_id, *limiters = row
        place = Place(
            queue,
            tenant,
            task,
            dependency,
            group,
            priority,
            queue_id,
            tenant_id,
            tuple(limiter for limiter in limiters if limiter),
        )
        self._by_id[lane] = place
        self._by_names[queue, tenant, task, dependency, group, priority] = lane
        return lane

    def _make(self, tx: Tx, names: Names) -> int:
        queue, tenant, task, dependency, group, priority = names
        queue_id = queue_of(tx, queue)
        tenant_id = tenant_of(tx, queue_id, tenant)
        limiters = (
            limiter_of(tx, "task", task),
            limiter_of(tx, "dependency", dependency) if dependency else 0,
            limiter_of(tx, "group", group) if group else 0,
        )
        lane = tx.execute(
            statements("places")["make_lane"], (queue_id, tenant_id, task, dependency, group, priority, *limiters)
        ).lastrowid
        return self._remember((lane or 0, *names, queue_id, tenant_id, *limiters))


def queue_of(tx: Tx, name: str) -> int:
    """Return the id of a queue, made where it is missing."""
    sql = statements("places")
    found = tx.execute(sql["queue"], (name,)).fetchone()
    return int(found[0]) if found else _made(tx, sql["make_queue"], name, limiter_of(tx, "queue", name))


def tenant_of(tx: Tx, queue: int, name: str) -> int:
    """Return the id of a tenant of a queue, made where it is missing."""
    sql = statements("places")
    found = tx.execute(sql["tenant"], (queue, name)).fetchone()
    return int(found[0]) if found else _made(tx, sql["make_tenant"], queue, name)


def limiter_of(tx: Tx, subject: str, name: str) -> int:
    """Return the id of a limiter, made where it is missing."""
    sql = statements("places")
    found = tx.execute(sql["limiter"], (subject, name)).fetchone()
    return int(found[0]) if found else _made(tx, sql["make_limiter"], subject, name)


def _made(tx: Tx, statement: str, *values: object) -> int:
    return tx.execute(statement, values).lastrowid or 0
