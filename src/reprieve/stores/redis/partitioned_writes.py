"""Writes over partitions that are neither enqueues nor calls of a session."""

import math
from collections.abc import Sequence

from msgspec.structs import replace

from reprieve.core.change import Change
from reprieve.core.ids import partition_of
from reprieve.core.job import Job
from reprieve.stores.protocol import Annotation, ChangeResult, Expired, Pruned, Retention
from reprieve.stores.redis.bounded_gather import bounded_gather
from reprieve.stores.redis.partition import Partition
from reprieve.stores.redis.partitions import Partitions
from reprieve.stores.redis.unique_keys import UniqueKeys


class PartitionedWrites:
    """Applies changes and annotations, recovers and prunes; each write is atomic inside its partition."""

    def __init__(self, partitions: Partitions, keys: UniqueKeys) -> None:
        """Take the partitions, and the unique keys of a store that has several."""
        self._partitions = partitions
        self._keys = keys
        self._expires_next = 0
        """The partition that is the next to be asked for expired jobs: none waits until others have no more."""

    async def apply(self, changes: Sequence[Change], now: int) -> list[ChangeResult]:
        """Apply changes, each in its job's partition."""
        await self._partitions.load_for(change.job.id for change in changes)
        if self._partitions.is_one:
            return await self._partitions[0].apply(changes, now)
        return await self._partitions.spread(
            changes, lambda change: change.job.id, lambda partition, some: partition.apply(some, now)
        )

    async def recover(self, now: int, limit: int) -> list[Job]:
        """Expire sessions past their lease in every partition; return jobs they hold."""
        jobs: list[Job] = []
        for partition in await self._partitions.load():
            # Sessions expire in all partitions, also when no more jobs are wanted.
            jobs += await partition.recover(now, limit - len(jobs))
        return jobs

    async def expire(self, now: int, limit: int) -> Expired:
        """End waiting jobs whose time has come, in every partition; return them."""
        partitions = await self._partitions.load()
        jobs: list[Job] = []
        has_more = False
        first = self._expires_next
        for number in range(first, first + len(partitions)):
            if len(jobs) == limit:
                return Expired(jobs=tuple(jobs), has_more=True)
            self._expires_next = (number + 1) % len(partitions)
            expired = await partitions[number % len(partitions)].expire(now, limit - len(jobs))
            jobs += expired.jobs
            has_more = has_more or expired.has_more
        return Expired(jobs=tuple(jobs), has_more=has_more)

    async def annotate(self, annotations: Sequence[Annotation]) -> list[bool]:
        """Request a cancel or note progress; return for each whether its job runs."""
        return await self._partitions.spread(annotations, lambda annotation: annotation.job_id, Partition.annotate)

    async def prune(self, retention: Retention) -> Pruned:
        """Forget what has ended long enough ago, in every partition; return how much."""
        partitions = await self._partitions.load()
        kept = math.ceil(retention.succeeded / len(partitions))

        def part(partition: Partition) -> Retention:
            archived = tuple(job for job in retention.archived if partition_of(job.id) == partition.number)
            return replace(retention, succeeded=kept, archived=archived)

        pruned = await bounded_gather(partition.prune(part(partition)) for partition in partitions)
        keys = 0 if len(partitions) == 1 else await self._keys.prune(retention.now)
        sums = {name: sum(getattr(one, name) for one in pruned) for name in Pruned.__struct_fields__}
        return Pruned(**sums | {"keys": sums["keys"] + keys, "has_more": any(one.has_more for one in pruned)})
