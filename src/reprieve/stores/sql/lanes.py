"""Lanes as the stores on SQL databases know them, and the cache of those that a process has read.

A cache is emptied every ten minutes, and when it is full, so that lanes which are not used any more do not stay in the
process. Those that are used are read again.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Final, Generic, TypeVar

import msgspec

from reprieve.clock import ticks
from reprieve.core.job import Job

Tx = TypeVar("Tx")
"""A transaction of the store."""

CACHED_SECONDS: Final = 600.0
"""Seconds after which a process drops the lanes that it has read."""

MAX_CACHED_LANES: Final = 65_536
"""Lanes that a process keeps at most."""


class LaneRef(msgspec.Struct, frozen=True):
    """A lane: its names, the ids of its rows, and the model of which its jobs are copies."""

    id: int
    queue: str
    tenant: str
    task: str
    dependency: str
    group: str
    priority: int
    """Of the lane, not of its jobs: see `Job.lane_priority`."""
    queue_id: int
    tenant_id: int
    limiters: tuple[int, ...]
    """Of its task, its dependency and its group; also of its tenant and dependency, where ids are known before rows."""
    model: Job

    @property
    def is_by_sla(self) -> bool:
        """Whether its jobs have an SLA, and are in the order of it."""
        return self.priority % 2 == 1


Ref = TypeVar("Ref", bound=LaneRef)


class CacheAge:
    """Says when a cache of lanes is to be emptied."""

    def __init__(self) -> None:
        """Begin with an empty cache."""
        self._over_at = ticks() + CACHED_SECONDS

    def is_over(self, size: int) -> bool:
        """Whether a cache of this size is to be emptied now; then its next ten minutes begin."""
        if size <= MAX_CACHED_LANES and ticks() < self._over_at:
            return False
        self._over_at = ticks() + CACHED_SECONDS
        return True


class SqlLaneCache(ABC, Generic[Tx, Ref]):
    """The lanes that this process, or a transaction, knows by their ids. What an id stands for never changes."""

    def __init__(self) -> None:
        """Start empty."""
        self._by_id: dict[int, Ref] = {}

    def __getitem__(self, lane: int) -> Ref:
        """Return a lane that was loaded."""
        return self._by_id[lane]

    def get(self, tx: Tx, lane: int) -> Ref:
        """Return a lane; read it if it was not loaded."""
        if lane not in self._by_id:
            self.load(tx, (lane,))
        return self._by_id[lane]

    def load(self, tx: Tx, lanes: Iterable[int]) -> None:
        """Read those of these lanes that were not loaded before."""
        missing = {lane for lane in lanes if lane not in self._by_id}
        if missing:
            self._by_id.update((lane.id, lane) for lane in self._read(tx, missing))

    @abstractmethod
    def _read(self, tx: Tx, lanes: set[int]) -> Iterable[Ref]:
        """Read lanes by their ids."""
