"""The outbox sink: stores the jobs of an outbox, each once, however often and however late a relay brings it.

Every job that a relay brings leaves a relayed-job record in its partition, in the same write. The record stays until
the job's row is deleted from the outbox, and then for longer than a relay may hold rows that it took before: a repeated
delivery finds the record, or is too late. The server's own clock decides what is too late, so a relay that was stopped
in between cannot be wrong.
"""

import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from reprieve.clock import ticks
from reprieve.core.ids import id_to_bytes, partition_of
from reprieve.core.job import Job
from reprieve.errors import StoreError
from reprieve.stores.redis.enqueue import MAX_JOBS_PER_CALL, RelayReceipt
from reprieve.stores.redis.partition import Partition
from reprieve.stores.redis.partitioned_enqueue import WriteJobs
from reprieve.stores.redis.partitions import Partitions

READ_CLOCK_SECONDS: Final = 10.0
"""How long a reading of a server's clock is used. Jobs are refused half a minute after the reading."""

NO_RECEIPT: Final = RelayReceipt(taken_at=0)
"""The receipt of a call that only reads the clock."""

Enqueue: TypeAlias = Callable[[Sequence[Job], int, WriteJobs], Awaitable[list[str]]]
"""Stores new jobs with a given way to write them to a partition."""


class RedisOutboxSink:
    """Stores the jobs that one relay brings."""

    def __init__(self, partitions: Partitions, enqueue: Enqueue) -> None:
        """Take the partitions, and what stores new jobs."""
        self._partitions = partitions
        self._enqueue = enqueue
        self._clocks: dict[int, tuple[float, int]] = {}
        """When the clock of each partition's server was read last, and its time."""
        self._taken_at: dict[int, int] = {}
        """The servers' times before the jobs were taken out of the outbox."""
        self._removed: defaultdict[int, list[bytes]] = defaultdict(list)
        """Jobs of each partition whose rows are deleted from the outbox."""

    async def prepare(self) -> None:
        """Read the servers' clocks; what is taken out of the outbox from now on can be delivered for a while."""
        for partition in await self._partitions.load():
            at, _ = self._clocks.get(partition.number, (-math.inf, 0))
            if ticks() - at > READ_CLOCK_SECONDS:
                await self._call(partition, (), 0, NO_RECEIPT)
        self._taken_at = {number: clock for number, (_, clock) in self._clocks.items()}

    async def deliver(self, jobs: Sequence[Job], now: int) -> list[str]:
        """Store jobs that were taken since `prepare`; return for each the id under which it is known."""
        relayed = await self._relayed(jobs)
        fresh = [job for job in jobs if job.id not in relayed] if relayed else jobs
        known = dict(zip((job.id for job in fresh), await self._enqueue(fresh, now, self._write), strict=True))
        return [known.get(job.id, job.id) for job in jobs]

    async def _relayed(self, jobs: Sequence[Job]) -> set[str]:
        """Return jobs that were delivered before, if their keys are kept apart and would be taken again."""
        keyed = [job.id for job in jobs if job.key]
        if self._partitions.is_one or not keyed:
            return set()
        return {
            job_id
            for job_id, is_relayed in zip(keyed, await self._partitions.is_relayed(keyed), strict=True)
            if is_relayed
        }

    def note_removed(self, ids: Sequence[str]) -> None:
        """Note that the rows of these jobs are deleted from the outbox, for good."""
        for job_id in ids:
            self._removed[partition_of(job_id)].append(id_to_bytes(job_id))

    async def close(self) -> None:
        """Tell the servers which rows are deleted, so that they need not remember the jobs for months."""
        await self.prepare()
        for number, removed in self._removed.items():
            while removed:
                await self._write(self._partitions[number], (), 0, has_keys=False)

    async def _write(self, partition: Partition, jobs: Sequence[Job], now: int, *, has_keys: bool) -> list[str]:
        ids: list[str] = []
        for start in range(0, len(jobs) or 1, MAX_JOBS_PER_CALL):
            removed = self._removed[partition.number][:MAX_JOBS_PER_CALL]
            # The clock of a partition that was added since the jobs were taken has not been read.
            taken_at = self._taken_at.get(partition.number, NO_RECEIPT.taken_at)
            receipt = RelayReceipt(taken_at=taken_at, removed=b"".join(removed))
            some = jobs[start : start + MAX_JOBS_PER_CALL]
            delivered = await self._call(partition, some, now, receipt, has_keys=has_keys)
            if delivered is None:
                message = "the jobs were taken out of the outbox too long ago; take them again"
                raise StoreError(message)
            del self._removed[partition.number][: len(removed)]
            ids += delivered
        return ids

    async def _call(
        self, partition: Partition, jobs: Sequence[Job], now: int, receipt: RelayReceipt, *, has_keys: bool = False
    ) -> list[str] | None:
        at = ticks()
        clock, ids = await partition.deliver(jobs, now, receipt, has_keys=has_keys)
        self._clocks[partition.number] = at, clock
        return ids
