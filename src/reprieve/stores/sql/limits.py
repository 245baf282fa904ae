"""Limits, rates, weights and pauses: updates of the rows that the claim reads, and what these rows say."""

from typing import Any, Protocol, get_args

from msgspec import UNSET

from reprieve.core.audit import AuditEntry, Author, Automatic
from reprieve.stores.limit_audit import LimitsBefore, limit_entry
from reprieve.stores.limit_fields import inherited_bits, owned_bits, pause_bits
from reprieve.stores.protocol import LimitUpdate, Subject
from reprieve.stores.sql.limit_defaults import DefaultRow, PairRows, default_of, read_defaults, set_default
from reprieve.stores.sql.meters import RateRow, carried, kept_until, rate_of
from reprieve.stores.sql.tx import SqlTx, Statements


class LimitRows(PairRows, Protocol):
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


def update_limits(tx: SqlTx, sql: Statements, rows: LimitRows, update: LimitUpdate, now: int) -> None:
    """Set what an update sets. The next claim looks again at every job that waits for the old limit."""
    if update.name is None:
        set_default(tx, sql, rows, update, now)
        return
    default = DefaultRow("")
    if inherited_bits(update):
        default = default_of(tx, sql, update.subject, update.queue or update.dependency)
    columns = _columns_of(update, default)
    if update.subject == "tenant":
        columns["id"] = rows.tenant(update.queue, update.name)
        columns["weight"] = None if update.weight is UNSET else update.weight
        columns |= _meter(tx.one(sql["tenant_rate"], columns), columns, now)
        tx.execute(sql["tenant"], columns)
        return
    if update.subject == "queue":
        queue = rows.queue(update.name)
        if update.pauses is not UNSET:
            bits = default.pauses if update.pauses == "default" else pause_bits(update.pauses)
            tx.execute(sql["pauses"], {"pauses": bits, "id": queue})
    columns["id"] = rows.limiter(update.subject, update.name, update.dependency)
    columns |= _meter(tx.one(sql["limiter_rate"], columns), columns, now)
    tx.execute(sql["limiter"], columns)


def audit_entries(tx: SqlTx, sql: Statements, update: LimitUpdate, now: int, author: Author) -> list[AuditEntry]:
    """Return the audit entry of an update to be made; none if no person makes it, or if it changes nothing."""
    if isinstance(author, Automatic):
        return []
    if update.name is None:
        row = tx.one(sql["default_before"], {"subject": update.subject, "scope": update.queue or update.dependency})
    elif update.subject == "tenant":
        row = tx.one(sql["tenant_before"], {"name": update.name, "queue": update.queue})
    else:
        names = {"subject": update.subject, "name": update.name, "dependency": update.dependency}
        row = tx.one(sql["limiter_before"], names)
    entry = limit_entry(update, now, author, LimitsBefore(*row or ()).facts())
    return [] if entry is None else [entry]


def limit_defaults(tx: SqlTx, sql: Statements) -> list[LimitUpdate]:
    """Return the defaults that are set."""
    subjects: tuple[Subject, ...] = get_args(Subject)
    return [row.update(subject) for subject in subjects for row in read_defaults(tx, sql, subject).values()]


def _columns_of(update: LimitUpdate, default: DefaultRow) -> dict[str, Any]:
    """Return what an update sets, and for each column whether it does."""
    rate = default.rate if update.rate == "default" else None if update.rate is UNSET else update.rate
    columns: dict[str, Any] = {
        "owned": owned_bits(update),
        "inherited": inherited_bits(update),
        "sets_rate": update.rate is not UNSET,
        "rate_count": None if rate is None else rate.count,
        "rate_window": None if rate is None else rate.window,
    }
    for field in ("permits", "max_running"):
        value = getattr(update, field)
        columns[f"sets_{field}"] = value is not UNSET
        columns[field] = getattr(default, field) if value == "default" else None if value is UNSET else value
    return columns


def _meter(row: tuple[Any, ...] | None, columns: dict[str, Any], now: int) -> dict[str, Any]:
    """Return what was granted, under the new rate, and until when it counts."""
    rate = rate_of(columns["rate_count"], columns["rate_window"])
    meter = carried(RateRow(*row or (None, None, "[]")), rate, now)
    return {"meter": meter, "kept_until": 0 if meter == "[]" else kept_until(rate, now)}
