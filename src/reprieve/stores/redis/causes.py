"""Causes in Redis: pages of groups, merged over the partitions.

By the time of the last job, a page is what is newest in any partition, and every page is exact.

By count, a group may be the largest in sum without being among the largest anywhere. Each partition is asked for its
largest groups, and all of them for the counts of every name that was found. A name that was not found has at most the
sum of the smallest counts returned. If that is less than the count of the last group of the page, no group is missing;
else twice as many are read, until `MAX_MERGED_NAMES` are known. Then the page says that it may not be in order.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from reprieve.core.ids import id_from_bytes
from reprieve.stores.causes import (
    Listing,
    Place,
    first_hour,
    hours_from,
    listing_of,
    oldest_hour,
    read_cursor,
    write_cursor,
)
from reprieve.stores.protocol import HOUR_MS, CauseGroup, CausePage, CauseRequest
from reprieve.stores.redis.bounded_gather import bounded_gather
from reprieve.stores.redis.partition import Partition
from reprieve.stores.redis.replies import pairs, rows

MAX_MERGED_NAMES: Final = 2_000
"""Names of several partitions that are compared by their counts; about as many more may come with the last step."""

_KEYS: Final = {"count": "causes", "last": "causes_last"}
_encode = msgspec.msgpack.Encoder().encode


class _Ranking(NamedTuple):
    """Some names of a list in one partition, in descending order."""

    size: int
    """Names in the whole list."""
    places: list[Place]
    is_all: bool
    """Whether no name follows."""


class _Choice(NamedTuple):
    """The names of a page, in order."""

    places: list[Place]
    total: int
    is_total_exact: bool = True
    is_ordered: bool = True
    following: Place | None = None
    """Where the next page begins; None: this is the last one."""


class _Facts(NamedTuple):
    """What a partition knows of a group: see cause_groups.lua."""

    number: int
    first_at: bytes
    last_at: bytes
    id: bytes


async def read_causes(partitions: Sequence[Partition], request: CauseRequest, now: int) -> CausePage:
    """Return a page of groups of all partitions."""
    listing = listing_of(request)
    choice = await _choose(partitions, request, listing)
    found = await _groups(partitions, listing, [place.name for place in choice.places], request, now)
    if request.names is not None:
        found = sorted(found, key=lambda group: _place(request, group), reverse=True)
    return CausePage(
        groups=tuple(found),
        cursor="" if choice.following is None else write_cursor(request, choice.following),
        total=choice.total,
        is_total_exact=choice.is_total_exact,
        is_ordered=choice.is_ordered,
    )


def _place(request: CauseRequest, group: CauseGroup) -> Place:
    return Place(group.count if request.order == "count" else group.last_at, group.name)


async def _choose(partitions: Sequence[Partition], request: CauseRequest, listing: Listing) -> _Choice:
    """Return the names of a page."""
    if request.names is not None:
        (ranking,) = await _rank(partitions[:1], request, listing, None, 0)
        names = [Place(0, name) for name in request.names]
        return _Choice(names, ranking.size, is_total_exact=len(partitions) == 1)
    place = read_cursor(request)
    if len(partitions) == 1:
        (ranking,) = await _rank(partitions, request, listing, place, request.limit)
        following = None if ranking.is_all else ranking.places[-1]
        return _Choice(ranking.places, ranking.size, following=following)
    if request.order == "last":
        return await _newest(partitions, request, listing, place)
    return await _largest(partitions, request, listing, place)


async def _newest(
    partitions: Sequence[Partition], request: CauseRequest, listing: Listing, after: Place | None
) -> _Choice:
    """Return the names whose last jobs are the newest in any partition."""
    rankings = await _rank(partitions, request, listing, after, request.limit)
    found = {place.name for ranking in rankings for place in ranking.places}
    last: dict[str, int] = defaultdict(int)
    for scores in await _scores(partitions, request, listing, sorted(found)):
        for name, score in scores.items():
            last[name] = max(last[name], score)
    # What comes after the last name that a partition has returned may be there, and is not known yet.
    edges = [ranking.places[-1] for ranking in rankings if not ranking.is_all]
    edge = max(edges, default=Place(-1, ""))
    # A name that is newer in another partition was on a page before.
    known = sorted((Place(at, name) for name, at in last.items()), reverse=True)
    places = [place for place in known if place >= edge and (after is None or place < after)]
    has_more = bool(edges) or len(places) > request.limit
    places = places[: request.limit]
    following = (places[-1] if places else edge) if has_more else None
    return _Choice(places, *_total(rankings, found), following=following)


async def _largest(
    partitions: Sequence[Partition], request: CauseRequest, listing: Listing, after: Place | None
) -> _Choice:
    """Return the names that count most in all partitions together, after a place."""
    count = request.limit + 1
    while True:
        rankings = await _rank(partitions, request, listing, None, count)
        found = {place.name for ranking in rankings for place in ranking.places}
        sums: Counter[str] = Counter()
        for scores in await _scores(partitions, request, listing, sorted(found)):
            sums.update(scores)
        places = sorted((Place(number, name) for name, number in sums.items()), reverse=True)
        if after is not None:
            places = [place for place in places if place < after]
        unknown = sum(ranking.places[-1].value for ranking in rankings if not ranking.is_all)
        is_all = all(ranking.is_all for ranking in rankings)
        is_known = is_all or (len(places) > request.limit and places[request.limit - 1].value > unknown)
        if is_known or len(found) >= MAX_MERGED_NAMES:
            break
        count *= 2
    following = places[request.limit - 1] if len(places) > request.limit else None
    return _Choice(places[: request.limit], *_total(rankings, found), is_ordered=is_known, following=following)


def _total(rankings: Sequence[_Ranking], found: set[str]) -> tuple[int, bool]:
    """Return how many names there are at least, and whether these are all."""
    is_all = all(len(ranking.places) == ranking.size for ranking in rankings)
    return max(len(found), *(ranking.size for ranking in rankings)), is_all


async def _rank(
    partitions: Sequence[Partition], request: CauseRequest, listing: Listing, after: Place | None, count: int
) -> list[_Ranking]:
    """Return the names of a list after a place, of each partition."""
    list_name = ("l" if listing.is_living else "d") + listing.kind + listing.scope
    place = ("", "") if after is None else (after.value, after.name)

    async def ask(partition: Partition) -> _Ranking:
        reply = await partition.reads.run("cause_ranking", _KEYS[request.order], list_name, *place, count + 1)
        places = [Place(int(float(score)), name.decode()) for name, score in pairs(reply[1:])]
        return _Ranking(reply[0], places[:count], len(places) <= count)

    return await bounded_gather(ask(partition) for partition in partitions)


async def _scores(
    partitions: Sequence[Partition], request: CauseRequest, listing: Listing, names: Sequence[str]
) -> list[dict[str, int]]:
    """Return the counts or times of names that each partition has."""
    if not names:
        return []
    key = f"{_KEYS[request.order]}:{'l' if listing.is_living else 'd'}{listing.kind}{listing.scope}"

    async def ask(partition: Partition) -> dict[str, int]:
        scores = await partition.reads.command("ZMSCORE", key, *names)
        return {name: int(float(score)) for name, score in zip(names, scores, strict=True) if score is not None}

    return await bounded_gather(ask(partition) for partition in partitions)


def _group_of(listing: Listing, name: str) -> str:
    """Return the group of a name in a list: see causes.lua."""
    match listing.kind:
        case "p":
            return f"p{listing.scope}\0{name}"
        case "h":
            return f"p{name}\0{listing.scope}"
        case kind:
            return kind + name


async def _groups(
    partitions: Sequence[Partition], listing: Listing, names: Sequence[str], request: CauseRequest, now: int
) -> list[CauseGroup]:
    """Return the groups of these names in all partitions, in their order; those that are gone are left out."""
    if not names:
        return []
    since = oldest_hour(now, is_living=True) if listing.is_living else first_hour(request, now)
    groups = _encode([_group_of(listing, name) for name in names])
    fate = "l" if listing.is_living else "d"
    replies = await bounded_gather(partition.reads.run("cause_groups", fate, since, groups) for partition in partitions)
    hours = _hours_of(replies)
    facts = [list(rows(_Facts, known)) for known, _ in replies]
    first = first_hour(request, now)
    merged = (
        _merged(name, [known[number] for known in facts], hours[number], first, is_living=listing.is_living)
        for number, name in enumerate(names)
    )
    oldest = since * HOUR_MS if listing.is_living else 0
    return [group for group in merged if group is not None and group.last_at >= oldest]


class _InHour(NamedTuple):
    """What a group counts in one hour: see cause_groups.lua."""

    group: int
    hour: bytes
    number: bytes


def _hours_of(replies: Iterable[Any]) -> dict[int, Counter[int]]:
    """Return the counts of groups, by their numbers, and by the hour."""
    hours: dict[int, Counter[int]] = defaultdict(Counter)
    for _, counted in replies:
        for one in rows(_InHour, counted):
            hours[one.group][int(one.hour)] += int(one.number)
    return hours


def _merged(
    name: str, facts: Iterable[_Facts], hours: Counter[int], first: int, *, is_living: bool
) -> CauseGroup | None:
    known = [fact for fact in facts if fact.number]
    if not known:
        return None
    last = max(known, key=lambda fact: (int(float(fact.last_at)), fact.id))
    return CauseGroup(
        name=name,
        count=hours.total() if is_living else sum(fact.number for fact in known),
        first_at=min(int(float(fact.first_at)) for fact in known),
        last_at=int(float(last.last_at)),
        sample_id=id_from_bytes(last.id),
        hours=hours_from(hours.items(), first),
    )
