"""Lanes by their ids, cached: an id is a hash of names, so what it stands for never changes."""

from collections.abc import Iterator

from reprieve.stores.postgres.lane_ref import LaneRef, lane_ref
from reprieve.stores.postgres.pool import Tx
from reprieve.stores.postgres.rows import array_of
from reprieve.stores.postgres.statements import statements
from reprieve.stores.sql.lanes import SqlLaneCache


class LaneCache(SqlLaneCache[Tx, LaneRef]):
    """The lanes that this process has read, also lanes that no claim has counted yet."""

    def _read(self, tx: Tx, lanes: set[int]) -> Iterator[LaneRef]:
        missing = set(lanes)
        for source in ("counted", "uncounted"):
            if missing:
                for lane, *names in tx.all(statements("lanes")[source], {"lanes": array_of(missing)}):
                    missing.discard(lane)
                    yield lane_ref(*names)
