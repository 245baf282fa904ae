"""Limiters, limits, weights and pauses: what the claim honours, changed and shown."""

from msgspec import UNSET

from reprieve.stores.limit_update import bits_of, carried, columns_of, limiters_of, tenants_of
from reprieve.stores.postgres.lane_ref import hash_id
from reprieve.stores.postgres.pool import Tx
from reprieve.stores.postgres.statements import statements
from reprieve.stores.protocol import LimitState, LimitUpdate, Subject


def update_limits(tx: Tx, update: LimitUpdate, now: int) -> None:
    """Change what one queue, tenant, task, dependency or group may do, under the claim lock."""
    sql = statements("update_limits")
    values = columns_of(update)
    if update.subject == "tenant":
        _make_queue(tx, update.queue)
        values["id"] = hash_id("tenant", update.queue, update.name)
        queue = {"queue": hash_id("queue", update.queue), "name": update.name}
        tx.execute(sql["make_tenant"], values | queue)
        values["weight"] = None if update.weight is UNSET else update.weight
        values["meter"] = carried(tx.one(sql["tenant_rate"], values), update, now)
        tx.execute(sql["tenant"], values)
        return
    if update.subject == "queue":
        _make_queue(tx, update.name)
        if update.pauses is not UNSET:
            pauses = bits_of(update.pauses)
            tx.execute(sql["pauses"], {"pauses": pauses, "id": hash_id("queue", update.name)})
    values["id"] = _make_limiter(tx, update.subject, update.name)
    values["meter"] = carried(tx.one(sql["limiter_rate"], values), update, now)
    tx.execute(sql["limiter"], values)


def _make_queue(tx: Tx, name: str) -> None:
    row = {"id": hash_id("queue", name), "name": name, "limiter": _make_limiter(tx, "queue", name)}
    tx.execute(statements("update_limits")["make_queue"], row)


def _make_limiter(tx: Tx, subject: str, name: str) -> int:
    number = hash_id("limiter", subject, name)
    tx.execute(statements("update_limits")["make_limiter"], {"id": number, "subject": subject, "name": name})
    return number


def limit_states(tx: Tx, subject: Subject, queue: str) -> list[LimitState]:
    """Show what is known of every queue, tenant, task, dependency or group."""
    sql = statements("update_limits")
    if subject == "tenant":
        return tenants_of(tx.all(sql["tenants"], {"queue": queue}))
    return limiters_of(subject, queue, tx.all(sql["limit_states"], {"subject": subject}))
