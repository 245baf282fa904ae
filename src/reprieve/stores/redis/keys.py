"""Unique keys of a store with several partitions.

A key lies in one of a fixed number of places, whatever the number of partitions, so that growth admits no duplicate. It
is reserved, its job is stored in its own partition, and then it is confirmed.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from reprieve.core.ids import id_from_bytes, id_to_bytes
from reprieve.core.job import Job
from reprieve.errors import StoreLocked
from reprieve.stores.record import key_of
from reprieve.stores.redis.enqueue import kept_until
from reprieve.stores.redis.link import Links

PLACES: Final = 64
"""Hash tags that keys are spread over, for ever."""

PATIENCE = 60_000
"""Milliseconds after which a reservation that was never confirmed is taken for that of a producer that died."""

Has = Callable[[str], Awaitable[bool]]
"""Answers whether a job is stored."""


class Keys:
    """The keys of a store."""

    def __init__(self, links: Links, has: Has) -> None:
        """Take the links, and who knows whether a job is there."""
        self._links = links
        self._has = has

    async def _run(self, key: bytes, word: str, now: int, *parts: bytes | int) -> list[Any]:
        place = int.from_bytes(key[:4], "big") % PLACES
        answer = await self._links.here().run("keys", f"{{{self._links.address.prefix}:k{place}}}", word, now, *parts)
        return list(answer)

    async def reserve(self, jobs: Sequence[Job], now: int) -> dict[str, str]:
        """Reserve the keys of jobs; answer, for those whose key is taken, the id of the job that has it."""
        taken: dict[str, str] = {}
        mine: dict[bytes, str] = {}
        for job in jobs:
            key = key_of(job)
            holder = mine.get(key) or await self._holder(job, key, now)
            if holder is None or holder == job.id:
                mine[key] = job.id
            else:
                taken[job.id] = holder
        return taken

    async def _holder(self, job: Job, key: bytes, now: int) -> str | None:
        """Answer who has the key; None if it is now this job's."""
        old = await self._links.here().command("HGET", f"{self._links.tag(0)}:u", key)
        if old is not None:
            # From the time when there was one partition.
            holder = id_from_bytes(old[:16])
            if holder != job.id and await self._has(holder):
                return holder
        gone = b""
        while True:
            raw = id_to_bytes(job.id)
            found = await self._run(key, "reserve", now, key, raw, kept_until(job, now), gone)
            if not found:
                return None
            holder, until, is_confirmed, since = id_from_bytes(found[0]), int(found[1]), found[2], int(found[3])
            if await self._has(holder) or (is_confirmed and until > now):
                return holder
            if not is_confirmed and now - since < PATIENCE:
                message = f"somebody else is taking the key {job.key!r} of task {job.task}; repeat the enqueue"
                raise StoreLocked(message)
            gone = found[0]

    async def confirm(self, jobs: Sequence[Job], now: int) -> None:
        """Say that the jobs are stored."""
        for job in jobs:
            key = key_of(job)
            await self._run(key, "confirm", now, key, id_to_bytes(job.id))

    async def prune(self, now: int) -> int:
        """Forget keys whose time is up and whose jobs are gone; answer how many."""
        count = 0
        for place in range(PLACES):
            tag = f"{{{self._links.address.prefix}:k{place}}}"
            found = await self._links.here().run("keys", tag, "expired", now)
            for start in range(0, len(found), 2):
                key, holder = found[start : start + 2]
                if not await self._has(id_from_bytes(holder)):
                    count += len(await self._run(key, "drop", now, key, holder))
        return count
