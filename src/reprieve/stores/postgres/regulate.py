"""Gates, limits, weights and pauses: what the claim honours, changed and shown."""

from typing import Literal

import msgspec
from msgspec import UNSET

from reprieve.core.rate import Meter, Rate, carry
from reprieve.stores.postgres.crew import Tx
from reprieve.stores.postgres.rows import number_of
from reprieve.stores.postgres.statements import statements
from reprieve.stores.protocol import Gauge, Regulation, Subject

_PAUSES: dict[Literal["schedule", "retry"], int] = {"schedule": 1, "retry": 2}


def regulate(tx: Tx, regulation: Regulation, now: int) -> None:
    """Change what one queue, tenant, task, dependency or group may do, in a turn of ours; what waits is looked at."""
    sql = statements("regulate")
    values = _values(regulation)
    if regulation.subject == "tenant":
        _make_queue(tx, regulation.queue)
        values["id"] = number_of("tenant", regulation.queue, regulation.name)
        queue = {"queue": number_of("queue", regulation.queue), "name": regulation.name}
        tx.execute(sql["make_tenant"], values | queue)
        values["weight"] = None if regulation.weight is UNSET else regulation.weight
        values["meter"] = _carried(tx.one(sql["tenant_rate"], values), regulation, now)
        tx.execute(sql["tenant"], values)
        return
    if regulation.subject == "queue":
        _make_queue(tx, regulation.name)
        if regulation.pauses is not UNSET:
            pauses = sum(_PAUSES[pause] for pause in set(regulation.pauses))
            tx.execute(sql["pauses"], {"pauses": pauses, "id": number_of("queue", regulation.name)})
    values["id"] = _make_gate(tx, regulation.subject, regulation.name)
    values["meter"] = _carried(tx.one(sql["gate_rate"], values), regulation, now)
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
            ) in tx.all(sql["tenants"], {"queue": queue})
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
        for name, running, permits, max_running, count, window, pauses in tx.all(sql["gauges"], {"subject": subject})
        if subject != "queue" or queue in ("", name)
    ]


def _values(regulation: Regulation) -> dict[str, object]:
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


def _carried(row: tuple[int | None, float | None, str] | None, regulation: Regulation, now: int) -> str:
    """Answer the meter under the new rate: setting a rate again does not forget what was granted."""
    old = _rate(row[0], row[1]) if row else None
    new = None if regulation.rate is UNSET else regulation.rate
    if row is None or old is None or new is None:
        return "[]"
    meter = msgspec.json.decode(row[2], type=Meter)
    return msgspec.json.encode(carry(old, meter, new, now)).decode()


def _rate(count: int | None, window: float | None) -> Rate | None:
    return None if count is None or window is None else Rate(count=count, window=window)
