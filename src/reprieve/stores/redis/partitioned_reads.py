"""Reads over partitions: each reads its own, and the results are merged."""

from collections.abc import Sequence

from msgspec.structs import replace

from reprieve.core.ids import partition_of
from reprieve.core.series import SeriesSubject, Step
from reprieve.stores.event_page import require_past
from reprieve.stores.merged_looks import merge_looks
from reprieve.stores.places import Position, Wanted
from reprieve.stores.protocol import (
    MAX_SERIES_NAMES,
    EventPage,
    EventQuery,
    Filter,
    LimitPage,
    LimitUpdate,
    Page,
    Series,
    SeriesName,
    SeriesRequest,
    Subject,
    Tallied,
    Tally,
)
from reprieve.stores.redis import merged_events
from reprieve.stores.redis.bounded_gather import bounded_gather
from reprieve.stores.redis.find import is_key
from reprieve.stores.redis.limit_pages import LimitPages
from reprieve.stores.redis.partition import Partition
from reprieve.stores.redis.partitions import Partitions
from reprieve.stores.redis.shared_limits import SharedLimits
from reprieve.stores.search import Found, Look, page_of
from reprieve.stores.search_cursor import read_cursor, write_cursor
from reprieve.stores.series import StoredLine, assemble, buckets, rank, ranking_buckets


class PartitionedReads:
    """Reads jobs, events and limit states of all partitions."""

    def __init__(self, partitions: Partitions, limits: SharedLimits) -> None:
        """Take the partitions, and the limits that they share."""
        self._partitions = partitions
        self._limits = limits
        self._pages = LimitPages(partitions, limits)

    async def find(self, wanted: Wanted, cursor: str, limit: int) -> Page:
        """Return jobs of all partitions, merged in order; each partition has its own position in the cursor."""
        only = wanted.filter
        await self._partitions.load_for(only.ids or ())
        if only.ids is not None:
            found = await self._partitions.spread(
                only.ids, str, lambda partition, ids: _find_by_ids(partition, wanted, tuple(ids))
            )
            return page_of(Look([one for one in found if one is not None], None, len(only.ids)), only, "")
        partitions = self._partitions.all()
        positions = read_cursor(cursor, only, wanted.order, is_key) if cursor else []
        # Partitions that were added meanwhile are searched from the start.
        missing = len(partitions) - len(positions)
        starts: list[Position | None] = [*positions[: len(partitions)], *[Position(0, None)] * missing]
        looks = await bounded_gather(
            partition.reads.look(wanted, start, limit) if start is not None else _nothing()
            for partition, start in zip(partitions, starts, strict=True)
        )
        merged, following = merge_looks(looks, starts, limit, newest=wanted.is_newest)
        has_more = any(position is not None for position in following)
        return page_of(merged, only, write_cursor(only, wanted.order, following) if has_more else "")

    async def tallies(self, by: Tally, wanted: Filter, now: int, at_most: int) -> list[Tallied]:
        """Return how many jobs there are, grouped, in each partition."""
        partitions = await self._partitions.load()
        return await bounded_gather(partition.reads.tally(by, wanted, now, at_most) for partition in partitions)

    async def events(self, query: EventQuery) -> EventPage:
        """Return events of all partitions in the order of their servers' times; see `merged_events.py`."""
        await self._partitions.load_for((query.job_id,) if query.job_id else ())
        if self._partitions.is_one:
            _, page = await self._partitions[0].reads.events(query)
            require_past(query, page.newest)
            return page
        if query.job_id:
            number = partition_of(query.job_id)
            return merged_events.with_partition(
                (await self._partitions[number].reads.events(merged_events.own_query(query, number)))[1], number
            )
        return merged_events.merge(
            query,
            await bounded_gather(
                partition.reads.events(merged_events.own_query(query, partition.number))
                for partition in self._partitions.all()
            ),
        )

    async def series(self, request: SeriesRequest) -> list[Series]:
        """Return the series of names, summed over all partitions."""
        names = request.names or ("",) if request.subject == "all" else request.names
        if not names:
            found = await self.series_names(request.subject, request.since_at, request.until_at, MAX_SERIES_NAMES)
            names = tuple(one.name for one in found)
        ats = buckets(request.since_at, request.until_at, request.step)
        lines = await self._lines(request.step, request.subject, ats, names) if names else []
        return assemble(request, names, lines)

    async def series_names(self, subject: SeriesSubject, since_at: int, until_at: int, limit: int) -> list[SeriesName]:
        """Return names that have lines in any partition, those with the most jobs first."""
        step, ats = ranking_buckets(since_at, until_at)
        return rank(await self._lines(step, subject, ats), limit)

    async def _lines(
        self, step: Step, subject: SeriesSubject, ats: range, names: Sequence[str] = ()
    ) -> list[StoredLine]:
        partitions = await self._partitions.load()
        found = await bounded_gather(partition.reads.lines(step, subject, ats, names) for partition in partitions)
        return [line for lines in found for line in lines]

    async def limit_states(self, subject: Subject, queue: str, prefix: str, cursor: str, limit: int) -> LimitPage:
        """Return a page of limit states, summed over all partitions."""
        return await self._pages.page(subject, queue, prefix, cursor, limit)

    async def limit_defaults(self) -> list[LimitUpdate]:
        """Return the defaults that are set."""
        partitions = await self._partitions.load()
        if len(partitions) == 1:
            return await partitions[0].reads.limit_defaults()
        return await self._limits.defaults()


async def _find_by_ids(partition: Partition, wanted: Wanted, ids: tuple[str, ...]) -> list[Found | None]:
    asked = replace(wanted, filter=replace(wanted.filter, ids=ids))
    looked = await partition.reads.look(asked, None, len(ids))
    found = {one.job.id: one for one in looked.found}
    return [found.get(job_id) for job_id in ids]


async def _nothing() -> Look:
    return Look((), None)
