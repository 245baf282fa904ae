"""Lanes as the stores on SQL databases know them, and the cache of those that a process has read."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeVar

import msgspec

from reprieve.core.job import Job

Tx = TypeVar("Tx")
"""A transaction of the store."""


class LaneRef(msgspec.Struct, frozen=True):
    """A lane: its names, the ids of its rows, and the model of which its jobs are copies."""

    id: int
    queue: str
    tenant: str
    task: str
    dependency: str
    group: str
    priority: int
    queue_id: int
    tenant_id: int
    limiters: tuple[int, ...]
    """Of its task, its dependency and its group; also of its tenant and dependency, where ids are known before rows."""
    model: Job


Ref = TypeVar("Ref", bound=LaneRef)


class SqlLaneCache(ABC, Generic[Tx, Ref]):
    """The lanes that this process knows, by their ids. What an id stands for never changes."""

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
