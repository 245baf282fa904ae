"""The Redis store: the protocol, over one partition or many."""

from collections.abc import Sequence

from msgspec.structs import replace

from reprieve.clock import ServerClock
from reprieve.core.audit import Author
from reprieve.core.change import Change
from reprieve.core.events import Event
from reprieve.core.ids import id_to_bytes, make_id, partition_of
from reprieve.core.job import Job
from reprieve.core.notice import Notice
from reprieve.core.series import SeriesSubject
from reprieve.rng import bits
from reprieve.stores.capabilities import FaultPoint
from reprieve.stores.dead_tally import is_of_causes, tally_dead
from reprieve.stores.event_page import events_of_jobs
from reprieve.stores.places import Wanted
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
    Subject,
    Tallied,
    Tally,
)
from reprieve.stores.redis.address import address_of
from reprieve.stores.redis.audit_reads import AuditReads
from reprieve.stores.redis.causes import read_causes
from reprieve.stores.redis.connections import Connections
from reprieve.stores.redis.memory_check import MemoryCheck
from reprieve.stores.redis.names import read_names
from reprieve.stores.redis.outbox_sink import RedisOutboxSink
from reprieve.stores.redis.partition import Partition
from reprieve.stores.redis.partitioned_enqueue import PartitionedEnqueue, WriteJobs
from reprieve.stores.redis.partitioned_entry_writes import PartitionedEntryWrites
from reprieve.stores.redis.partitioned_reads import PartitionedReads
from reprieve.stores.redis.partitioned_writes import PartitionedWrites
from reprieve.stores.redis.partitions import Partitions
from reprieve.stores.redis.records import with_packed
from reprieve.stores.redis.server_checks import Durability
from reprieve.stores.redis.sessions import Sessions
from reprieve.stores.redis.shared_limits import SharedLimits
from reprieve.stores.redis.topology import Topology
from reprieve.stores.redis.unique_keys import UniqueKeys
from reprieve.stores.tallying import merge_tallies

MAX_JOBS_PER_CLAIM = 100
"""About what a script settles and leases in two milliseconds, in which the server does nothing else."""

MAX_TENANTS_PER_CLAIM = 40
"""The same when every job is another tenant's, which costs the script about four times as much."""


class RedisStore:
    """Jobs in a Redis or Valkey server or cluster, for any number of processes and machines.

    `open_store` puts it behind `checked`, which validates arguments, refuses calls after `close` and combines enqueues.
    """

    def __init__(self, url: str, *, durability: Durability = "full") -> None:
        """Take the URL of the server. The first call connects to it and checks its settings."""
        self.clock = ServerClock(self._time)
        """The clock of the first partition's server, which all machines share."""
        self._connections = Connections(Topology(address_of(url), durability))
        self._memory = MemoryCheck()
        self._partitions = Partitions(self._connections)
        keys = UniqueKeys(self._connections, self._partitions.has_jobs)
        self._limits = SharedLimits(self._partitions)
        self._enqueuer = PartitionedEnqueue(self._partitions, keys)
        self._sessions = Sessions(self._partitions, self._limits)
        self._writes = PartitionedWrites(self._partitions, keys)
        self._reads = PartitionedReads(self._partitions, self._limits)
        self._audit = AuditReads(self._partitions)
        self._entry_writes = PartitionedEntryWrites(self._partitions, keys, self._limits)

    def new_id(self, now: int, queue: str, beside: str | None = None) -> str:  # noqa: ARG002 - all queues are spread over all partitions
        """Return the id of a new job, which names its partition; entries are in the first."""
        return make_id(now, bits(62), self._partitions.next_number() if beside is None else 0)

    async def enqueue(self, jobs: Sequence[Job], now: int) -> list[str]:
        """Store new jobs; return for each the id under which it is known."""
        return await self._enqueue(jobs, now, Partition.enqueue)

    def enqueue_sync(self, jobs: Sequence[Job], now: int) -> list[str] | None:
        """Store a new job with one round trip of the calling thread; None if that is not enough."""
        if len(jobs) != 1 or not self._memory.has_room(_size(jobs)):
            return None
        known = self._enqueuer.enqueue_here(jobs[0], now)
        return None if known is None else [known]

    def outbox_sink(self) -> RedisOutboxSink:
        """Return the sink that a relay brings the jobs of an outbox to."""
        return RedisOutboxSink(self._partitions, self._enqueue)

    async def _enqueue(self, jobs: Sequence[Job], now: int, write: WriteJobs) -> list[str]:
        await self._memory.require_room(self._connections.current().info, _size(jobs))
        return await self._enqueuer.enqueue(jobs, now, write)

    async def _time(self) -> int:
        return await self._connections.time()

    async def claim(self, claim: Claim) -> Claimed:
        """Apply changes, then choose and lease jobs: no more than one script should lease."""
        return await self._sessions.claim(replace(claim, limit=min(claim.limit, _max_jobs(claim))))

    async def apply(self, changes: Sequence[Change], now: int) -> list[ChangeResult]:
        """Apply changes that no session makes."""
        return await self._writes.apply(changes, now)

    async def heartbeat(self, heartbeat: Heartbeat) -> bool:
        """Keep a session alive, or open it; return whether it lives."""
        return await self._sessions.heartbeat(heartbeat)

    async def sessions(self, now: int) -> list[Session]:
        """Return the sessions whose lease lasts: a session is alive in every partition, and read in the first."""
        return await self._partitions[0].reads.sessions(now)

    async def recover(self, now: int, limit: int = 100) -> list[Job]:
        """Expire sessions past their lease; return the jobs they hold."""
        return await self._writes.recover(now, limit)

    async def expire(self, now: int, limit: int = 100) -> Expired:
        """End waiting jobs that are past their deadline or were parked for too long; return them."""
        return await self._writes.expire(now, limit)

    async def annotate(self, annotations: Sequence[Annotation]) -> list[bool]:
        """Request a cancel or note progress."""
        return await self._writes.annotate(annotations)

    async def progress(self, job_id: str) -> bytes | None:
        """Return the progress of a running job."""
        return await self._partitions[partition_of(job_id)].reads.progress(job_id)

    async def describe_failures(self, groups: Sequence[FailureGroup]) -> None:
        """Keep what groups of failures look like, all in the first partition."""
        await self._partitions[0].describe_failures(groups)

    async def failure_groups(self, fingerprints: Sequence[str]) -> list[FailureGroup]:
        """Return the groups of failures with these fingerprints."""
        return await self._partitions[0].reads.failure_groups(fingerprints)

    async def audit_log(self, wanted: AuditFilter, cursor: str = "", limit: int = 100) -> AuditPage:
        """Return a page of the audit log."""
        return await self._audit.page(wanted, cursor, limit)

    async def causes(self, request: CauseRequest, now: int) -> CausePage:
        """Return a page of groups of dead jobs, or of failures that jobs survived."""
        return await read_causes(await self._partitions.load(), request, now)

    async def update_limits(self, updates: Sequence[LimitUpdate], now: int, author: Author) -> None:
        """Change limiters, limits, weights and pauses."""
        await self._limits.update(updates, now, author)

    async def compare_and_set(self, write: EntryWrite, now: int, author: Author) -> EntryWritten:
        """Set or delete an entry if it has this version, together with what the write carries."""
        await self._memory.require_room(self._connections.current().info, _size(write.jobs))
        return await self._entry_writes.write(write, now, author)

    async def tell(self, notices: Sequence[Notice]) -> None:
        """Add notices to the stream, in the first partition."""
        await self._partitions.load()
        await self._partitions[0].tell(notices)

    async def prune(self, retention: Retention) -> Pruned:
        """Forget what has ended long enough ago."""
        return await self._writes.prune(retention)

    async def find(self, wanted: Filter, now: int, cursor: str = "", limit: int = 100, order: Order = "oldest") -> Page:
        """Return jobs as they are."""
        return await self._reads.find(Wanted(filter=wanted, order=order, now=now), cursor, limit)

    async def tally(
        self, by: Tally, wanted: Filter, now: int, top: int | None = None, at_most: int = MAX_TALLIED
    ) -> Tallied:
        """Return how many jobs there are, grouped."""
        if is_of_causes(by, wanted):
            return await tally_dead(lambda request: self.causes(request, now), by, top)
        return merge_tallies(await self._reads.tallies(by, wanted, now, at_most), top)

    async def names(self, subject: NameSubject, prefix: str = "", limit: int = 20) -> list[str]:
        """Return names that begin with a prefix, in order."""
        return await read_names(await self._partitions.load(), subject, prefix, limit)

    async def events(self, after: int = 0, limit: int = 1_000, job_id: str = "") -> list[tuple[int, Event]]:
        """Return events in order, each with its position."""
        return await events_of_jobs(self.read_events, after, limit, job_id)

    async def read_events(self, query: EventQuery) -> EventPage:
        """Return a page of events."""
        return await self._reads.events(query)

    async def series(self, request: SeriesRequest, now: int) -> list[Series]:  # noqa: ARG002 - what is kept is read
        """Return the series of names."""
        return await self._reads.series(request)

    async def series_names(
        self,
        subject: SeriesSubject,
        since_at: int,
        until_at: int,
        now: int,  # noqa: ARG002 - as above
        limit: int = 50,
    ) -> list[SeriesName]:
        """Return names that have lines, those with the most jobs first."""
        return await self._reads.series_names(subject, since_at, until_at, limit)

    async def result(self, job_id: str) -> bytes | None:
        """Return what a succeeded job returned."""
        return await self._partitions[partition_of(job_id)].reads.result(job_id)

    async def entries(self, prefix: str = "", now: int = 0, cursor: str = "", limit: int = 100) -> EntryPage:
        """Return a page of the entries whose key has a prefix."""
        return await self._partitions[0].reads.entries(prefix, now, cursor, limit)

    async def entry(self, key: str, now: int = 0) -> Entry | None:
        """Return the entry of a key."""
        return await self._partitions[0].reads.entry(key, now)

    async def entries_since(self, cursor: str = "", prefix: str = "", now: int = 0) -> EntryChanges:
        """Return the entries that changed since a cursor."""
        return await self._partitions[0].reads.entries_since(cursor, prefix, now)

    async def limit_states(
        self, subject: Subject, queue: str = "", prefix: str = "", cursor: str = "", limit: int = 100
    ) -> LimitPage:
        """Return a page of the limits of a subject, and how far they are used."""
        return await self._reads.limit_states(subject, queue, prefix, cursor, limit)

    async def limit_defaults(self) -> list[LimitUpdate]:
        """Return the defaults that are set."""
        return await self._reads.limit_defaults()

    async def wait(self, queues: Sequence[str], at_most: float, session: str = "") -> bool:
        """Wait for a notification; return whether one came."""
        return await self._sessions.wait(queues, at_most, session)

    async def close(self) -> None:
        """Close the connections."""
        await self.clock.close()
        await self._connections.close()

    def inject(self, point: FaultPoint) -> None:
        """Make the next write fail before or after it is stored: for tests of code that uses the store."""
        self._partitions[0].inject(point)

    async def damage(self, job_id: str, packed: bytes) -> None:
        """Replace what is packed of a job, behind what scripts read."""
        await self._partitions.load_for((job_id,))
        reads, raw = self._partitions[partition_of(job_id)].reads, id_to_bytes(job_id)
        await reads.command("HSET", "jobs", raw, with_packed(await reads.command("HGET", "jobs", raw), packed))


def _size(jobs: Sequence[Job]) -> int:
    """Return about how many bytes jobs take."""
    return sum(len(job.payload) for job in jobs) + 200 * len(jobs)


def _max_jobs(claim: Claim) -> int:
    """Return how many jobs a claim may lease: its changes show of how many tenants the next jobs are."""
    if claim.limit <= MAX_TENANTS_PER_CLAIM or not claim.changes:
        return MAX_JOBS_PER_CLAIM
    share = len({change.job.tenant for change in claim.changes}) / len(claim.changes)
    return min(MAX_JOBS_PER_CLAIM, round(MAX_TENANTS_PER_CLAIM / (0.25 + 0.75 * share)))
