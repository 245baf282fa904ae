"""Limit states: what rows say about the limits and the use of names, a page at a time."""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from reprieve.stores.limit_fields import own_fields, pauses_of
from reprieve.stores.name_cursor import AFTER_ALL_NAMES, NEXT, read_cursor, write_cursor
from reprieve.stores.protocol import LimitPage, LimitState, Subject
from reprieve.stores.sql.meters import rate_of
from reprieve.stores.sql.tx import SqlTx, Statements

_LANES_OF = {
    "queue": "lane.queue = queue.id",
    "task": "lane.task_limiter = limiter.id",
    "dependency": "lane.dependency_limiter = limiter.id and lane.dependency_limiter <> 0",
    "group": "lane.group_limiter = limiter.id and lane.group_limiter <> 0",
    "tenant_dependency": "lane.pair_limiter = limiter.id and lane.pair_limiter <> 0",
}
"""Which lanes have the jobs of a limiter."""

Position: TypeAlias = tuple[str, str, str]
"""The first queue, name and dependency that a page may have."""


class TenantRow(NamedTuple):
    """A tenant, as the statement `tenants` returns it."""

    name: str
    queue: str
    own: int
    ready: int
    oldest_at: int | None
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

    def state(self) -> LimitState:
        """Return it as a limit state."""
        return LimitState(
            subject="tenant",
            name=self.name,
            queue=self.queue,
            own=own_fields(self.own),
            ready=self.ready,
            oldest_at=self.oldest_at,
            running=self.running,
            permits=self.permits,
            max_running=self.max_running,
            rate=rate_of(self.rate_count, self.rate_window),
            weight=self.weight,
            served=self.served,
            served_at=self.served_at,
            streak=self.streak,
            rounds=self.rounds,
        )


class LimiterRow(NamedTuple):
    """A limiter, as the statement `limit_states` returns it."""

    name: str
    dependency: str
    own: int
    ready: int
    oldest_at: int | None
    running: int
    permits: int | None
    max_running: int | None
    rate_count: int | None
    rate_window: float | None
    pause_bits: int

    def state(self, subject: Subject) -> LimitState:
        """Return it as a limit state."""
        return LimitState(
            subject=subject,
            name=self.name,
            dependency=self.dependency,
            own=own_fields(self.own),
            ready=self.ready,
            oldest_at=self.oldest_at,
            running=self.running,
            permits=self.permits,
            max_running=self.max_running,
            rate=rate_of(self.rate_count, self.rate_window),
            pauses=pauses_of(self.pause_bits),
        )


class PageOfNames(NamedTuple):
    """Which names a page is to have."""

    subject: Subject
    queue: str
    """The queue, or that of the tenants; empty for all."""
    prefix: str
    limit: int


def limit_states(tx: SqlTx, sql: Statements, wanted: PageOfNames, cursor: str) -> LimitPage:
    """Return a page of limit states, in the order of queue, name and dependency."""
    start: Position = read_cursor(cursor)
    reader = _tenants if wanted.subject == "tenant" else _limiters
    found: list[LimitState] = []
    for state in reader(tx, sql, wanted, start):
        if len(found) == wanted.limit:
            last = found[-1]
            return LimitPage(states=tuple(found), cursor=write_cursor((last.queue, last.name, last.dependency + NEXT)))
        found.append(state)
    return LimitPage(states=tuple(found))


def _range(wanted: PageOfNames, start: str) -> dict[str, object]:
    # One more than the page has tells whether there are others.
    return {"start": max(start, wanted.prefix), "stop": wanted.prefix + AFTER_ALL_NAMES, "limit": wanted.limit + 1}


def _tenants(tx: SqlTx, sql: Statements, wanted: PageOfNames, start: Position) -> Iterator[LimitState]:
    queues = [wanted.queue] if wanted.queue else sorted(name for (name,) in tx.all(sql["queues"]))
    queue, name, after = start
    for current in queues:
        if current >= queue:
            named = _range(wanted, name + after if current == queue else "")
            for row in tx.all(sql["tenants"], {"queue": current, **named}):
                yield TenantRow._make(row).state()


def _limiters(tx: SqlTx, sql: Statements, wanted: PageOfNames, start: Position) -> Iterator[LimitState]:
    _, name, dependency = start
    named = _range(wanted, name)
    named |= {"subject": wanted.subject, "start_dependency": dependency if named["start"] == name else ""}
    if wanted.subject == "queue" and wanted.queue:
        named |= {"start": max(str(named["start"]), wanted.queue), "stop": min(str(named["stop"]), wanted.queue + NEXT)}
    for row in tx.all(sql["limit_states"].replace("{lanes}", _LANES_OF[wanted.subject]), named):
        yield LimiterRow._make(row).state(wanted.subject)
