"""What every store does alike, in front of the one that keeps the jobs.

`checked` validates every argument, refuses calls to a closed store and makes one call of concurrent enqueues.
A store of another package gets all of it too, since `open_store` wraps whatever it opens.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

from msgspec.structs import replace

from reprieve.core import values
from reprieve.core.audit import Author
from reprieve.core.change import Change
from reprieve.core.events import Event
from reprieve.core.ids import parse_id
from reprieve.core.job import Job
from reprieve.core.notice import Notice
from reprieve.core.series import SeriesSubject
from reprieve.core.values import name
from reprieve.errors import ValidationError
from reprieve.stores.calls import Calls
from reprieve.stores.capabilities import (
    AsyncTransactional,
    Damageable,
    EnqueueRules,
    FaultPoint,
    Faulty,
    HasEnqueueRules,
    Immediate,
    OutboxSink,
    ParameterStyle,
    RelayTarget,
    StatementProvider,
    Transactional,
)
from reprieve.stores.check import (
    check_change,
    check_exclude,
    check_failure_group,
    check_heartbeat,
    check_jobs,
    check_limit_update,
    check_page_limit,
    check_queues,
    check_size,
    check_subject,
    is_plain_success,
)
from reprieve.stores.check_audit import check_audit_filter, check_author, check_cancel_request
from reprieve.stores.check_causes import check_cause_request
from reprieve.stores.check_entry import check_entry_cursor, check_entry_write
from reprieve.stores.check_events import check_event_query, check_notice, check_starts
from reprieve.stores.check_filter import check_filter, check_names, check_tally
from reprieve.stores.check_kinds import check_cursor
from reprieve.stores.check_retention import check_retention
from reprieve.stores.check_series import (
    check_deltas,
    check_names_limit,
    check_range,
    check_series_request,
)
from reprieve.stores.check_series import (
    check_subject as check_series_subject,
)
from reprieve.stores.coalesce import Coalescer
from reprieve.stores.forwarding import ForwardingStore
from reprieve.stores.protocol import (
    MAX_PAYLOAD_BYTES,
    MAX_TALLIED,
    Annotation,
    AuditFilter,
    AuditPage,
    CausePage,
    CauseRequest,
    ChangeResult,
    Claim,
    Claimed,
    EntryPage,
    EntryWrite,
    EntryWritten,
    EventPage,
    EventQuery,
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
    Store,
    Subject,
    Tallied,
    Tally,
)


class CheckedStore(ForwardingStore):
    """A store that takes only what can be stored, and nothing after it was closed; see `checked`."""

    def __init__(self, inner: Store, largest_payload: int, stuck_after: float | None = None) -> None:
        """Take the store that keeps the jobs, and how many bytes a payload, a result or progress may have.

        A search that does not say when a running job is stuck takes `stuck_after`, in seconds.
        """
        super().__init__(inner)
        self._stuck_after = stuck_after
        self._largest_payload = largest_payload
        self._calls = Calls()
        rules = inner.enqueue_rules if isinstance(inner, HasEnqueueRules) else EnqueueRules()
        self._is_id = rules.is_id
        self._coalescer = Coalescer(
            inner.enqueue, self._calls, rules.max_concurrent_calls, keys_may_block=rules.keys_may_block
        )

    @property
    def is_in_memory(self) -> bool:
        """Whether only this process sees the jobs, so that the store is outside of every transaction."""
        return bool(getattr(self.inner, "is_in_memory", False))

    def _call(self, operation: str) -> Calls:  # noqa: ARG002 - all operations alike
        return self._calls

    def check_jobs(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Return the jobs with plain values; raise a `ValidationError` for jobs that this store cannot take."""
        return check_jobs(jobs, self._largest_payload, self._is_id)

    async def enqueue(self, jobs: Sequence[Job], now: int) -> list[str]:
        """Store new jobs, in one call with the jobs of concurrent callers; return the id of each."""
        self._calls.require_open()
        jobs = check_jobs(jobs, self._largest_payload, self._is_id)
        return await self._coalescer.enqueue(jobs, now) if jobs else []

    async def claim(self, claim: Claim) -> Claimed:
        """Apply changes, then choose and lease jobs."""
        queues = check_queues(claim.queues)
        if claim.exclude:
            claim = replace(claim, exclude=tuple(check_exclude(claim.exclude)))
        if claim.series:
            check_deltas(claim.series)
        if claim.starts:
            check_starts(claim)
        if queues is not claim.queues or not all(map(is_plain_success, claim.changes)):
            return await self._claim_checked(replace(claim, queues=tuple(queues)))
        return await super().claim(claim)

    async def _claim_checked(self, claim: Claim) -> Claimed:
        writable = self._writable(claim.changes)
        changes = tuple(change for change in writable if change is not None)
        claimed = await super().claim(replace(claim, changes=changes))
        return replace(claimed, results=tuple(_with_refused(writable, claimed.results)))

    async def apply(self, changes: Sequence[Change], now: int) -> list[ChangeResult]:
        """Carry out changes that no session makes."""
        writable = self._writable(changes)
        results = await super().apply([change for change in writable if change is not None], now)
        return _with_refused(writable, results)

    def _writable(self, changes: Sequence[Change]) -> list[Change | None]:
        """Return the changes as they will be read back, and None for each that cannot be stored: only it is refused."""
        writable: list[Change | None] = []
        for change in changes:
            try:
                is_plain = is_plain_success(change)
                writable.append(change if is_plain else check_change(change, self._largest_payload))
            except ValidationError:
                writable.append(None)
        return writable

    async def heartbeat(self, heartbeat: Heartbeat) -> bool:
        """Open or extend a session."""
        return await super().heartbeat(check_heartbeat(heartbeat))

    async def annotate(self, annotations: Sequence[Annotation]) -> list[bool]:
        """Request cancels and note progress."""
        for annotation in annotations:
            parse_id(annotation.job_id)
            check_size(annotation.progress or b"", "progress", self._largest_payload)
        return await super().annotate([check_cancel_request(annotation) for annotation in annotations])

    async def progress(self, job_id: str) -> bytes | None:
        """Return the progress of a running job."""
        return await super().progress(parse_id(job_id))

    async def describe_failures(self, groups: Sequence[FailureGroup]) -> None:
        """Keep what groups of failures look like."""
        if groups:
            await super().describe_failures([check_failure_group(group) for group in groups])

    async def failure_groups(self, fingerprints: Sequence[str]) -> list[FailureGroup]:
        """Return the groups of failures with these fingerprints."""
        wanted = {name(fingerprint, "fingerprint") for fingerprint in fingerprints}
        return await super().failure_groups(sorted(wanted)) if wanted else []

    async def causes(self, request: CauseRequest, now: int) -> CausePage:
        """Return a page of groups of dead jobs, or of failures that jobs survived."""
        return await super().causes(check_cause_request(request), now)

    async def update_limits(self, updates: Sequence[LimitUpdate], now: int, author: Author) -> None:
        """Change limits, rates, weights and pauses."""
        check_author(author)
        await super().update_limits([check_limit_update(update) for update in updates], now, author)

    async def compare_and_set(self, write: EntryWrite, now: int, author: Author) -> EntryWritten:
        """Set or delete an entry if it has this version, together with what the write carries."""
        check_author(author)
        write = replace(
            check_entry_write(write),
            jobs=tuple(self.check_jobs(write.jobs)),
            changes=tuple(check_change(change, self._largest_payload) for change in write.changes),
        )
        return await super().compare_and_set(write, now, author)

    async def limit_states(
        self, subject: Subject, queue: str = "", prefix: str = "", cursor: str = "", limit: int = 100
    ) -> LimitPage:
        """Return a page of the limits and the use of a subject."""
        check_subject(subject)
        check_page_limit(limit)
        queue, prefix = (
            values.name(text, what, may_be_empty=True) for text, what in ((queue, "queue"), (prefix, "prefix"))
        )
        return await super().limit_states(subject, queue, prefix, check_cursor(cursor), limit)

    async def find(self, wanted: Filter, now: int, cursor: str = "", limit: int = 100, order: Order = "oldest") -> Page:
        """Return a page of jobs."""
        wanted = check_filter(wanted, order)
        if wanted.ids is None:
            check_page_limit(limit)
        return await super().find(self._completed(wanted), now, check_cursor(cursor), limit, order)

    async def tally(
        self, by: Tally, wanted: Filter, now: int, top: int | None = None, at_most: int = MAX_TALLIED
    ) -> Tallied:
        """Count jobs by one of their fields."""
        check_tally(by, top, at_most)
        return await super().tally(by, self._completed(check_filter(wanted)), now, top, at_most)

    async def names(self, subject: NameSubject, prefix: str = "", limit: int = 20) -> list[str]:
        """Return names that begin with a prefix."""
        check_names(subject, limit)
        return await super().names(subject, values.name(prefix, "prefix", may_be_empty=True), limit)

    def _completed(self, wanted: Filter) -> Filter:
        return wanted if wanted.stuck_after is not None else replace(wanted, stuck_after=self._stuck_after)

    async def events(self, after: int = 0, limit: int = 1_000, job_id: str = "") -> list[tuple[int, Event]]:
        """Return events in the order in which they happened."""
        check_page_limit(limit)
        return await super().events(after, limit, parse_id(job_id) if job_id else "")

    async def read_events(self, query: EventQuery) -> EventPage:
        """Return a page of events."""
        return await super().read_events(check_event_query(query))

    async def tell(self, notices: Sequence[Notice]) -> None:
        """Add notices to the stream."""
        if notices:
            await super().tell([check_notice(notice) for notice in notices])

    async def series(self, request: SeriesRequest, now: int) -> list[Series]:
        """Return the series of names."""
        return await super().series(check_series_request(request, now), now)

    async def series_names(
        self, subject: SeriesSubject, since_at: int, until_at: int, now: int, limit: int = 50
    ) -> list[SeriesName]:
        """Return names that have lines, those with the most jobs first."""
        check_series_subject(subject)
        check_range(since_at, until_at)
        check_names_limit(limit)
        return await super().series_names(subject, since_at, until_at, now, limit)

    async def result(self, job_id: str) -> bytes | None:
        """Return the result of a succeeded job."""
        return await super().result(parse_id(job_id))

    async def entries(self, prefix: str = "", now: int = 0, cursor: str = "", limit: int = 100) -> EntryPage:
        """Return a page of the entries whose key begins with the prefix."""
        check_page_limit(limit)
        prefix, cursor = values.text(prefix, "prefix", ValidationError), check_cursor(cursor)
        check_entry_cursor(cursor, prefix)
        return await super().entries(prefix, now, cursor, limit)

    async def audit_log(self, wanted: AuditFilter, cursor: str = "", limit: int = 100) -> AuditPage:
        """Return a page of the audit log."""
        return await super().audit_log(check_audit_filter(wanted, limit), check_cursor(cursor), limit)

    async def prune(self, retention: Retention) -> Pruned:
        """Delete what ended long enough ago."""
        return await super().prune(check_retention(retention))

    async def wait(self, queues: Sequence[str], at_most: float, session: str = "") -> bool:
        """Wait until notified. It is not a call under way: closing the store inside ends it."""
        self._calls.require_open()
        return await self.inner.wait(check_queues(queues), at_most, session)

    async def close(self) -> None:
        """Finish the calls under way, then close the store inside. Closing again does nothing."""
        if self._calls.close():
            await self._calls.finish()
            await self.inner.close()


def _with_refused(writable: Sequence[Change | None], results: Sequence[ChangeResult]) -> list[ChangeResult]:
    """Return the results of all changes: those of the store, and "refused" for each that it was not given."""
    stored = iter(results)
    return ["refused" if change is None else next(stored) for change in writable]


class _CheckedImmediate(CheckedStore):
    inner: Any

    def enqueue_sync(self, jobs: Sequence[Job], now: int) -> list[str] | None:
        with self._calls:
            jobs = self.check_jobs(jobs)
            known: list[str] | None = self.inner.enqueue_sync(jobs, now) if jobs else []
            return known


class _CheckedTransactional(CheckedStore):
    inner: Any

    def enqueue_in(self, connection: Any, jobs: Sequence[Job], now: int) -> list[str]:  # noqa: ANN401 - the driver's own
        with self._calls:
            jobs = self.check_jobs(jobs)
            known: list[str] = self.inner.enqueue_in(connection, jobs, now)
            return known


class _CheckedAsyncTransactional(CheckedStore):
    inner: Any

    def is_asynchronous(self, connection: Any) -> bool:  # noqa: ANN401 - as above
        return bool(self.inner.is_asynchronous(connection))

    async def aenqueue_in(self, connection: Any, jobs: Sequence[Job], now: int) -> list[str]:  # noqa: ANN401 - as above
        with self._calls:
            jobs = self.check_jobs(jobs)
            known: list[str] = await self.inner.aenqueue_in(connection, jobs, now)
            return known


class _CheckedStatementProvider(CheckedStore):
    inner: Any

    def statement(
        self, jobs: Sequence[Job], now: int, style: ParameterStyle = "pyformat"
    ) -> tuple[str, dict[str, Any] | list[Any]]:
        jobs = self.check_jobs(jobs)
        written: tuple[str, dict[str, Any] | list[Any]] = self.inner.statement(jobs, now, style)
        return written


class _CheckedRelayTarget(CheckedStore):
    inner: Any

    def outbox_sink(self) -> OutboxSink:
        return _CheckedSink(self, self.inner.outbox_sink())


class _CheckedSink:
    """An outbox sink that takes only jobs that its store takes."""

    def __init__(self, store: CheckedStore, inner: OutboxSink) -> None:
        self._store = store
        self.prepare = inner.prepare
        self._deliver = inner.deliver
        self.note_removed = inner.note_removed
        self.close = inner.close

    async def deliver(self, jobs: Sequence[Job], now: int) -> list[str]:
        return await self._deliver(self._store.check_jobs(jobs), now)


class _CheckedFaulty(CheckedStore):
    inner: Any

    def inject(self, point: FaultPoint) -> None:
        self.inner.inject(point)


class _CheckedDamageable(CheckedStore):
    inner: Any

    async def damage(self, job_id: str, packed: bytes) -> None:
        await self.inner.damage(job_id, packed)


_CAPABILITIES: tuple[tuple[type, type[CheckedStore]], ...] = (
    (Immediate, _CheckedImmediate),
    (Transactional, _CheckedTransactional),
    (AsyncTransactional, _CheckedAsyncTransactional),
    (StatementProvider, _CheckedStatementProvider),
    (RelayTarget, _CheckedRelayTarget),
    (Faulty, _CheckedFaulty),
    (Damageable, _CheckedDamageable),
)


def checked(
    store: Store, *, largest_payload: int = MAX_PAYLOAD_BYTES, stuck_after: float | None = None
) -> CheckedStore:
    """Return the store behind checks of its arguments and of its state, with the capabilities that it has itself.

    Concurrent enqueues become one call; see `EnqueueRules` for what the store may say about it.
    """
    capabilities = tuple(part for capability, part in _CAPABILITIES if isinstance(store, capability))
    return _class_with(capabilities)(store, largest_payload, stuck_after)


@cache
def _class_with(capabilities: tuple[type[CheckedStore], ...]) -> type[CheckedStore]:
    # A class for each combination, since isinstance looks at what a class has, never at what an instance could forward.
    return type(CheckedStore.__name__, capabilities or (CheckedStore,), {})
