"""The partitions of a store: how many there are, and calls that go to several of them.

An id names its job's partition, so partitions can be added at any time, and no job ever moves.
"""

import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from reprieve.core.ids import partition_of
from reprieve.rng import bits
from reprieve.stores.redis.bounded_gather import bounded_gather
from reprieve.stores.redis.connections import Connections
from reprieve.stores.redis.partition import Partition

T = TypeVar("T")
R = TypeVar("R")


class Partitions:
    """The partitions of one store."""

    def __init__(self, connections: Connections) -> None:
        """Take the connections; partitions are made when they are needed."""
        self._connections = connections
        self._made: dict[int, Partition] = {}
        self._next = itertools.count(bits(16))

    def __len__(self) -> int:
        """Return how many partitions there are, as far as this process knows."""
        return self._connections.topology.partitions

    def __getitem__(self, number: int) -> Partition:
        """Return a partition."""
        found = self._made.get(number)
        return self._made.setdefault(number, Partition(self._connections, number)) if found is None else found

    @property
    def is_one(self) -> bool:
        """Whether there is only one partition."""
        return len(self) == 1

    def all(self) -> list[Partition]:
        """Return all partitions that this process knows of."""
        return [self[number] for number in range(len(self))]

    def next_number(self) -> int:
        """Return the partition of the next job."""
        return next(self._next) % len(self)

    async def load(self) -> list[Partition]:
        """Return all partitions, after the servers have said how many there are."""
        await self._connections.current().ensure_admitted()
        return self.all()

    async def refresh(self) -> None:
        """Learn of partitions that other processes have added."""
        await self._connections.current().refresh_partitions()

    async def load_for(self, ids: Iterable[str]) -> None:
        """Load the partitions; refresh them if an id names one that is not known yet."""
        await self.load()
        if max(map(partition_of, ids), default=0) >= len(self):
            await self.refresh()

    async def spread(
        self,
        items: Sequence[T],
        id_of: Callable[[T], str],
        call: Callable[[Partition, list[T]], Awaitable[Sequence[R]]],
    ) -> list[R]:
        """Give each partition the items of its ids; return one result for each item, in their order."""
        groups: dict[int, list[int]] = {}
        for index, item in enumerate(items):
            groups.setdefault(partition_of(id_of(item)), []).append(index)
        results: dict[int, R] = {}

        async def ask(number: int, indices: list[int]) -> None:
            found = await call(self[number], [items[index] for index in indices])
            results.update(zip(indices, found, strict=True))

        await bounded_gather(ask(number, indices) for number, indices in groups.items())
        return [results[index] for index in range(len(items))]

    async def has_jobs(self, ids: Sequence[str]) -> list[str]:
        """Return for each job whether it is stored, remembered or unknown."""
        return await self.spread(ids, str, Partition.has_jobs)

    async def is_relayed(self, ids: Sequence[str]) -> list[bool]:
        """Return for each job whether it came out of an outbox, and that is still remembered."""
        return await self.spread(ids, str, Partition.is_relayed)
