"""Lanes by their ids, cached: an id is a hash of names, so what it stands for never changes, with or without a row."""

from collections.abc import Iterator

from reprieve.stores.postgres.lane_ref import LaneRef, lane_ref
from reprieve.stores.postgres.pool import Tx
from reprieve.stores.postgres.rows import array_of
from reprieve.stores.postgres.statements import statements
from reprieve.stores.sql.lanes import CacheAge, SqlLaneCache


class KnownLanes(dict[int, LaneRef]):
    """The lanes that this process has read; threads share them."""

    def __init__(self) -> None:
        """Start empty."""
        super().__init__()
        self._age = CacheAge()

    def trim(self) -> None:
        """Drop all lanes when it is time, with those that were made of the names of jobs."""
        if self._age.is_over(len(self)):
            self.clear()
            lane_ref.cache_clear()


class LaneCache(SqlLaneCache[Tx, LaneRef]):
    """The lanes that a transaction uses, also lanes that no claim has counted yet. It keeps what it has loaded."""

    def __init__(self, known: KnownLanes) -> None:
        """Take the lanes that the process knows."""
        super().__init__()
        self._known = known
        known.trim()

    def _read(self, tx: Tx, lanes: set[int]) -> Iterator[LaneRef]:
        missing = set()
        for lane in lanes:
            ref = self._known.get(lane)
            if ref is None:
                missing.add(lane)
            else:
                yield ref
        for source in ("counted", "uncounted"):
            if missing:
                for lane, *names in tx.all(statements("lanes")[source], {"lanes": array_of(missing)}):
                    missing.discard(lane)
                    ref = self._known[lane] = lane_ref(*names)
                    yield ref
