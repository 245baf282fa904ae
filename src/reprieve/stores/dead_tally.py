"""Tallies of dead jobs by their causes, from the counts that are kept of these."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from msgspec.structs import replace

from reprieve.stores.protocol import (
    MAX_CAUSES_PER_PAGE,
    CauseGrouping,
    CausePage,
    CauseRequest,
    Filter,
    Tallied,
    Tally,
)

MAX_PAGES: Final = 5
"""Pages of causes that a tally reads; the names with the most jobs come first."""

ReadCauses: TypeAlias = Callable[[CauseRequest], Awaitable[CausePage]]

_GROUPINGS: Final[dict[Tally, CauseGrouping]] = {
    "fingerprint": "fingerprint",
    "code": "code",
    "tenant": "tenant",
    "task": "task",
    "death": "death",
}


def is_of_causes(by: Tally, wanted: Filter) -> bool:
    """Return whether the counts of causes answer a tally: of all dead jobs, by what they are grouped by."""
    only_dead = Filter(statuses=frozenset({"dead"}))
    return by in _GROUPINGS and replace(wanted, stuck_after=None) == only_dead


async def tally_dead(read: ReadCauses, by: Tally, top: int | None) -> Tallied:
    """Count dead jobs by what they are grouped by."""
    counts: dict[str, int] = {}
    limit = MAX_CAUSES_PER_PAGE * MAX_PAGES if top is None else min(top, MAX_CAUSES_PER_PAGE * MAX_PAGES)
    request = CauseRequest(by=_GROUPINGS[by], limit=min(limit, MAX_CAUSES_PER_PAGE))
    while True:
        page = await read(request)
        counts |= {group.name: group.count for group in page.groups}
        if not page.cursor or len(counts) >= limit:
            break
        request = replace(request, cursor=page.cursor)
    first = dict(list(counts.items())[:limit])
    return Tallied(
        counts={name: count for name, count in first.items() if name or by in ("tenant", "task")},
        is_exact=page.is_ordered,
        left_out=max(0, page.total - len(first)),
    )
