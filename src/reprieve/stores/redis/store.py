"""The Redis store: the protocol over one partition or many."""

from collections.abc import Sequence

from msgspec.structs import replace

from reprieve.clock import ServerClock
from reprieve.core.change import Change
from reprieve.core.events import Event
from reprieve.core.ids import make_id, partition_of
from reprieve.core.job import Job
from reprieve.rng import bits
from reprieve.stores.capabilities import FaultPoint
from reprieve.stores.protocol import (
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
from reprieve.stores.redis.partition import Partition

MOST_JOBS = 100
"""Most jobs of one claim: what a script settles and leases in about 2 ms, during which the server does nothing else."""

FEWEST_JOBS = 40
"""The same if every job belongs to another tenant, which costs the script about four times as much."""


class RedisStore:
    """Jobs in a Redis or Valkey server or cluster, for any number of processes and machines.

    `open_store` puts it behind `checked`, which validates arguments, refuses calls after `close` and combines enqueues.
    """

    def __init__(self, url: str, *, durability: Durability = "full") -> None:
        """Take the URL of the server. The first call connects to it and checks its settings."""
        self.clock = ServerClock(self._time)
        """The clock of the server that has the first partition, which all machines share."""
        self._links = Links(address_of(url), durability)
        self._guard = Guard()
        self._fleet = Fleet(self._links)

    def new_id(self, now: int, queue: str) -> str:  # noqa: ARG002 - all queues are spread over all partitions
        """Make the id of a new job, which names its partition."""
        return make_id(now, bits(62), self._fleet.next())

    async def enqueue(self, jobs: Sequence[Job], now: int) -> list[str]:
        """Store new jobs; return the id of each."""
        return await self._enqueue(jobs, now, Partition.enqueue)

    def enqueue_sync(self, jobs: Sequence[Job], now: int) -> list[str] | None:
        """Store one new job in one trip of the calling thread; None if that is not possible."""
        if len(jobs) != 1 or not self._guard.has_room(_size(jobs)):
            return None
        known = self._fleet.enqueue_here(jobs[0], now)
        return None if known is None else [known]

    def outbox_sink(self) -> RedisOutboxSink:
        """Return the outbox sink of one relay."""
        return RedisOutboxSink(self._fleet, self._enqueue)

    async def _enqueue(self, jobs: Sequence[Job], now: int, carry: Carry) -> list[str]:
        await self._guard.require_room(self._links.here().info, _size(jobs))
        return await self._fleet.enqueue(jobs, now, carry)

    async def _time(self) -> int:
        return await self._links.here().time()

    async def claim(self, claim: Claim) -> Claimed:
        """Apply changes, then choose and lease jobs, at most as many as one script should lease."""
        return await self._fleet.claim(replace(claim, limit=min(claim.limit, _most(claim))))

    async def apply(self, changes: Sequence[Change], now: int) -> list[ChangeResult]:
        """Carry out changes that no session makes."""
        return await self._fleet.apply(changes, now)

    async def heartbeat(self, heartbeat: Heartbeat) -> bool:
        """Open a session or extend its lease; return whether it is alive."""
        return await self._fleet.heartbeat(heartbeat)

    async def recover(self, now: int, limit: int = 100) -> list[Job]:
        """Expire sessions past their lease; return the jobs they hold."""
        return await self._fleet.recover(now, limit)

    async def annotate(self, annotations: Sequence[Annotation]) -> list[bool]:
        """Request cancels and note progress."""
        return await self._fleet.annotate(annotations)

    async def progress(self, job_id: str) -> bytes | None:
        """Return the progress of a running job."""
        return await self._fleet.partition(partition_of(job_id)).progress(job_id)

    async def update_limits(self, updates: Sequence[LimitUpdate], now: int) -> None:
        """Change limits, rates, weights and pauses."""
        await self._fleet.update_limits(updates, now)

    async def compare_and_set(
        self, key: str, version: int, value: bytes | None, updates: Sequence[LimitUpdate] = (), now: int = 0
    ) -> Entry | None:
        """Set or delete an entry if it has this version, together with limit updates."""
        return await self._fleet.compare_and_set(key, version, value, updates, now)

    async def prune(self, retention: Retention) -> Pruned:
        """Delete what ended long enough ago."""
        return await self._fleet.prune(retention)

    async def find(self, wanted: Filter, now: int, cursor: str = "", limit: int = 100) -> Page:
        """Return a page of jobs."""
        return await self._fleet.find(wanted, now, cursor, limit)

    async def tally(self, by: Tally, wanted: Filter, now: int) -> dict[str, int]:
        """Count jobs by one of their fields."""
        return await self._fleet.tally(by, wanted, now)

    async def events(self, after: int = 0, limit: int = 1_000, job_id: str = "") -> list[tuple[int, Event]]:
        """Return events in the order in which they happened."""
        return await self._fleet.events(after, limit, job_id)

    async def result(self, job_id: str) -> bytes | None:
        """Return the result of a succeeded job."""
        return await self._fleet.partition(partition_of(job_id)).result(job_id)

    async def entries(self, prefix: str = "") -> list[Entry]:
        """Return the entries whose key begins with the prefix."""
        return await self._fleet.partition(0).entries(prefix)

    async def limit_states(self, subject: Subject, queue: str = "") -> list[LimitState]:
        """Return the limits and the use of every queue, tenant, task, dependency or group."""
        return await self._fleet.limit_states(subject, queue)

    async def wait(self, queues: Sequence[str], at_most: float, session: str = "") -> bool:
        """Wait until notified."""
        return await self._fleet.wait(queues, at_most, session)

    async def close(self) -> None:
        """Close the connections."""
        await self.clock.close()
        await self._links.close()

    def inject(self, point: FaultPoint) -> None:
        """Make the next write fail before or after it is stored."""
        self._fleet.partition(0).inject(point)


def _size(jobs: Sequence[Job]) -> int:
    """Return about how many bytes the jobs take on the server."""
    return sum(len(job.payload) for job in jobs) + 200 * len(jobs)


def _most(claim: Claim) -> int:
    """Return how many jobs a claim may lease; its changes tell how many tenants the next jobs belong to."""
    if claim.limit <= FEWEST_JOBS or not claim.changes:
        return MOST_JOBS
    share = len({change.job.tenant for change in claim.changes}) / len(claim.changes)
    return min(MOST_JOBS, round(FEWEST_JOBS / (0.25 + 0.75 * share)))
