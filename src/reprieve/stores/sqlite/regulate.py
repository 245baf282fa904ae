"""Gates, limits, weights and pauses: what the claim honours, changed and shown."""

import sqlite3
from typing import Literal

import msgspec
from msgspec import UNSET

from reprieve.core.rate import Meter, Rate, carry
from reprieve.stores.protocol import Gauge, Regulation, Subject
from reprieve.stores.sqlite.places import gate_of, queue_of, tenant_of
from reprieve.stores.sqlite.statements import statements

_PAUSES: dict[Literal["schedule", "retry"], int] = {"schedule": 1, "retry": 2}


def regulate(tx: sqlite3.Connection, regulation: Regulation, now: int) -> None:
    """Change what one queue, tenant, task, dependency or group may do. Whatever waits is looked at again."""
    sql = statements("regulate")
    parameters = _parameters(regulation)
    if regulation.subject == "tenant":
        parameters["id"] = tenant_of(tx, queue_of(tx, regulation.queue), regulation.name)
        parameters["weight"] = None if regulation.weight is UNSET else regulation.weight
        parameters["meter"] = _carried(tx.execute(sql["tenant_rate"], parameters).fetchone(), regulation, now)
        tx.execute(sql["tenant"], parameters)
        return
    if regulation.subject == "queue":
        queue = queue_of(tx, regulation.name)
        if regulation.pauses is not UNSET:
            tx.execute(sql["pauses"], (sum(_PAUSES[pause] for pause in set(regulation.pauses)), queue))
    parameters["id"] = gate_of(tx, regulation.subject, regulation.name)
    parameters["meter"] = _carried(tx.execute(sql["gate_rate"], parameters).fetchone(), regulation, now)
    tx.execute(sql["gate"], parameters)


def gauges(tx: sqlite3.Connection, subject: Subject, queue: str) -> list[Gauge]:
    """Show what is known of every queue, tenant, task, dependency or group."""
    sql = statements("regulate")
    if subject == "tenant":
        return [
            Gauge(
                subject=subject,
                name=name,
                queue=queue_name,
                running=running,
                permits=permits,
                max_running=max_running,
                rate=_rate(count, window),
                weight=weight,
                served=served,
                served_at=served_at,
                streak=streak,
                rounds=rounds,
            )
            for (
                name,
                queue_name,
                running,
                permits,
                max_running,
                count,
                window,
                weight,
                served,
                served_at,
                streak,
                rounds,
            ) in tx.execute(sql["tenants"], (queue, queue))
        ]
    return [
        Gauge(
            subject=subject,
            name=name,
            running=running,
            permits=permits,
            max_running=max_running,
            rate=_rate(count, window),
            pauses=tuple(pause for pause, bit in _PAUSES.items() if pauses & bit),
        )
        for name, running, permits, max_running, count, window, pauses in tx.execute(sql["gauges"], (subject,))
        if subject != "queue" or queue in ("", name)
    ]


def _parameters(regulation: Regulation) -> dict[str, object]:
    rate = None if regulation.rate is UNSET else regulation.rate
    return {
        "sets_permits": regulation.permits is not UNSET,
        "permits": None if regulation.permits is UNSET else regulation.permits,
        "sets_max_running": regulation.max_running is not UNSET,
        "max_running": None if regulation.max_running is UNSET else regulation.max_running,
        "sets_rate": regulation.rate is not UNSET,
        "rate_count": None if rate is None else rate.count,
        "rate_window": None if rate is None else rate.window,
    }


def _carried(row: tuple[int | None, float | None, str], regulation: Regulation, now: int) -> str:
    """Answer the meter under the new rate: setting a rate again does not forget what was granted."""
    old = _rate(row[0], row[1])
    new = None if regulation.rate is UNSET else regulation.rate
    if old is None or new is None:
        return "[]"
    meter = msgspec.json.decode(row[2], type=Meter)
    return msgspec.json.encode(carry(old, meter, new, now)).decode()


def _rate(count: int | None, window: float | None) -> Rate | None:
    return None if count is None or window is None else Rate(count=count, window=window)
