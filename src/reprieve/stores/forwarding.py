"""A store in front of another: every operation is passed on, inside a context that a subclass chooses."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager

from reprieve.clock import Clock
from reprieve.core.audit import Author
from reprieve.core.change import Change
from reprieve.core.events import Event
from reprieve.core.job import Job
from reprieve.core.notice import Notice
from reprieve.core.series import SeriesSubject
from reprieve.stores.protocol import (
    MAX_TALLIED,
    Annotation,
    AuditFilter,
    AuditPage,
    CausePage,
    CauseRequest,
    ChangeResult,
    Claim,
    Claimed,
    Entry,
    EntryChanges,
    EntryPage,
    EntryWrite,
    EntryWritten,
    EventPage,
    EventQuery,
    Expired,
    FailureGroup,
    Filter,
    Heartbeat,
    LimitPage,
    LimitUpdate,
    NameSubject,
    Order,
    Page,
    Pruned,
    Retention,
    Series,
    SeriesName,
    SeriesRequest,
    Session,
    Store,
    Subject,
    Tallied,
    Tally,
)


class ForwardingStore(ABC):
    """Passes every operation of the protocol on to the store inside."""

    def __init__(self, inner: Store) -> None:
        """Take the store to pass operations on to."""
        self.inner = inner
        """The store inside, for what only it can do."""

    @abstractmethod
    def _call(self, operation: str) -> AbstractContextManager[object]:
        """Return the context in which an operation, by its name in the protocol, is passed on."""

    @property
    def clock(self) -> Clock:
        """The clock of the store inside."""
        return self.inner.clock

    def new_id(self, now: int, queue: str, beside: str | None = None) -> str:
        """Make the id of a new job."""
        return self.inner.new_id(now, queue, beside)

    async def enqueue(self, jobs: Sequence[Job], now: int) -> list[str]:
        """Store new jobs."""
        with self._call("enqueue"):
            return await self.inner.enqueue(jobs, now)

    async def claim(self, claim: Claim) -> Claimed:
        """Apply changes, then choose and lease jobs."""
        with self._call("claim"):
            return await self.inner.claim(claim)

    async def apply(self, changes: Sequence[Change], now: int) -> list[ChangeResult]:
        """Carry out changes that no session makes."""
        with self._call("apply"):
            return await self.inner.apply(changes, now)

    async def heartbeat(self, heartbeat: Heartbeat) -> bool:
        """Open or extend a session."""
        with self._call("heartbeat"):
            return await self.inner.heartbeat(heartbeat)

    async def sessions(self, now: int) -> list[Session]:
        """Return the sessions whose lease lasts."""
        with self._call("sessions"):
            return await self.inner.sessions(now)

    async def recover(self, now: int, limit: int = 100) -> list[Job]:
        """Expire sessions past their lease; return the jobs they hold."""
        with self._call("recover"):
            return await self.inner.recover(now, limit)

    async def expire(self, now: int, limit: int = 100) -> Expired:
        """End waiting jobs whose time has come."""
        with self._call("expire"):
            return await self.inner.expire(now, limit)

    async def annotate(self, annotations: Sequence[Annotation]) -> list[bool]:
        """Request cancels and note progress."""
        with self._call("annotate"):
            return await self.inner.annotate(annotations)

    async def progress(self, job_id: str) -> bytes | None:
        """Return the progress of a running job."""
        with self._call("progress"):
            return await self.inner.progress(job_id)

    async def describe_failures(self, groups: Sequence[FailureGroup]) -> None:
        """Keep what groups of failures look like."""
        with self._call("describe_failures"):
            await self.inner.describe_failures(groups)

    async def failure_groups(self, fingerprints: Sequence[str]) -> list[FailureGroup]:
        """Return the groups of failures with these fingerprints."""
        with self._call("failure_groups"):
            return await self.inner.failure_groups(fingerprints)

    async def audit_log(self, wanted: AuditFilter, cursor: str = "", limit: int = 100) -> AuditPage:
        """Return a page of the audit log."""
        with self._call("audit_log"):
            return await self.inner.audit_log(wanted, cursor, limit)

    async def causes(self, request: CauseRequest, now: int) -> CausePage:
        """Return a page of groups of dead jobs, or of failures that jobs survived."""
        with self._call("causes"):
            return await self.inner.causes(request, now)

    async def update_limits(self, updates: Sequence[LimitUpdate], now: int, author: Author) -> None:
        """Change limits, rates, weights and pauses."""
        with self._call("update_limits"):
            await self.inner.update_limits(updates, now, author)

    async def compare_and_set(self, write: EntryWrite, now: int, author: Author) -> EntryWritten:
        """Set or delete an entry if it has this version, together with what the write carries."""
        with self._call("compare_and_set"):
            return await self.inner.compare_and_set(write, now, author)

    async def prune(self, retention: Retention) -> Pruned:
        """Delete what ended long enough ago."""
        with self._call("prune"):
            return await self.inner.prune(retention)

    async def find(self, wanted: Filter, now: int, cursor: str = "", limit: int = 100, order: Order = "oldest") -> Page:
        """Return a page of jobs."""
        with self._call("find"):
            return await self.inner.find(wanted, now, cursor, limit, order)

    async def tally(
        self, by: Tally, wanted: Filter, now: int, top: int | None = None, at_most: int = MAX_TALLIED
    ) -> Tallied:
        """Count jobs."""
        with self._call("tally"):
            return await self.inner.tally(by, wanted, now, top, at_most)

    async def names(self, subject: NameSubject, prefix: str = "", limit: int = 20) -> list[str]:
        """Return names that begin with a prefix."""
        with self._call("names"):
            return await self.inner.names(subject, prefix, limit)

    async def events(self, after: int = 0, limit: int = 1_000, job_id: str = "") -> list[tuple[int, Event]]:
        """Return events in the order in which they happened."""
        with self._call("events"):
            return await self.inner.events(after, limit, job_id)

    async def series(self, request: SeriesRequest, now: int) -> list[Series]:
        """Return the series of names."""
        with self._call("series"):
            return await self.inner.series(request, now)

    async def series_names(
        self, subject: SeriesSubject, since_at: int, until_at: int, now: int, limit: int = 50
    ) -> list[SeriesName]:
        """Return names that have lines."""
        with self._call("series_names"):
            return await self.inner.series_names(subject, since_at, until_at, now, limit)

    async def read_events(self, query: EventQuery) -> EventPage:
        """Return a page of events."""
        with self._call("read_events"):
            return await self.inner.read_events(query)

    async def tell(self, notices: Sequence[Notice]) -> None:
        """Add notices to the stream."""
        with self._call("tell"):
            await self.inner.tell(notices)

    async def result(self, job_id: str) -> bytes | None:
        """Return the result of a succeeded job."""
        with self._call("result"):
            return await self.inner.result(job_id)

    async def entries(self, prefix: str = "", now: int = 0, cursor: str = "", limit: int = 100) -> EntryPage:
        """Return a page of the entries whose key begins with the prefix."""
        with self._call("entries"):
            return await self.inner.entries(prefix, now, cursor, limit)

    async def entry(self, key: str, now: int = 0) -> Entry | None:
        """Return the entry of a key."""
        with self._call("entry"):
            return await self.inner.entry(key, now)

    async def entries_since(self, cursor: str = "", prefix: str = "", now: int = 0) -> EntryChanges:
        """Return the entries that changed since a cursor."""
        with self._call("entries_since"):
            return await self.inner.entries_since(cursor, prefix, now)

    async def limit_states(
        self, subject: Subject, queue: str = "", prefix: str = "", cursor: str = "", limit: int = 100
    ) -> LimitPage:
        """Return a page of the limits and the use of a subject."""
        with self._call("limit_states"):
            return await self.inner.limit_states(subject, queue, prefix, cursor, limit)

    async def limit_defaults(self) -> list[LimitUpdate]:
        """Return the defaults that are set."""
        with self._call("limit_defaults"):
            return await self.inner.limit_defaults()

    async def wait(self, queues: Sequence[str], at_most: float, session: str = "") -> bool:
        """Wait until notified."""
        with self._call("wait"):
            return await self.inner.wait(queues, at_most, session)

    async def close(self) -> None:
        """Close the store inside."""
        await self.inner.close()
