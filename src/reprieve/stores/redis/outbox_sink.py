"""The outbox sink: where jobs out of an outbox arrive, each once, however often and however late it is brought.

Every job that lands leaves a trace in its partition, in the same write. The trace stays until the job's row is gone
from the outbox, and then for longer than anybody may hold what they took before: a repeat finds the trace, or comes too
late. What is too late the server's own clock tells, so that no process that stopped in between can be wrong about it.
"""

import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from reprieve.clock import ticks
from reprieve.core.ids import id_to_bytes, partition_of
from reprieve.core.job import Job
from reprieve.errors import StoreError
from reprieve.stores.redis.enqueue import MOST, Crossing
from reprieve.stores.redis.fleet import Carry, Fleet
from reprieve.stores.redis.partition import Partition

HEARD_FOR: Final = 10.0
"""Seconds after which a server's clock is asked again; what lands half a minute after it was heard is refused."""

NEVER: Final = Crossing(heard=0)

Bring: TypeAlias = Callable[[Sequence[Job], int, Carry], Awaitable[list[str]]]
"""Stores new jobs in another way than ever."""


class RedisOutboxSink:
    """Brings the jobs of one relay to a store."""

    def __init__(self, fleet: Fleet, bring: Bring) -> None:
        """Take the partitions, and what brings jobs to them."""
        self._fleet = fleet
        self._bring = bring
        self._latest: dict[int, tuple[float, int]] = {}
        """When the clock of each partition's server was heard last, and what it said."""
        self._heard: dict[int, int] = {}
        """What they had said when jobs were taken out of the outbox."""
        self._gone: defaultdict[int, list[bytes]] = defaultdict(list)
        """Jobs of each partition whose traces may go."""

    async def prepare(self) -> None:
        """Hear the servers' clocks; what is taken out of the outbox from now on can land for a while."""
        for partition in await self._fleet.known():
            at, _ = self._latest.get(partition.number, (-math.inf, 0))
            if ticks() - at > HEARD_FOR:
                await self._call(partition, (), 0, NEVER)
        self._heard = {number: clock for number, (_, clock) in self._latest.items()}

    async def deliver(self, jobs: Sequence[Job], now: int) -> list[str]:
        """Store jobs that were taken since `prepare`; answer for each the id under which it is known."""
        landed = await self._landed(jobs)
        fresh = [job for job in jobs if job.id not in landed] if landed else jobs
        known = dict(zip((job.id for job in fresh), await self._bring(fresh, now, self._carry), strict=True))
        return [known.get(job.id, job.id) for job in jobs]

    async def _landed(self, jobs: Sequence[Job]) -> set[str]:
        """Return which jobs have landed before whose keys, kept apart from their partitions, would be taken anew."""
        keyed = [job.id for job in jobs if job.key]
        if self._fleet.is_one or not keyed:
            return set()
        return {job_id for job_id, is_there in zip(keyed, await self._fleet.landed(keyed), strict=True) if is_there}

    def note_removed(self, ids: Sequence[str]) -> None:
        """Note that the rows of these jobs are gone from the outbox, for good."""
        for job_id in ids:
            self._gone[partition_of(job_id)].append(id_to_bytes(job_id))

    async def close(self) -> None:
        """Tell the servers what is gone, so that they need not remember it for months."""
        await self.prepare()
        for number, gone in self._gone.items():
            while gone:
                await self._carry(self._fleet.partition(number), (), 0, has_keys=False)

    async def _carry(self, partition: Partition, jobs: Sequence[Job], now: int, *, has_keys: bool) -> list[str]:
        ids: list[str] = []
        for start in range(0, len(jobs) or 1, MOST):
            gone = self._gone[partition.number][:MOST]
            # A partition that was added since the jobs were taken had said nothing yet.
            crossing = Crossing(heard=self._heard.get(partition.number, NEVER.heard), gone=b"".join(gone))
            landed = await self._call(partition, jobs[start : start + MOST], now, crossing, has_keys=has_keys)
            if landed is None:
                message = "the jobs were taken out of the outbox too long ago; take them again"
                raise StoreError(message)
            del self._gone[partition.number][: len(gone)]
            ids += landed
        return ids

    async def _call(
        self, partition: Partition, jobs: Sequence[Job], now: int, crossing: Crossing, *, has_keys: bool = False
    ) -> list[str] | None:
        at = ticks()
        clock, ids = await partition.deliver(jobs, now, crossing, has_keys=has_keys)
        self._latest[partition.number] = at, clock
        return ids
