"""Shelves, tenants, gates and queues by their names: found, or made when a first job needs them.

What is found or made is remembered, since ids never change; after a rollback everything is forgotten, since an id that
was rolled back is given out again.
"""

from collections.abc import Iterable
from typing import TypeAlias

from reprieve.core.job import Job
from reprieve.stores.sqlite.rows import Place
from reprieve.stores.sqlite.statements import Tx

Names: TypeAlias = tuple[str, str, str, str, str, int]
"""Queue, tenant, task, dependency, group and priority."""


class Places:
    """What this process knows of shelves."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._by_names: dict[Names, int] = {}
        self._by_id: dict[int, Place] = {}

    def forget(self) -> None:
        """Forget everything: a transaction was rolled back."""
        self._by_names.clear()
        self._by_id.clear()

    def of_job(self, tx: Tx, job: Job) -> tuple[int, Place]:
        """Answer the shelf that a job belongs on, made where it is missing."""
        names = (job.queue, job.tenant, job.task, job.dependency, job.group, job.priority)
        shelf = self._by_names.get(names)
        if shelf is None:
            row = tx.execute(_LOAD + _BY_NAMES, names).fetchone()
            shelf = self._make(tx, names) if row is None else self._remember(row)
        return shelf, self._by_id[shelf]

    def __getitem__(self, shelf: int) -> Place:
        """Answer a shelf that was loaded."""
        return self._by_id[shelf]

    def load(self, tx: Tx, shelves: Iterable[int]) -> None:
        """Get to know shelves by their ids."""
        missing = [shelf for shelf in set(shelves) if shelf not in self._by_id]
        for start in range(0, len(missing), 500):
            part = missing[start : start + 500]
            marks = ",".join("?" * len(part))
            for row in tx.execute(_LOAD + f" where shelf.id in ({marks})", part):
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
        shelf = tx.execute(_INSERT_SHELF, (queue_id, tenant_id, task, dependency, group, priority, *gates)).lastrowid
        return self._remember((shelf or 0, *names, queue_id, tenant_id, *gates))


_LOAD = """
select shelf.id, queue.name, tenant.name, shelf.task, shelf.dependency, shelf."group", shelf.priority,
       shelf.queue, shelf.tenant, shelf.task_gate, shelf.dependency_gate, shelf.group_gate
from shelf join queue on queue.id = shelf.queue join tenant on tenant.id = shelf.tenant
"""
_BY_NAMES = """
where shelf.tenant = (select t.id from queue as q join tenant as t on t.queue = q.id where q.name = ? and t.name = ?)
  and shelf.task = ? and shelf.dependency = ? and shelf."group" = ? and shelf.priority = ?
"""
_INSERT_SHELF = """
insert into shelf (queue, tenant, task, dependency, "group", priority, task_gate, dependency_gate, group_gate)
values (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


def queue_of(tx: Tx, name: str) -> int:
    """Answer the id of a queue, made where it is missing."""
    found = tx.execute("select id from queue where name = ?", (name,)).fetchone()
    if found is not None:
        return int(found[0])
    gate = gate_of(tx, "queue", name)
    return tx.execute("insert into queue (name, gate) values (?, ?)", (name, gate)).lastrowid or 0


def tenant_of(tx: Tx, queue: int, name: str) -> int:
    """Answer the id of a tenant of a queue, made where it is missing."""
    found = tx.execute("select id from tenant where queue = ? and name = ?", (queue, name)).fetchone()
    if found is not None:
        return int(found[0])
    return tx.execute("insert into tenant (queue, name) values (?, ?)", (queue, name)).lastrowid or 0


def gate_of(tx: Tx, subject: str, name: str) -> int:
    """Answer the id of a gate, made where it is missing."""
    found = tx.execute("select id from gate where subject = ? and name = ?", (subject, name)).fetchone()
    if found is not None:
        return int(found[0])
    return tx.execute("insert into gate (subject, name) values (?, ?)", (subject, name)).lastrowid or 0
