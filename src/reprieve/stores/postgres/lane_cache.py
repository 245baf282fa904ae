"""Lanes by their ids, cached: an id is a hash of names, so what it stands for never changes."""

from collections.abc import Iterable

from reprieve.stores.postgres.lane_ref import LaneRef, lane_ref
from reprieve.stores.postgres.pool import Tx
from reprieve.stores.postgres.rows import array_of
from reprieve.stores.postgres.statements import statements


class LaneCache:
    """The lanes that this process has read."""

    def __init__(self) -> None:
        """Begin with no lane."""
        self._by_id: dict[int, LaneRef] = {}

    def __getitem__(self, lane: int) -> LaneRef:
        """Return a lane that was loaded."""
        return self._by_id[lane]

    def get(self, tx: Tx, lane: int) -> LaneRef:
        """Return a lane, loading it if needed."""
        if lane not in self._by_id:
            self.load(tx, (lane,))
        return self._by_id[lane]

    def load(self, tx: Tx, lanes: Iterable[int]) -> None:
        """Load those of these lanes that are not cached, also lanes that no claim has counted yet."""
        missing = {lane for lane in lanes if lane not in self._by_id}
        for source in ("counted", "uncounted"):
            if missing:
                for lane, *names in tx.all(statements("lanes")[source], {"lanes": array_of(missing)}):
                    self._by_id[lane] = lane_ref(*names)
                    missing.discard(lane)
