"""Gates, limits, weights and pauses: what the claim honours, changed and shown."""

import sqlite3

from msgspec import UNSET

from reprieve.stores.protocol import Gauge, Regulation, Subject
from reprieve.stores.regulation import bits_of, carried, columns_of, gates_of, tenants_of
from reprieve.stores.sqlite.places import gate_of, queue_of, tenant_of
from reprieve.stores.sqlite.statements import statements


def regulate(tx: sqlite3.Connection, regulation: Regulation, now: int) -> None:
    """Change what one queue, tenant, task, dependency or group may do. Whatever waits is looked at again."""
    sql = statements("regulate")
    parameters = columns_of(regulation)
    if regulation.subject == "tenant":
        parameters["id"] = tenant_of(tx, queue_of(tx, regulation.queue), regulation.name)
        parameters["weight"] = None if regulation.weight is UNSET else regulation.weight
        parameters["meter"] = carried(tx.execute(sql["tenant_rate"], parameters).fetchone(), regulation, now)
        tx.execute(sql["tenant"], parameters)
        return
    if regulation.subject == "queue":
        queue = queue_of(tx, regulation.name)
        if regulation.pauses is not UNSET:
            tx.execute(sql["pauses"], (bits_of(regulation.pauses), queue))
    parameters["id"] = gate_of(tx, regulation.subject, regulation.name)
    parameters["meter"] = carried(tx.execute(sql["gate_rate"], parameters).fetchone(), regulation, now)
    tx.execute(sql["gate"], parameters)


def gauges(tx: sqlite3.Connection, subject: Subject, queue: str) -> list[Gauge]:
    """Show what is known of every queue, tenant, task, dependency or group."""
    sql = statements("regulate")
    if subject == "tenant":
        return tenants_of(tx.execute(sql["tenants"], (queue, queue)))
    return gates_of(subject, queue, tx.execute(sql["gauges"], (subject,)))
