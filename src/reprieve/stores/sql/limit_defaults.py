"""Defaults of limits.

A default is written to the rows of all names that have no limit of their own, so that a claim need not look for it. A
row that is created later begins with it.
"""

from typing import Any, NamedTuple, Protocol

from msgspec import UNSET

from reprieve.core.rate import Rate
from reprieve.stores.limit_fields import OWN_BITS, inherited_bits, owned_bits, pause_bits, pauses_of, set_fields
from reprieve.stores.protocol import LimitUpdate, Subject
from reprieve.stores.sql.meters import RateRow, carried, kept_until, rate_of
from reprieve.stores.sql.tx import SqlTx, Statements


class DefaultRow(NamedTuple):
    """A default, as the statement `defaults` returns it."""

    scope: str
    """The queue of tenants, or the dependency of pairs; empty for all."""
    own: int = 0
    """Fields of this default; the others are those of the default of all."""
    permits: int | None = None
    max_running: int | None = None
    rate_count: int | None = None
    rate_window: float | None = None
    pauses: int = 0

    @property
    def rate(self) -> Rate | None:
        """Its rate."""
        return rate_of(self.rate_count, self.rate_window)

    def updated(self, update: LimitUpdate, general: "DefaultRow") -> "DefaultRow":
        """Return it after an update; `general` is the default of all."""
        own = (self.own | owned_bits(update)) & ~inherited_bits(update)
        changes: dict[str, Any] = {}
        for field in set_fields(update):
            value = getattr(update, field)
            if value == "default":
                continue
            if field == "rate":
                changes["rate_count"] = None if value is None else value.count
                changes["rate_window"] = None if value is None else value.window
            else:
                changes[field] = pause_bits(value) if field == "pauses" else value
        return self._replace(own=own, **changes).inheriting(general)

    def inheriting(self, general: "DefaultRow") -> "DefaultRow":
        """Return it with the fields of the default of all where it has none of its own."""
        changes: dict[str, Any] = {}
        for field, bit in OWN_BITS.items():
            for column in ("rate_count", "rate_window") if field == "rate" else (field,):
                if not self.own & bit:
                    changes[column] = getattr(general, column)
        return self._replace(**changes)

    def update(self, subject: Subject) -> LimitUpdate:
        """Return the update that sets it."""
        return LimitUpdate(
            subject=subject,
            name=None,
            queue=self.scope if subject == "tenant" else "",
            dependency=self.scope if subject == "tenant_dependency" else "",
            permits=self.permits if self.own & OWN_BITS["permits"] else UNSET,
            max_running=self.max_running if self.own & OWN_BITS["max_running"] else UNSET,
            rate=self.rate if self.own & OWN_BITS["rate"] else UNSET,
            pauses=pauses_of(self.pauses) if self.own & OWN_BITS["pauses"] else UNSET,
        )


class PairRows(Protocol):
    """Creates the limiters of pairs."""

    def make_pairs(self, dependency: str) -> None:
        """Create the limiter of each tenant that has a lane of a dependency, or of any if it is empty."""
        ...


def read_defaults(tx: SqlTx, sql: Statements, subject: Subject) -> dict[str, DefaultRow]:
    """Return the defaults of a subject, by their scopes."""
    return {row[0]: DefaultRow._make(row) for row in tx.all(sql["defaults"], {"subject": subject})}


def default_of(tx: SqlTx, sql: Statements, subject: Subject, scope: str) -> DefaultRow:
    """Return the default of the names of a scope."""
    defaults = read_defaults(tx, sql, subject)
    return defaults.get(scope) or defaults.get("") or DefaultRow(scope)


def set_default(tx: SqlTx, sql: Statements, rows: PairRows, update: LimitUpdate, now: int) -> None:
    """Set a default, and with it the limits of all names that have none of their own."""
    subject, scope = update.subject, update.queue or update.dependency
    defaults = read_defaults(tx, sql, subject)
    general = defaults.get("") or DefaultRow("")
    before = defaults.get(scope) or DefaultRow(scope)
    after = before.updated(update, general if scope else DefaultRow(""))
    changed = [after]
    if not scope:
        changed += [row.inheriting(after) for row in defaults.values() if row.scope]
    for row in changed:
        named = {"subject": subject, **row._asdict()}
        tx.execute(sql["set_default" if row.own else "drop_default"], named)
    if subject == "tenant_dependency" and after.own:
        rows.make_pairs(scope)
    for row in changed:
        has_new_rate = row.rate != defaults.get(row.scope, general).rate
        _write_to_names(tx, sql, subject, row, now, has_new_rate=has_new_rate)


def _write_to_names(
    tx: SqlTx, sql: Statements, subject: Subject, row: DefaultRow, now: int, *, has_new_rate: bool
) -> None:
    table = "tenant" if subject == "tenant" else "limiter"
    named = {"subject": subject, **row._asdict(), "kept_until": kept_until(row.rate, now)}
    for name, *rate in tx.all(sql[f"{table}_meters"], named) if has_new_rate else ():
        tx.execute(sql[f"{table}_meter"], {"id": name, "meter": carried(RateRow(*rate), row.rate, now)})
    tx.execute(sql[f"{table}s_by_default"], named)
    if subject == "queue":
        tx.execute(sql["pauses_by_default"], named)
