"""The operations of the protocol that the stores on SQL databases have in common: most of those that only read."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from reprieve.core.change import Change
from reprieve.core.events import Event
from reprieve.core.series import SeriesSubject
from reprieve.stores import search
from reprieve.stores.dead_tally import is_of_causes, tally_dead
from reprieve.stores.event_page import events_of_jobs
from reprieve.stores.places import Place, PlaceKey, Wanted
from reprieve.stores.protocol import (
    MAX_TALLIED,
    AuditFilter,
    AuditPage,
    CausePage,
    CauseRequest,
    ChangeResult,
    Entry,
    EntryChanges,
    EntryPage,
    EventPage,
    EventQuery,
    FailureGroup,
    Filter,
    LimitPage,
    LimitUpdate,
    NameSubject,
    Order,
    Page,
    Series,
    SeriesName,
    SeriesRequest,
    Session,
    Subject,
    Tallied,
    Tally,
)
from reprieve.stores.search_cursor import read_cursor
from reprieve.stores.sql import audit, entries, events, failures, limits, series
from reprieve.stores.sql.causes import read_page
from reprieve.stores.sql.limit_states import PageOfNames, limit_states
from reprieve.stores.sql.names import read_names
from reprieve.stores.sql.sessions import read_sessions
from reprieve.stores.sql.tx import SqlTx, Statements
from reprieve.stores.tallying import Counted, merge_tallies, tally

MAX_CHANGES_PER_WRITE = 25
"""Changes that one transaction applies; a claim waits for it, on PostgreSQL some 15 ms."""

T = TypeVar("T")
Tx = TypeVar("Tx")
"""A transaction of the store."""


class SqlStore(ABC, Generic[Tx]):
    """Reads jobs, events and limits. A subclass says how it runs a transaction that reads, and what it reads."""

    @staticmethod
    @abstractmethod
    def _is_key(place: Place, key: PlaceKey) -> bool:
        """Return whether a search can go on after a key."""

    @abstractmethod
    async def _read(self, work: Callable[[Tx], T]) -> T:
        """Run work in a transaction that only reads."""

    @abstractmethod
    async def _write(self, work: Callable[[Tx], T]) -> T:
        """Run work in a transaction."""

    @abstractmethod
    def _search(self, tx: Tx, now: int) -> Counted:
        """Begin a search."""

    @abstractmethod
    def _sql_tx(self, tx: Tx) -> SqlTx:
        """Return the transaction as the code of all SQL stores uses it."""

    @abstractmethod
    def _statements(self, name: str) -> Statements:
        """Return the statements of a file."""

    @abstractmethod
    def _stored_id(self, job_id: str) -> int | str:
        """Return how the tables name a job."""

    @abstractmethod
    def _public_id(self, *columns: Any) -> str:  # noqa: ANN401 - of a row
        """Return the id of a job out of the last columns of the statement `ends`."""

    @abstractmethod
    async def _apply(self, changes: Sequence[Change], now: int) -> list[ChangeResult]:
        """Carry out a few changes in one transaction."""

    async def apply(self, changes: Sequence[Change], now: int) -> list[ChangeResult]:
        """Carry out changes that no session makes, some at a time, so that no claim waits for all of them."""
        results: list[ChangeResult] = []
        for start in range(0, max(1, len(changes)), MAX_CHANGES_PER_WRITE):
            results += await self._apply(changes[start : start + MAX_CHANGES_PER_WRITE], now)
        return results

    async def find(self, wanted: Filter, now: int, cursor: str = "", limit: int = 100, order: Order = "oldest") -> Page:
        """Return a page of jobs."""
        positions = read_cursor(cursor, wanted, order, self._is_key) if cursor else [None]
        asked = Wanted(filter=wanted, order=order, now=now)
        return await self._read(lambda tx: search.find(self._search(tx, now), asked, positions[0], limit))

    async def tally(
        self, by: Tally, wanted: Filter, now: int, top: int | None = None, at_most: int = MAX_TALLIED
    ) -> Tallied:
        """Count jobs by one of their fields."""
        if is_of_causes(by, wanted):
            return await tally_dead(lambda request: self.causes(request, now), by, top)
        counted = await self._read(lambda tx: tally(self._search(tx, now), by, wanted, now, at_most))
        return merge_tallies([counted], top)

    async def names(self, subject: NameSubject, prefix: str = "", limit: int = 20) -> list[str]:
        """Return names that begin with a prefix, in order."""
        sql = self._statements("names")
        return await self._read(lambda tx: read_names(self._sql_tx(tx), sql, subject, prefix, limit))

    async def events(self, after: int = 0, limit: int = 1_000, job_id: str = "") -> list[tuple[int, Event]]:
        """Return events in the order in which they happened."""
        return await events_of_jobs(self.read_events, after, limit, job_id)

    async def read_events(self, query: EventQuery) -> EventPage:
        """Return a page of events."""
        job = self._stored_id(query.job_id) if query.job_id else None
        sql = self._statements("events")
        return await self._read(lambda tx: events.read_events(self._sql_tx(tx), sql, query, job))

    async def progress(self, job_id: str) -> bytes | None:
        """Return the progress of a running job."""
        return await self._value("progress", job_id)

    async def result(self, job_id: str) -> bytes | None:
        """Return the result of a succeeded job."""
        return await self._value("result", job_id)

    async def _value(self, statement: str, job_id: str) -> bytes | None:
        job, sql = self._stored_id(job_id), self._statements("find")[statement]
        row = await self._read(lambda tx: self._sql_tx(tx).one(sql, {"id": job}))
        return None if row is None else row[0]

    async def describe_failures(self, groups: Sequence[FailureGroup]) -> None:
        """Keep what groups of failures look like."""
        sql = self._statements("failures")
        await self._write(lambda tx: failures.describe(self._sql_tx(tx), sql, groups))

    async def failure_groups(self, fingerprints: Sequence[str]) -> list[FailureGroup]:
        """Return the groups of failures with these fingerprints."""
        sql = self._statements("failures")
        return await self._read(lambda tx: failures.groups(self._sql_tx(tx), sql, fingerprints))

    async def audit_log(self, wanted: AuditFilter, cursor: str = "", limit: int = 100) -> AuditPage:
        """Return a page of the audit log."""
        sql = self._statements("audit")
        return await self._read(lambda tx: audit.audit_log(self._sql_tx(tx), sql, wanted, cursor, limit))

    async def series(self, request: SeriesRequest, now: int) -> list[Series]:  # noqa: ARG002 - what is kept is read
        """Return the series of names."""
        sql = self._statements("series")
        return await self._read(lambda tx: series.series(self._sql_tx(tx), sql, request))

    async def series_names(
        self,
        subject: SeriesSubject,
        since_at: int,
        until_at: int,
        now: int,  # noqa: ARG002 - as above
        limit: int = 50,
    ) -> list[SeriesName]:
        """Return names that have lines, those with the most jobs first."""
        sql = self._statements("series")
        return await self._read(
            lambda tx: series.series_names(self._sql_tx(tx), sql, subject, since_at, until_at, limit)
        )

    async def causes(self, request: CauseRequest, now: int) -> CausePage:
        """Return a page of groups of dead jobs, or of failures that jobs survived."""
        sql = self._statements("causes")
        return await self._read(lambda tx: read_page(self._sql_tx(tx), sql, request, now, self._public_id))

    async def sessions(self, now: int) -> list[Session]:
        """Return the sessions whose lease lasts."""
        sql = self._statements("sessions")
        return await self._read(lambda tx: read_sessions(self._sql_tx(tx), sql, now))

    async def entries(self, prefix: str = "", now: int = 0, cursor: str = "", limit: int = 100) -> EntryPage:
        """Return a page of the entries whose key begins with the prefix."""
        sql, wanted = self._statements("entries"), entries.EntryRange(prefix, cursor, limit)
        return await self._read(lambda tx: entries.entries(self._sql_tx(tx), sql, wanted, now))

    async def entry(self, key: str, now: int = 0) -> Entry | None:
        """Return the entry of a key."""
        sql = self._statements("entries")
        return await self._read(lambda tx: entries.entry(self._sql_tx(tx), sql, key, now))

    async def entries_since(self, cursor: str = "", prefix: str = "", now: int = 0) -> EntryChanges:
        """Return the entries that changed since a cursor."""
        sql = self._statements("entries")
        return await self._read(lambda tx: entries.entries_since(self._sql_tx(tx), sql, cursor, prefix, now))

    async def limit_states(
        self, subject: Subject, queue: str = "", prefix: str = "", cursor: str = "", limit: int = 100
    ) -> LimitPage:
        """Return a page of the limits and the use of a subject."""
        sql, wanted = self._statements("limit_states"), PageOfNames(subject, queue, prefix, limit)
        return await self._read(lambda tx: limit_states(self._sql_tx(tx), sql, wanted, cursor))

    async def limit_defaults(self) -> list[LimitUpdate]:
        """Return the defaults that are set."""
        sql = self._statements("update_limits")
        return await self._read(lambda tx: limits.limit_defaults(self._sql_tx(tx), sql))
