"""Pages of limit states, over all partitions.

A hash has no order, so the first page reads the names in steps, each of which takes the server a millisecond, and
later pages go on in the listing that it made. What a page says of its names is read when it is asked for, but for the
number of ready jobs, which is that of the listing.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from reprieve.core.job import Job
from reprieve.stores.name_cursor import NEXT, read_cursor, write_cursor
from reprieve.stores.protocol import LimitPage, LimitState, Subject
from reprieve.stores.redis.bounded_gather import bounded_gather
from reprieve.stores.redis.limit_states import LaneState, decode_lane, field_of, key_of
from reprieve.stores.redis.partition import Partition
from reprieve.stores.redis.partitions import Partitions
from reprieve.stores.redis.records import lane_model
from reprieve.stores.redis.shared_limits import SharedLimits

LISTING_SECONDS: Final = 60.0
"""How long a listing serves the pages after the first."""

Key: TypeAlias = tuple[str, str, str]
"""The queue of a tenant or "", a name, and the dependency of a pair or ""."""


class ReadyLane(NamedTuple):
    """A lane with ready jobs."""

    partition: int
    name: bytes
    ready: int


class Listing(NamedTuple):
    """The names of a subject, in order, with their lanes."""

    made_at: float
    keys: list[Key]
    lanes: dict[Key, list[ReadyLane]]


class LimitPages:
    """Reads limit states, a page at a time."""

    def __init__(self, partitions: Partitions, limits: SharedLimits) -> None:
        """Take the partitions, and the limits that they share."""
        self._partitions = partitions
        self._limits = limits
        self._listings: dict[Subject, Listing] = {}

    async def page(self, subject: Subject, queue: str, prefix: str, cursor: str, limit: int) -> LimitPage:
        """Return a page in the order of queue, name and dependency."""
        start: Key = read_cursor(cursor)
        partitions = await self._partitions.load()
        listing = await self._listing(partitions, subject, is_first=not cursor)
        chosen = [key for key in listing.keys if key >= start and _is_in(key, subject, queue, prefix)][: limit + 1]
        states = await self._states(partitions, subject, chosen[:limit], listing)
        if len(chosen) <= limit:
            return LimitPage(states=tuple(states))
        of_queue, name, dependency = chosen[limit - 1]
        return LimitPage(states=tuple(states), cursor=write_cursor((of_queue, name, dependency + NEXT)))

    async def _listing(self, partitions: Sequence[Partition], subject: Subject, *, is_first: bool) -> Listing:
        now = asyncio.get_running_loop().time()
        self._listings = {
            other: listing for other, listing in self._listings.items() if now - listing.made_at < LISTING_SECONDS
        }
        listing = self._listings.get(subject)
        if listing is None or is_first:
            listing = self._listings[subject] = await _list(partitions, subject, now)
        return listing

    async def _states(
        self, partitions: Sequence[Partition], subject: Subject, keys: Sequence[Key], listing: Listing
    ) -> list[LimitState]:
        if not keys:
            return []
        fields = [field_of(subject, key) for key in keys]
        found = await bounded_gather(partition.reads.states_of(subject, fields) for partition in partitions)
        sums = [_sum_all(states) for states in zip(*found, strict=True)]
        if len(partitions) > 1:
            sums = await self._limits.with_whole_limits(sums)
        oldest = await self._oldest(partitions, keys, listing)
        return [
            replace(state, ready=sum(lane.ready for lane in listing.lanes.get(key, ())), oldest_at=oldest.get(key))
            for key, state in zip(keys, sums, strict=True)
        ]

    @staticmethod
    async def _oldest(partitions: Sequence[Partition], keys: Sequence[Key], listing: Listing) -> dict[Key, int]:
        """Return since when the oldest job of each name is ready."""
        oldest: dict[Key, int] = {}
        for partition in partitions:
            named = ((key, lane) for key in keys for lane in listing.lanes.get(key, ()))
            lanes = [(key, lane.name) for key, lane in named if lane.partition == partition.number]
            times = await partition.reads.ready_since([name for _, name in lanes])
            for (key, _), at in zip(lanes, times, strict=True):
                if at is not None:
                    oldest[key] = min(at, oldest.get(key, at))
        return oldest


async def _list(partitions: Sequence[Partition], subject: Subject, now: float) -> Listing:
    """Read the names of a subject: those that are stored, and those of lanes with ready jobs."""
    lanes: dict[Key, list[ReadyLane]] = defaultdict(list)
    keys: set[Key] = set()
    for partition in partitions:
        async for name, state in _lanes(partition):
            key = _key_in(subject, lane_model(name))
            if key is not None and state.ready > 0:
                lanes[key].append(ReadyLane(partition.number, name, state.ready))
        async for field in partition.reads.fields_of(subject):
            keys.add(key_of(subject, field))
    return Listing(now, sorted(keys | lanes.keys()), dict(lanes))


async def _lanes(partition: Partition) -> AsyncIterator[tuple[bytes, LaneState]]:
    async for name, packed in partition.reads.scan_hash("lanes"):
        yield name, decode_lane(packed)


def _key_in(subject: Subject, lane: Job) -> Key | None:
    """Return the name of a subject that a lane has; None if it has none."""
    match subject:
        case "tenant":
            return lane.queue, lane.tenant, ""
        case "tenant_dependency":
            return ("", lane.tenant, lane.dependency) if lane.dependency else None
        case "queue" | "task" | "dependency" | "group":
            name: str = getattr(lane, subject)
            return ("", name, "") if name else None


def _is_in(key: Key, subject: Subject, queue: str, prefix: str) -> bool:
    of_queue, name, _ = key
    is_of_queue = (
        not queue or subject not in ("tenant", "queue") or queue == (of_queue if subject == "tenant" else name)
    )
    return is_of_queue and name.startswith(prefix)


def _sum_all(states: Iterable[LimitState]) -> LimitState:
    """Return the state of a name in all partitions."""
    first, *others = states
    for other in others:
        times = [at for at in (first.served_at, other.served_at) if at is not None]
        first = replace(
            first,
            own=first.own or other.own,
            running=first.running + other.running,
            served=first.served + other.served,
            served_at=max(times, default=None),
            streak=max(first.streak, other.streak),
            rounds=max(first.rounds, other.rounds),
        )
    return first
