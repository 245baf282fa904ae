"""Shelves, tenants, gates and queues by their names: found, or made when a first job needs them.

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
    """What this process knows of shelves."""

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
        """Answer the shelf that a job belongs on, made where it is missing."""
        names = (job.queue, job.tenant, job.task, job.dependency, job.group, job.priority)
        shelf = self._by_names.get(names)
        if shelf is None:
            row = tx.execute(statements("places")["by_names"], (*names[1:], names[0])).fetchone()
            shelf = self._make(tx, names) if row is None else self._remember(row)
        return shelf, self._by_id[shelf]

    def __getitem__(self, shelf: int) -> Place:
        """Answer a shelf that was loaded."""
        return self._by_id[shelf]

    def model(self, shelf: int) -> Job:
        """Answer the model of the jobs of a shelf that was loaded."""
        model = self._models.get(shelf)
        if model is None:
            model = self._models[shelf] = model_of(self._by_id[shelf])
        return model

    def at(self, tx: Tx, shelf: int) -> Place:
        """Answer a shelf, loaded if it must be."""
        if shelf not in self._by_id:
            self.load(tx, (shelf,))
        return self._by_id[shelf]

    def load(self, tx: Tx, shelves: Iterable[int]) -> None:
        """Get to know shelves by their ids."""
        missing = [shelf for shelf in set(shelves) if shelf not in self._by_id]
        for start in range(0, len(missing), 500):
            part = missing[start : start + 500]
            marks = ",".join("?" * len(part))
            for row in tx.execute(statements("places")["by_ids"].replace("{marks}", marks), part).fetchall():
                self._remember(row)

    def _remember(self, row: tuple[int, str, str, str, str, str, int, int, int, int, int, int]) -> int:
        shelf, queue, tenant, task, dependency, group, priority, queue_id, tenant_id, *gates = row
        place = Place(
            queue, tenant, task, dependency, group, priority, queue_id, tenant_id, tuple(gate for gate in gates if gate)
        )
        self._by_id[shelf] = place
        self._by_names[queue, tenant, task, dependency, group, priority] = shelf
        return shelf

    def _make(self, tx: Tx, names: Names) -> int:
        queue, tenant, task, dependency, group, priority = names
        queue_id = queue_of(tx, queue)
        tenant_id = tenant_of(tx, queue_id, tenant)
        gates = (
            gate_of(tx, "task", task),
            gate_of(tx, "dependency", dependency) if dependency else 0,
            gate_of(tx, "group", group) if group else 0,
        )
        shelf = tx.execute(
            statements("places")["make_shelf"], (queue_id, tenant_id, task, dependency, group, priority, *gates)
        ).lastrowid
        return self._remember((shelf or 0, *names, queue_id, tenant_id, *gates))


def queue_of(tx: Tx, name: str) -> int:
    """Answer the id of a queue, made where it is missing."""
    sql = statements("places")
    found = tx.execute(sql["queue"], (name,)).fetchone()
    return int(found[0]) if found else _made(tx, sql["make_queue"], name, gate_of(tx, "queue", name))


def tenant_of(tx: Tx, queue: int, name: str) -> int:
    """Answer the id of a tenant of a queue, made where it is missing."""
    sql = statements("places")
    found = tx.execute(sql["tenant"], (queue, name)).fetchone()
    return int(found[0]) if found else _made(tx, sql["make_tenant"], queue, name)


def gate_of(tx: Tx, subject: str, name: str) -> int:
    """Answer the id of a gate, made where it is missing."""
    sql = statements("places")
    found = tx.execute(sql["gate"], (subject, name)).fetchone()
    return int(found[0]) if found else _made(tx, sql["make_gate"], subject, name)


def _made(tx: Tx, statement: str, *values: object) -> int:
    return tx.execute(statement, values).lastrowid or 0
