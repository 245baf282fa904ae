"""Limiters, limits, weights and pauses: what the claim honours, changed and shown."""

import sqlite3

from msgspec import UNSET

from reprieve.stores.limit_update import bits_of, carried, columns_of, limiters_of, tenants_of
from reprieve.stores.protocol import LimitState, LimitUpdate, Subject
from reprieve.stores.sqlite.lane_cache import limiter_of, queue_of, tenant_of
from reprieve.stores.sqlite.statements import statements


def update_limits(tx: sqlite3.Connection, update: LimitUpdate, now: int) -> None:
    """Change what one queue, tenant, task, dependency or group may do. Whatever waits is looked at again."""
    sql = statements("update_limits")
    parameters = columns_of(update)
    if update.subject == "tenant":
        parameters["id"] = tenant_of(tx, queue_of(tx, update.queue), update.name)
        parameters["weight"] = None if update.weight is UNSET else update.weight
        parameters["meter"] = carried(tx.execute(sql["tenant_rate"], parameters).fetchone(), update, now)
        tx.execute(sql["tenant"], parameters)
        return
    if update.subject == "queue":
        queue = queue_of(tx, update.name)
        if update.pauses is not UNSET:
            tx.execute(sql["pauses"], (bits_of(update.pauses), queue))
    parameters["id"] = limiter_of(tx, update.subject, update.name)
    parameters["meter"] = carried(tx.execute(sql["limiter_rate"], parameters).fetchone(), update, now)
    tx.execute(sql["limiter"], parameters)


def limit_states(tx: sqlite3.Connection, subject: Subject, queue: str) -> list[LimitState]:
    """Show what is known of every queue, tenant, task, dependency or group."""
    sql = statements("update_limits")
    if subject == "tenant":
        return tenants_of(tx.execute(sql["tenants"], (queue, queue)))
    return limiters_of(subject, queue, tx.execute(sql["limit_states"], (subject,)))
