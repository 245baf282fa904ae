"""Writes of entries: an entry, and all that is written with it, is in the first partition."""

from msgspec.structs import replace

from reprieve.core.audit import Author
from reprieve.core.ids import partition_of
from reprieve.errors import ValidationError
from reprieve.stores.protocol import EntryWrite, EntryWritten
from reprieve.stores.redis.partition import Grown
from reprieve.stores.redis.partitions import Partitions
from reprieve.stores.redis.shared_limits import SharedLimits
from reprieve.stores.redis.unique_keys import UniqueKeys


class PartitionedEntryWrites:
    """Writes entries with limits, new jobs and changes."""

    def __init__(self, partitions: Partitions, keys: UniqueKeys, limits: SharedLimits) -> None:
        """Take the partitions, the unique keys of a store that has several, and the limits."""
        self._partitions = partitions
        self._keys = keys
        self._limits = limits

    async def write(self, write: EntryWrite, now: int, author: Author) -> EntryWritten:
        """Write an entry and all that it carries, or nothing; raise a `ValidationError` for other partitions' jobs."""
        for job in (*write.jobs, *(change.job for change in write.changes)):
            if partition_of(job.id) != 0:
                message = (
                    f"job {job.id} is in another partition than entry {write.key!r}; "
                    "make its id with new_id(now, queue, beside=key)"
                )
                raise ValidationError(message)
        await self._partitions.load()
        if self._partitions.is_one:
            try:
                return await self._limits.compare_and_set(write, now, author)
            except Grown:
                await self._partitions.refresh()
        keyed = [job for job in write.jobs if job.key]
        if not keyed:
            return await self._limits.compare_and_set(write, now, author, has_keys=False)
        # A reservation that is not confirmed, because the write was refused, is free again after a minute.
        taken = await self._keys.reserve(keyed, now)
        fresh = replace(write, jobs=tuple(job for job in write.jobs if job.id not in taken))
        written = await self._limits.compare_and_set(fresh, now, author, has_keys=False)
        if written.entry is None:
            return written
        await self._keys.confirm([job for job in fresh.jobs if job.key], now)
        return replace(written, ids=tuple(taken.get(job.id, job.id) for job in write.jobs))
