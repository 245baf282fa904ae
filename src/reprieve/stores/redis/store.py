"""The Redis store: the protocol, over one partition or many."""

from collections.abc import Sequence

from msgspec.structs import replace

from reprieve.clock import ServerClock
from reprieve.core.change import Change
from reprieve.core.events import Event
from reprieve.core.ids import make_id, parse_id, partition_of
from reprieve.core.job import Job
from reprieve.rng import bits
from reprieve.stores.check import check_jobs, check_limit_update, check_size
from reprieve.stores.coalesce import Coalescer
from reprieve.stores.protocol import (
    MAX_PAYLOAD_BYTES,
    Annotation,
    ChangeResult,
    Claim,
    Claimed,
    Entry,
    Filter,
    Heartbeat,
    LimitState,
    LimitUpdate,
    Page,
    Pruned,
    Retention,
    Subject,
    Tally,
)
from reprieve.stores.redis.address import address_of
from reprieve.stores.redis.fleet import Carry, Fleet
from reprieve.stores.redis.guard import Durability, Guard
from reprieve.stores.redis.link import Links
from reprieve.stores.redis.outbox_sink import RedisOutboxSink
from reprieve.stores.redis.partition import Partition, Point

MOST_JOBS = 100
"""Jobs of one claim: about what a script settles and leases in two milliseconds, while nobody else is served."""

FEWEST_JOBS = 40
"""The same when every job is another tenant's, which costs the script some four times as much."""


class RedisStore:
    """Jobs in a Redis, for any number of processes and machines."""

    def __init__(self, url: str, *, durability: Durability = "full", largest_payload: int = MAX_PAYLOAD_BYTES) -> None:
        """Take where the server is; it is connected to, and looked at, with the first call."""
        self.clock = ServerClock(self._time)
        """The clock of the server, or of the one that has the first partition: all machines share it."""
        self._largest_payload = largest_payload
        self._links = Links(address_of(url), durability)
        self._guard = Guard()
        self._fleet = Fleet(self._links)
        self._coalescer = Coalescer(self._enqueue)

    def new_id(self, now: int, queue: str) -> str:  # noqa: ARG002 - all queues are spread over all partitions
        """Make the id of a new job, which names its partition."""
        return make_id(now, bits(62), self._fleet.next())

    async def enqueue(self, jobs: Sequence[Job], now: int) -> list[str]:
        """Store new jobs; answer for each the id under which it is known."""
        self._links.require_open()
        check_jobs(jobs, self._largest_payload)
        return await self._coalescer.enqueue(jobs, now) if jobs else []

    def enqueue_here(self, jobs: Sequence[Job], now: int) -> list[str] | None:
        """Store a new job with one trip of the calling thread; None if that does not do."""
        self._links.require_open()
        check_jobs(jobs, self._largest_payload)
        if len(jobs) != 1 or not self._guard.has_room(_size(jobs)):
            return None
        known = self._fleet.enqueue_here(jobs[0], now)
        return None if known is None else [known]

    def outbox_sink(self) -> RedisOutboxSink:
        """Return where a relay brings the jobs of an outbox."""
        return RedisOutboxSink(self._fleet, self._land)

    async def _land(self, jobs: Sequence[Job], now: int, carry: Carry) -> list[str]:
        check_jobs(jobs, self._largest_payload)
        return await self._enqueue(jobs, now, carry)

    async def _enqueue(self, jobs: Sequence[Job], now: int, carry: Carry = Partition.enqueue) -> list[str]:
        await self._guard.require_room(self._links.here().info, _size(jobs))
        return await self._fleet.enqueue(jobs, now, carry)

    async def _time(self) -> int:
        return await self._links.here().time()

    async def claim(self, claim: Claim) -> Claimed:
        """Apply changes, then choose and lease jobs; who asks for more than one script should lease is to ask again."""
        for change in claim.changes:
            check_size(change.result or b"", "result", self._largest_payload)
        return await self._fleet.claim(replace(claim, limit=min(claim.limit, _most(claim))))

    async def apply(self, changes: Sequence[Change], now: int) -> list[ChangeResult]:
        """Carry out changes that no session makes."""
        return await self._fleet.apply(changes, now)

    async def heartbeat(self, heartbeat: Heartbeat) -> bool:
        """Keep a session alive, or open it; answer whether it lives."""
        return await self._fleet.heartbeat(heartbeat)

    async def recover(self, now: int, limit: int = 100) -> list[Job]:
        """Declare the dead, and answer what they hold."""
        return await self._fleet.recover(now, limit)

    async def annotate(self, annotations: Sequence[Annotation]) -> list[bool]:
        """Request a cancel or note progress."""
        for annotation in annotations:
            parse_id(annotation.job_id)
            check_size(annotation.progress or b"", "progress", self._largest_payload)
        return await self._fleet.annotate(annotations)

    async def progress(self, job_id: str) -> bytes | None:
        """Return the progress of a running job."""
        job_id = parse_id(job_id)
        return await self._fleet.partition(partition_of(job_id)).progress(job_id)

    async def update_limits(self, updates: Sequence[LimitUpdate], now: int) -> None:
        """Change limiters, limits, weights and pauses."""
        for update in updates:
            check_limit_update(update)
        await self._fleet.update_limits(updates, now)

    async def compare_and_set(
        self, key: str, version: int, value: bytes | None, updates: Sequence[LimitUpdate] = (), now: int = 0
    ) -> Entry | None:
        """Set or delete an entry if nobody was first, together with updates."""
        for update in updates:
            check_limit_update(update)
        return await self._fleet.compare_and_set(key, version, value, updates, now)

    async def prune(self, retention: Retention) -> Pruned:
        """Forget what has ended long enough ago."""
        return await self._fleet.prune(retention)

    async def find(self, wanted: Filter, now: int, cursor: str = "", limit: int = 100) -> Page:
        """Return jobs as they are."""
        self._links.require_open()
        if wanted.ids is not None:
            wanted = replace(wanted, ids=tuple(map(parse_id, wanted.ids)))
        return await self._fleet.find(wanted, now, cursor, limit)

    async def tally(self, by: Tally, wanted: Filter, now: int) -> dict[str, int]:
        """Count jobs by something."""
        self._links.require_open()
        return await self._fleet.tally(by, wanted, now)

    async def events(self, after: int = 0, limit: int = 1_000, job_id: str = "") -> list[tuple[int, Event]]:
        """Return events in the order in which they happened."""
        return await self._fleet.events(after, limit, job_id)

    async def result(self, job_id: str) -> bytes | None:
        """Return what a succeeded job returned."""
        job_id = parse_id(job_id)
        return await self._fleet.partition(partition_of(job_id)).result(job_id)

    async def entries(self, prefix: str = "") -> list[Entry]:
        """Return the entries whose key begins so."""
        return await self._fleet.partition(0).entries(prefix)

    async def limit_states(self, subject: Subject, queue: str = "") -> list[LimitState]:
        """Return what is known of every queue, tenant, task, dependency or group."""
        return await self._fleet.limit_states(subject, queue)

    async def wait(self, queues: Sequence[str], at_most: float, session: str = "") -> bool:
        """Wait for the bell."""
        return await self._fleet.wait(queues, at_most, session)

    async def close(self) -> None:
        """Let go of the connections."""
        await self.clock.close()
        await self._links.close()

    def inject(self, point: Point) -> None:
        """Make the next write fail before or after it is stored: for tests of whoever uses the store."""
        self._fleet.partition(0).inject(point)


def _size(jobs: Sequence[Job]) -> int:
    """Return about how many bytes jobs take."""
    return sum(len(job.payload) for job in jobs) + 200 * len(jobs)


def _most(claim: Claim) -> int:
    """Return how many jobs a claim may lease: what it settles tells how many tenants the next jobs are of."""
    if claim.limit <= FEWEST_JOBS or not claim.changes:
        return MOST_JOBS
    share = len({change.job.tenant for change in claim.changes}) / len(claim.changes)
    return min(MOST_JOBS, round(FEWEST_JOBS / (0.25 + 0.75 * share)))
