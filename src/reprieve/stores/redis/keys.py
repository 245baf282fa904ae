"""Unique keys of a store with several partitions.

A key lies in one of a fixed number of places, whatever the number of partitions, so that growth admits no duplicate. It
is reserved, its job is stored in its own partition, and then it is confirmed.
"""

import itertools
from collections.abc import Awaitable, Callable, Sequence
from struct import Struct
from typing import Any, Final

from reprieve.core.ids import id_from_bytes, id_to_bytes
from reprieve.core.job import Job
from reprieve.errors import StoreLocked
from reprieve.stores.record import key_of
from reprieve.stores.redis.enqueue import kept_until
from reprieve.stores.redis.link import Argument, Links
from reprieve.stores.redis.partition import HERE, UNKNOWN
from reprieve.stores.redis.together import together

PLACES: Final = 64
"""Hash tags that keys are spread over, for ever."""

PATIENCE = 60_000
"""Milliseconds after which a reservation that was never confirmed is taken for that of a producer that died."""

FRESH = 20.0
"""Seconds for which whoever reserved a key may rely on it without looking again."""

_OLD: Final = Struct(">16sd")

Knows = Callable[[Sequence[str]], Awaitable[list[str]]]
"""Answers for each job whether it is stored, was and is remembered, or is not known."""


class Keys:
    """The keys of a store."""

    def __init__(self, links: Links, knows: Knows) -> None:
        """Take the links, and who knows what has become of jobs."""
        self._links = links
        self._knows = knows

    async def _run(self, place: int, word: str, now: int, *parts: Argument) -> list[Any]:
        tag = f"{{{self._links.address.prefix}:k{place}}}"
        return list(await self._links.here().run("unique_keys", tag, word, now, *parts))

    async def _ask(self, word: str, now: int, items: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Hand each item to the place of its key, which it begins with; answer one answer for each, in their order."""
        places: dict[int, list[int]] = {}
        for number, item in enumerate(items):
            places.setdefault(int.from_bytes(item[0][:4], "big") % PLACES, []).append(number)
        answers: list[Any] = [None] * len(items)

        async def ask(place: int, numbers: list[int]) -> None:
            parts = itertools.chain.from_iterable(items[number] for number in numbers)
            for number, answer in zip(numbers, await self._run(place, word, now, *parts), strict=True):
                answers[number] = answer

        await together(ask(place, numbers) for place, numbers in places.items())
        return answers

    async def reserve(self, jobs: Sequence[Job], now: int) -> dict[str, str]:
        """Reserve the keys of jobs; answer, for those whose key is taken, the id of the job that has it."""
        keys = {job.id: key_of(job) for job in jobs}
        firsts: dict[bytes, Job] = {}
        for job in jobs:
            firsts.setdefault(keys[job.id], job)
        holders = await self._old_holders(firsts, now) if firsts else {}
        wanted = {key: (job, b"") for key, job in firsts.items() if key not in holders}
        while wanted:
            found = await self._reserve(wanted, now)
            gone = {}
            for key, (holder, is_free) in (await self._judge(firsts, found, now)).items():
                if is_free:
                    gone[key] = (firsts[key], id_to_bytes(holder))
                else:
                    holders[key] = holder
            wanted = gone
        known = {job.id: holders.get(keys[job.id], firsts[keys[job.id]].id) for job in jobs}
        return {job_id: holder for job_id, holder in known.items() if holder != job_id}

    async def _old_holders(self, firsts: dict[bytes, Job], now: int) -> dict[bytes, str]:
        """Return who has keys from the time when there was one partition."""
        values = await self._links.here().command("HMGET", f"{self._links.tag(0)}:unique_keys", *firsts)
        old = {key: _OLD.unpack_from(value) for key, value in zip(firsts, values, strict=True) if value is not None}
        holders = {key: (id_from_bytes(raw), until) for key, (raw, until) in old.items()}
        known = await self._knows([holder for holder, _ in holders.values()])
        return {
            key: holder
            for (key, (holder, until)), how in zip(holders.items(), known, strict=True)
            if holder != firsts[key].id and (until > now or how == HERE)
        }

    async def _reserve(self, wanted: dict[bytes, tuple[Job, bytes]], now: int) -> dict[bytes, list[Any]]:
        """Reserve keys, or take over those of holders that are gone; answer what is said of those that others have."""
        items = [(key, id_to_bytes(job.id), kept_until(job, now), gone) for key, (job, gone) in wanted.items()]
        return {key: found for key, found in zip(wanted, await self._ask("reserve", now, items), strict=True) if found}

    async def _judge(
        self, jobs: dict[bytes, Job], found: dict[bytes, list[Any]], now: int
    ) -> dict[bytes, tuple[str, bool]]:
        """Return who has each key, and whether it is free all the same."""
        ids = [id_from_bytes(raw) for raw, *_ in found.values()]
        known = dict(zip(found, zip(ids, await self._knows(ids), strict=True), strict=True))
        # A producer that died before it could confirm them has stored these.
        stored = [(key, found[key][0]) for key, (_, how) in known.items() if how != UNKNOWN and not found[key][2]]
        await self._ask("confirm", now, stored)
        judged: dict[bytes, tuple[str, bool]] = {}
        for key, (holder, how) in known.items():
            _, until, is_confirmed, since = found[key]
            if how == UNKNOWN and not is_confirmed:
                if now - int(since) < PATIENCE:
                    job = jobs[key]
                    message = f"somebody else is taking the key {job.key!r} of task {job.task}; repeat the enqueue"
                    raise StoreLocked(message)
                judged[key] = holder, True
            else:
                judged[key] = holder, how != HERE and int(until) <= now
        return judged

    async def confirm(self, jobs: Sequence[Job], now: int) -> None:
        """Say that the jobs are stored."""
        await self._ask("confirm", now, [(key_of(job), id_to_bytes(job.id)) for job in jobs])

    async def prune(self, now: int) -> int:
        """Forget keys whose time is up and whose jobs are gone, and those of producers that died; answer how many.

        What these have stored is confirmed, before it can have run and be forgotten.
        """
        answers = await together(self._run(place, "doubtful", now) for place in range(PLACES))
        rows = [answer[start : start + 3] for answer in answers for start in range(0, len(answer), 3)]
        known = await self._knows([id_from_bytes(holder) for _, holder, _ in rows])
        stored = []
        doubtful = []
        for (key, holder, is_open), how in zip(rows, known, strict=True):
            if is_open == b"reserved" and how != UNKNOWN:
                stored.append((key, holder))
            else:
                doubtful.append((key, holder, int(how == HERE), now - PATIENCE))
        await self._ask("confirm", now, stored)
        return sum(await self._ask("sweep", now, doubtful))
