"""Limits, rates, weights and pauses: updates of the rows that the claim reads, and what these rows say."""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple, Protocol

import msgspec
from msgspec import UNSET

from reprieve.core.rate import Meter, Rate, carry
from reprieve.stores.protocol import LimitState, LimitUpdate, Subject
from reprieve.stores.sql.tx import SqlTx, Statements

_PAUSE_BITS: Final = {"schedule": 1, "retry": 2}

_decode_meter = msgspec.json.Decoder(Meter).decode


class LimitRows(Protocol):
    """Finds the row of a queue, tenant or limiter by its name, and creates it where it is missing."""

    def queue(self, name: str) -> int:
        """Return the id of a queue."""
        ...

    def tenant(self, queue: str, name: str) -> int:
        """Return the id of a tenant of a queue."""
        ...

    def limiter(self, subject: Subject, name: str, dependency: str) -> int:
        """Return the id of a limiter: what limits any subject but a tenant. `dependency` is of a tenant_dependency."""
        ...


class RateRow(NamedTuple):
    """The rate of a tenant or limiter, and what was granted under it."""

    rate_count: int | None
    rate_window: float | None
    meter: str


class TenantRow(NamedTuple):
    """A tenant, as the statement `tenants` returns it."""

    name: str
    queue: str
    running: int
    permits: int | None
    max_running: int | None
    rate_count: int | None
    rate_window: float | None
    weight: float
    served: int
    served_at: int | None
    streak: int
    rounds: int


class LimiterRow(NamedTuple):
    """A limiter, as the statement `limit_states` returns it."""

    name: str
    dependency: str
    running: int
    permits: int | None
    max_running: int | None
    rate_count: int | None
    rate_window: float | None
    pause_bits: int


def update_limits(tx: SqlTx, sql: Statements, rows: LimitRows, update: LimitUpdate, now: int) -> None:
    """Set what an update sets. The next claim looks again at every job that waits for the old limit."""
    columns = _columns_of(update)
    if update.subject == "tenant":
        columns["id"] = rows.tenant(update.queue, update.name)
        columns["weight"] = None if update.weight is UNSET else update.weight
        columns["meter"] = _carried(tx.one(sql["tenant_rate"], columns), update, now)
        tx.execute(sql["tenant"], columns)
        return
    if update.subject == "queue":
        queue = rows.queue(update.name)
        if update.pauses is not UNSET:
            bits = sum(_PAUSE_BITS[pause] for pause in set(update.pauses))
            tx.execute(sql["pauses"], {"pauses": bits, "id": queue})
    columns["id"] = rows.limiter(update.subject, update.name, update.dependency)
    columns["meter"] = _carried(tx.one(sql["limiter_rate"], columns), update, now)
    tx.execute(sql["limiter"], columns)


def limit_states(tx: SqlTx, sql: Statements, subject: Subject, queue: str) -> list[LimitState]:
    """Return the limits and the use of every queue, tenant, task, dependency or group."""
    if subject == "tenant":
        return [_tenant(TenantRow._make(row)) for row in tx.all(sql["tenants"], {"queue": queue})]
    rows: Iterable[LimiterRow] = map(LimiterRow._make, tx.all(sql["limit_states"], {"subject": subject}))
    return [_limiter(subject, row) for row in rows if subject != "queue" or queue in ("", row.name)]


def _columns_of(update: LimitUpdate) -> dict[str, Any]:
    """Return what an update sets, and for each column whether it does."""
    rate = None if update.rate is UNSET else update.rate
    return {
        "sets_permits": update.permits is not UNSET,
        "permits": None if update.permits is UNSET else update.permits,
        "sets_max_running": update.max_running is not UNSET,
        "max_running": None if update.max_running is UNSET else update.max_running,
        "sets_rate": update.rate is not UNSET,
        "rate_count": None if rate is None else rate.count,
        "rate_window": None if rate is None else rate.window,
    }


def _carried(row: tuple[Any, ...] | None, update: LimitUpdate, now: int) -> str:
    """Return the meter under the new rate: setting a rate again does not forget what was granted."""
    stored = RateRow(None, None, "[]") if row is None else RateRow(*row)
    old = _rate(stored.rate_count, stored.rate_window)
    new = None if update.rate is UNSET else update.rate
    if old is None or new is None:
        return "[]"
    return msgspec.json.encode(carry(old, _decode_meter(stored.meter), new, now)).decode()


def _tenant(row: TenantRow) -> LimitState:
    return LimitState(
        subject="tenant",
        name=row.name,
        queue=row.queue,
        running=row.running,
        permits=row.permits,
        max_running=row.max_running,
        rate=_rate(row.rate_count, row.rate_window),
        weight=row.weight,
        served=row.served,
        served_at=row.served_at,
        streak=row.streak,
        rounds=row.rounds,
    )


def _limiter(subject: Subject, row: LimiterRow) -> LimitState:
    return LimitState(
        subject=subject,
        name=row.name,
        dependency=row.dependency,
        running=row.running,
        permits=row.permits,
        max_running=row.max_running,
        rate=_rate(row.rate_count, row.rate_window),
        pauses=tuple(pause for pause, bit in _PAUSE_BITS.items() if row.pause_bits & bit),
    )


def _rate(count: int | None, window: float | None) -> Rate | None:
    return None if count is None or window is None else Rate(count=count, window=window)
