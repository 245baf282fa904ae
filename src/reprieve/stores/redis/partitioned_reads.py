"""Reads over partitions: each reads its own, and the results are merged."""

from collections import Counter
from typing import Final

from msgspec.structs import replace

from reprieve.core.events import Event
from reprieve.core.ids import PARTITIONS, partition_of
from reprieve.core.job import Job
from reprieve.core.status import Status
from reprieve.errors import InvalidCursor
from reprieve.stores.protocol import Filter, LimitPage, LimitUpdate, Page, Subject, Tally
from reprieve.stores.redis.bounded_gather import bounded_gather
from reprieve.stores.redis.limit_pages import LimitPages
from reprieve.stores.redis.partition import Partition
from reprieve.stores.redis.partitions import Partitions
from reprieve.stores.redis.shared_limits import SharedLimits

POSITIONS_PER_MS: Final = 64
"""How positions of events grow with their server's time: see events.lua."""

MAX_SKEW_MS: Final = 1_000
"""How far the clocks of servers may be apart."""


class PartitionedReads:
    """Reads jobs, events and limit states of all partitions."""

    def __init__(self, partitions: Partitions, limits: SharedLimits) -> None:
        """Take the partitions, and the limits that they share."""
        self._partitions = partitions
        self._limits = limits
        self._pages = LimitPages(partitions, limits)

    async def find(self, wanted: Filter, now: int, cursor: str, limit: int) -> Page:
        """Return jobs, one partition after the other; a cursor is the partition's number and its own cursor."""
        await self._partitions.load_for(wanted.ids or ())
        if self._partitions.is_one:
            return await self._partitions[0].reads.find(wanted, now, cursor, limit)
        if wanted.ids is not None:
            pages = await self._partitions.spread(
                wanted.ids, str, lambda partition, ids: _find_by_ids(partition, replace(wanted, ids=tuple(ids)), now)
            )
            found = [one for one in pages if one is not None]
            return Page(jobs=tuple(job for job, _ in found), statuses=tuple(status for _, status in found))
        number, _, rest = cursor.partition(".") if cursor else ("0", "", "")
        if not number.isdecimal() or not number.isascii() or int(number) >= len(self._partitions):
            message = f"cursor {cursor[:80]!r} does not belong to this search; begin again without one"
            raise InvalidCursor(message)
        page = await self._partitions[int(number)].reads.find(wanted, now, rest, limit)
        if page.cursor:
            return replace(page, cursor=f"{number}.{page.cursor}")
        following = int(number) + 1
        return replace(page, cursor=f"{following}." if following < len(self._partitions) else "")

    async def tally(self, by: Tally, wanted: Filter, now: int) -> dict[str, int]:
        """Return how many jobs there are, grouped, in all partitions."""
        counts: Counter[str] = Counter()
        partitions = await self._partitions.load()
        for found in await bounded_gather(partition.reads.tally(by, wanted, now) for partition in partitions):
            counts.update(found)
        return dict(counts)

    async def events(self, after: int, limit: int, job_id: str) -> list[tuple[int, Event]]:
        """Return events of all partitions in the order of their servers' times.

        Events of the last second are held back: a partition whose clock is behind may still add earlier ones.
        """
        await self._partitions.load_for((job_id,) if job_id else ())
        if self._partitions.is_one:
            return (await self._partitions[0].reads.events(after, limit, job_id))[1]
        if job_id:
            number = partition_of(job_id)
            _, found = await self._partitions[number].reads.events(_own_position(after, number), limit, job_id)
            return _with_partition(found, number)
        replies = await bounded_gather(
            partition.reads.events(_own_position(after, partition.number), limit, "")
            for partition in self._partitions.all()
        )
        latest = (min(time for time, _ in replies) - MAX_SKEW_MS) * POSITIONS_PER_MS * PARTITIONS
        merged = [entry for number, (_, found) in enumerate(replies) for entry in _with_partition(found, number)]
        return sorted((entry for entry in merged if entry[0] < latest), key=lambda entry: entry[0])[:limit]

    async def limit_states(self, subject: Subject, queue: str, prefix: str, cursor: str, limit: int) -> LimitPage:
        """Return a page of limit states, summed over all partitions."""
        return await self._pages.page(subject, queue, prefix, cursor, limit)

    async def limit_defaults(self) -> list[LimitUpdate]:
        """Return the defaults that are set."""
        partitions = await self._partitions.load()
        if len(partitions) == 1:
            return await partitions[0].reads.limit_defaults()
        return await self._limits.defaults()


async def _find_by_ids(partition: Partition, wanted: Filter, now: int) -> list[tuple[Job, Status] | None]:
    page = await partition.reads.find(wanted, now, "", len(wanted.ids or ()))
    found = {job.id: (job, status) for job, status in zip(page.jobs, page.statuses, strict=True)}
    return [found.get(job_id) for job_id in wanted.ids or ()]


def _with_partition(found: list[tuple[int, Event]], number: int) -> list[tuple[int, Event]]:
    """Return events with positions that hold for the whole store."""
    return [(position * PARTITIONS + number, event) for position, event in found]


def _own_position(after: int, number: int) -> int:
    """Return the position in a partition's own stream after which to go on."""
    position, reached = divmod(after, PARTITIONS)
    return position if number <= reached else position - 1
