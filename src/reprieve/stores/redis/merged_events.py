"""Events of several partitions in one order: that of their servers' times.

The position of an event in the whole store is its position in its partition times the number of partitions that an id
can name, plus the number of its partition. Events of the last second are held back, in either direction: a partition
whose clock is behind may still add earlier ones.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from reprieve.core.ids import PARTITIONS
from reprieve.stores.event_page import require_past
from reprieve.stores.protocol import EventPage, EventQuery

POSITIONS_PER_MS: Final = 64
"""How positions of events grow with their server's time: see events.lua."""

MAX_SKEW_MS: Final = 1_000
"""How far the clocks of servers may be apart."""


def own_query(query: EventQuery, number: int) -> EventQuery:
    """Return a query with the positions of a partition."""
    position, reached = divmod(query.after, PARTITIONS)
    after = position if number <= reached else position - 1
    if query.before is None:
        return replace(query, after=max(0, after))
    position, reached = divmod(query.before, PARTITIONS)
    return replace(query, after=max(0, after), before=position + (number < reached))


def with_partition(page: EventPage, number: int) -> EventPage:
    """Return the page of a partition with positions that hold for the whole store."""
    return replace(
        page,
        events=tuple((_whole(position, number), event) for position, event in page.events),
        position=_whole(page.position, number),
        newest=_whole(page.newest, number),
        pruned_to=_whole(page.pruned_to, number),
    )


def _whole(position: int, number: int) -> int:
    return position * PARTITIONS + number if position else 0


def merge(query: EventQuery, replies: Sequence[tuple[int, EventPage]]) -> EventPage:
    """Return one page of the pages of all partitions, each with its server's time."""
    pages = [with_partition(page, number) for number, (_, page) in enumerate(replies)]
    newest = max(page.newest for page in pages)
    require_past(query, newest)
    # All that a partition may still tell is after this.
    settled = max(0, (min(time for time, _ in replies) - MAX_SKEW_MS) * POSITIONS_PER_MS * PARTITIONS - 1)
    # Where a partition has more to read, the others can be believed only up to there.
    ends = [page.position for page in pages if page.has_more]
    found = [entry for page in pages for entry in page.events if entry[0] <= settled]
    if query.newest_first:
        bound = max(ends, default=0)
        found = sorted((entry for entry in found if entry[0] >= bound), key=lambda entry: entry[0], reverse=True)
    else:
        bound = min([*ends, settled])
        found = sorted((entry for entry in found if entry[0] <= bound), key=lambda entry: entry[0])
    is_cut = len(found) > query.limit
    found = found[: query.limit]
    newest = min(newest, settled)
    if is_cut:
        position = found[-1][0]
    elif query.newest_first:
        position = bound or min(query.before or newest + 1, newest + 1)
    else:
        position = max(query.after, min(bound, newest))
    return EventPage(
        events=tuple(found),
        position=position,
        has_more=is_cut or bool(ends),
        newest=newest,
        pruned_to=max(page.pruned_to for page in pages),
        missed=any(page.missed for _, page in replies),
    )
