"""Gates, limits, weights and pauses: what the claim honours, changed and shown."""

from msgspec import UNSET

from reprieve.stores.postgres.crew import Tx
from reprieve.stores.postgres.rows import number_of
from reprieve.stores.postgres.statements import statements
from reprieve.stores.protocol import Gauge, Regulation, Subject
from reprieve.stores.regulation import bits_of, carried, columns_of, gates_of, tenants_of


def regulate(tx: Tx, regulation: Regulation, now: int) -> None:
    """Change what one queue, tenant, task, dependency or group may do, in a turn of ours; what waits is looked at."""
    sql = statements("regulate")
    values = columns_of(regulation)
    if regulation.subject == "tenant":
        _make_queue(tx, regulation.queue)
        values["id"] = number_of("tenant", regulation.queue, regulation.name)
        queue = {"queue": number_of("queue", regulation.queue), "name": regulation.name}
        tx.execute(sql["make_tenant"], values | queue)
        values["weight"] = None if regulation.weight is UNSET else regulation.weight
        values["meter"] = carried(tx.one(sql["tenant_rate"], values), regulation, now)
        tx.execute(sql["tenant"], values)
        return
    if regulation.subject == "queue":
        _make_queue(tx, regulation.name)
        if regulation.pauses is not UNSET:
            pauses = bits_of(regulation.pauses)
            tx.execute(sql["pauses"], {"pauses": pauses, "id": number_of("queue", regulation.name)})
    values["id"] = _make_gate(tx, regulation.subject, regulation.name)
    values["meter"] = carried(tx.one(sql["gate_rate"], values), regulation, now)
    tx.execute(sql["gate"], values)


def _make_queue(tx: Tx, name: str) -> None:
    row = {"id": number_of("queue", name), "name": name, "gate": _make_gate(tx, "queue", name)}
    tx.execute(statements("regulate")["make_queue"], row)


def _make_gate(tx: Tx, subject: str, name: str) -> int:
    number = number_of("gate", subject, name)
    tx.execute(statements("regulate")["make_gate"], {"id": number, "subject": subject, "name": name})
    return number


def gauges(tx: Tx, subject: Subject, queue: str) -> list[Gauge]:
    """Show what is known of every queue, tenant, task, dependency or group."""
    sql = statements("regulate")
    if subject == "tenant":
        return tenants_of(tx.all(sql["tenants"], {"queue": queue}))
    return gates_of(subject, queue, tx.all(sql["gauges"], {"subject": subject}))
