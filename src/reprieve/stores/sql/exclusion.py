"""How the claims on SQL databases skip the lanes of excluded tasks, after they were read."""

from collections.abc import Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from reprieve.core.fairness.exclusion import Exclusion
from reprieve.core.fairness.settings import DEFAULTS
from reprieve.stores.sql.candidates import LaneRow

Row = TypeVar("Row", bound=LaneRow)


class TenantLanes(NamedTuple, Generic[Row]):
    """The open lanes of a tenant that a claim may take from."""

    rows: Sequence[Row]
    has_more: bool
    """Whether there are others that were not read."""
    has_excluded: bool = False


class LaneReader(Protocol[Row]):
    """Reads more of the open lanes of tenants that have many."""

    def count_open_lanes(self, tenants: Sequence[int]) -> list[int]:
        """Return how many open lanes each tenant has."""
        ...

    def lanes_among(self, tenants: Sequence[int], skips: Sequence[int], size: int) -> list[list[Row]]:
        """Return of each tenant the lanes that are not excluded, among the `size` lanes after the first `skip` ones.

        At most one more than a claim considers.
        """
        ...


def skip_excluded(exclusion: Exclusion, read: dict[int, TenantLanes[Row]], reader: LaneReader[Row]) -> None:
    """Take the excluded lanes out of those that were read of tenants; look further where none is left."""
    beyond: list[int] = []
    for tenant, (rows, has_more, _) in read.items():
        kept = [row for row in rows if row.limiters[0] not in exclusion.tasks]
        if len(kept) == len(rows):
            continue
        if has_more and not kept:
            beyond.append(tenant)
        read[tenant] = TenantLanes(kept, has_more=has_more and bool(kept), has_excluded=True)
    if beyond:
        size, skips = exclusion.lane_part(reader.count_open_lanes(beyond))
        for tenant, found in zip(beyond, reader.lanes_among(beyond, skips, size), strict=True):
            most = DEFAULTS.max_lanes_read
            read[tenant] = TenantLanes(found[:most], has_more=len(found) > most, has_excluded=True)
    for lanes in read.values():
        if lanes.has_excluded:
            exclusion.skip(is_whole_tenant=not lanes.rows)
