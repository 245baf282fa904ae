"""Unique keys of a store with several partitions.

A key lies in one of a fixed number of shards, whatever the number of partitions, so that growth admits no duplicate. It
is reserved, its job is stored in its own partition, and then it is confirmed.
"""

import itertools
from collections.abc import Awaitable, Callable, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from reprieve.core.ids import id_from_bytes, id_to_bytes
from reprieve.core.job import Job
from reprieve.errors import StoreLocked
from reprieve.stores.record import key_of
from reprieve.stores.redis.bounded_gather import bounded_gather
from reprieve.stores.redis.connections import Connections
from reprieve.stores.redis.enqueue import kept_until
from reprieve.stores.redis.node import Argument
from reprieve.stores.redis.partition import STORED, UNKNOWN
from reprieve.stores.redis.replies import DoubtfulKey, KeyHolder, rows

SHARDS: Final = 64
"""Hash tags that keys are spread over; the number can never change."""

RESERVED_MS: Final = 60_000
"""How long a reservation lives that is not confirmed; after that its producer counts as dead."""

RELIED_ON_SECONDS: Final = 20.0
"""How long a producer may rely on a reservation without renewing it."""

_SINGLE: Final = Struct(">16sd")
"""A key from the time when there was one partition: id of its job, until when it is kept."""

HasJobs = Callable[[Sequence[str]], Awaitable[list[str]]]
"""Returns for each job whether it is stored, succeeded, remembered or unknown."""


class Wanted(NamedTuple):
    """A key that is to be reserved."""

    job: Job
    gone: bytes = b""
    """A holder that may be replaced."""


class UniqueKeys:
    """The unique keys of a store."""

    def __init__(self, connections: Connections, has_jobs: HasJobs) -> None:
        """Take the connections, and a way to ask which jobs are stored."""
        self._connections = connections
        self._has_jobs = has_jobs

    async def _run(self, shard: int, step: str, now: int, *parts: Argument) -> list[Any]:
        tag = f"{{{self._connections.topology.address.prefix}:k{shard}}}"
        return list(await self._connections.current().run("unique_keys", tag, step, now, *parts))

    async def _spread(self, step: str, now: int, items: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Give each item to the shard of its key, its first value; return one reply for each, in their order."""
        shards: dict[int, list[int]] = {}
        for index, item in enumerate(items):
            shards.setdefault(int.from_bytes(item[0][:4], "big") % SHARDS, []).append(index)
        replies: list[Any] = [None] * len(items)

        async def ask(shard: int, indices: list[int]) -> None:
            parts = itertools.chain.from_iterable(items[index] for index in indices)
            for index, reply in zip(indices, await self._run(shard, step, now, *parts), strict=True):
                replies[index] = reply

        await bounded_gather(ask(shard, indices) for shard, indices in shards.items())
        return replies

    async def reserve(self, jobs: Sequence[Job], now: int) -> dict[str, str]:
        """Reserve the keys of jobs; return, for jobs whose key is taken, the id of the job that has it."""
        keys = {job.id: key_of(job) for job in jobs}
        firsts: dict[bytes, Job] = {}
        for job in jobs:
            firsts.setdefault(keys[job.id], job)
        holders = await self._single_holders(firsts, now) if firsts else {}
        wanted = {key: Wanted(job) for key, job in firsts.items() if key not in holders}
        while wanted:
            found = await self._reserve(wanted, now)
            gone = await self._gone_holders(firsts, found, now)
            holders |= {key: holder.job_id for key, holder in found.items() if key not in gone}
            wanted = {key: Wanted(firsts[key], found[key].id) for key in gone}
        known = {job.id: holders.get(keys[job.id], firsts[keys[job.id]].id) for job in jobs}
        return {job_id: holder for job_id, holder in known.items() if holder != job_id}

    async def _single_holders(self, firsts: dict[bytes, Job], now: int) -> dict[bytes, str]:
        """Return the jobs that have keys from the time when there was one partition."""
        key = f"{self._connections.topology.tag(0)}:unique_keys"
        values = await self._connections.current().command("HMGET", key, *firsts)
        stored = {
            key: _SINGLE.unpack_from(value) for key, value in zip(firsts, values, strict=True) if value is not None
        }
        holders = {key: (id_from_bytes(raw), until) for key, (raw, until) in stored.items()}
        known = await self._has_jobs([holder for holder, _ in holders.values()])
        return {
            key: holder
            for (key, (holder, until)), how in zip(holders.items(), known, strict=True)
            if holder != firsts[key].id and (until > now or how == STORED)
        }

    async def _reserve(self, wanted: dict[bytes, Wanted], now: int) -> dict[bytes, KeyHolder]:
        """Reserve keys, also those of holders that are gone; return the holders of keys that others have."""
        items = [(key, id_to_bytes(job.id), kept_until(job, now), gone) for key, (job, gone) in wanted.items()]
        replies = zip(wanted, await self._spread("reserve", now, items), strict=True)
        return {key: KeyHolder(*found) for key, found in replies if found}

    async def _gone_holders(self, jobs: dict[bytes, Job], found: dict[bytes, KeyHolder], now: int) -> set[bytes]:
        """Return the keys whose holder is gone. Raises `StoreLocked` for a reservation that is still open."""
        words = await self._has_jobs([holder.job_id for holder in found.values()])
        known = dict(zip(found, words, strict=True))
        # A producer that died before it could confirm these keys has stored their jobs.
        unconfirmed = [key for key, holder in found.items() if known[key] != UNKNOWN and not holder.is_confirmed]
        await self._spread("confirm", now, [(key, found[key].id) for key in unconfirmed])
        gone: set[bytes] = set()
        for key, holder in found.items():
            if known[key] == UNKNOWN and not holder.is_confirmed:
                if now - int(holder.reserved_at) < RESERVED_MS:
                    job = jobs[key]
                    message = f"another producer reserves the key {job.key!r} of task {job.task}; repeat the enqueue"
                    raise StoreLocked(message)
                gone.add(key)
            elif known[key] != STORED and int(holder.kept_until) <= now:
                gone.add(key)
        return gone

    async def confirm(self, jobs: Sequence[Job], now: int) -> None:
        """Note that the jobs are stored."""
        await self._spread("confirm", now, [(key_of(job), id_to_bytes(job.id)) for job in jobs])

    async def prune(self, now: int) -> int:
        """Forget keys whose time is up and whose jobs do not hold them, and those of dead producers; return how many.

        A key whose job is stored is confirmed, before the job can have run and be forgotten.
        """
        replies = await bounded_gather(self._run(shard, "doubtful", now) for shard in range(SHARDS))
        keys = [key for reply in replies for key in rows(DoubtfulKey, reply)]
        known = await self._has_jobs([id_from_bytes(key.holder) for key in keys])
        stored = []
        doubtful = []
        for key, how in zip(keys, known, strict=True):
            if key.is_reserved and how != UNKNOWN:
                stored.append((key.key, key.holder))
            else:
                doubtful.append((key.key, key.holder, int(how == STORED), now - RESERVED_MS))
        await self._spread("confirm", now, stored)
        return sum(await self._spread("sweep", now, doubtful))
