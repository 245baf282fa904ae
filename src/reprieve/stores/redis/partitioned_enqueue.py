"""Enqueue over partitions: each job goes to the partition that its id names; unique keys are kept apart from jobs."""

from collections.abc import Sequence
from typing import Protocol

from reprieve.clock import ticks
from reprieve.core.ids import partition_of
from reprieve.core.job import Job
from reprieve.stores.redis.enqueue import MAX_JOBS_PER_CALL
from reprieve.stores.redis.partition import Grown, Partition
from reprieve.stores.redis.partitions import Partitions
from reprieve.stores.redis.unique_keys import RELIED_ON_SECONDS, UniqueKeys


class WriteJobs(Protocol):
    """How jobs are written to a partition; with several partitions without their unique keys."""

    async def __call__(self, partition: Partition, jobs: Sequence[Job], now: int, /, *, has_keys: bool) -> list[str]:
        """Write jobs; return for each the id under which it is known. Raises `Grown`."""
        ...


class PartitionedEnqueue:
    """Stores new jobs."""

    def __init__(self, partitions: Partitions, keys: UniqueKeys) -> None:
        """Take the partitions, and the unique keys of a store that has several."""
        self._partitions = partitions
        self._keys = keys

    async def enqueue(self, jobs: Sequence[Job], now: int, write: WriteJobs = Partition.enqueue) -> list[str]:
        """Store new jobs; return for each the id under which it is known."""
        await self._partitions.load_for(job.id for job in jobs)
        if self._partitions.is_one:
            try:
                return await write(self._partitions[0], jobs, now, has_keys=True)
            except Grown:
                await self._partitions.refresh()
        began = ticks()
        known: dict[str, str] = {}
        keyed = [job for job in jobs if job.key]
        for start in range(0, len(keyed), MAX_JOBS_PER_CALL):
            # A reservation has a minute from when it is made, and earlier batches may have taken long.
            at = now + int(1_000 * (ticks() - began))
            known |= await self._store_keyed(keyed[start : start + MAX_JOBS_PER_CALL], at, write)
        known |= await self._store([job for job in jobs if not job.key], now, write)
        return [known[job.id] for job in jobs]

    def enqueue_here(self, job: Job, now: int) -> str | None:
        """Store a new job from the calling thread; None if that takes more than one round trip, or failed."""
        number = partition_of(job.id)
        if (job.key and not self._partitions.is_one) or number >= len(self._partitions):
            return None
        return self._partitions[number].enqueue_here(job, now)

    async def _store(self, jobs: Sequence[Job], now: int, write: WriteJobs) -> dict[str, str]:
        ids = await self._partitions.spread(
            jobs, lambda job: job.id, lambda partition, some: write(partition, some, now, has_keys=False)
        )
        return {job.id: job_id for job, job_id in zip(jobs, ids, strict=True)}

    async def _store_keyed(self, jobs: Sequence[Job], now: int, write: WriteJobs) -> dict[str, str]:
        """Reserve keys, store the jobs that have them, and confirm them."""
        began = ticks()
        taken = await self._keys.reserve(jobs, now)
        if (late := ticks() - began) > RELIED_ON_SECONDS:
            # Another producer may have taken the reservation for that of a dead one.
            now += int(1_000 * late)
            taken = await self._keys.reserve(jobs, now)
        fresh = [job for job in jobs if job.id not in taken]
        stored = await self._store(fresh, now, write)
        await self._keys.confirm(fresh, now)
        return taken | stored
