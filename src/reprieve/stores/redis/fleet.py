"""Several partitions as one store: every operation is atomic inside its partition, and fans out over all.

Ids name their partition, so partitions can be added at any time, and no job ever moves. Workers have a session in each.
Limiters, weights and pauses are copied to all; limits are leased in shares.
"""

import asyncio
import contextlib
import itertools
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from reprieve.clock import ticks
from reprieve.core.change import Change
from reprieve.core.events import Event
from reprieve.core.ids import PARTITIONS, partition_of
from reprieve.core.job import Job
from reprieve.core.status import Status
from reprieve.errors import InvalidCursor, SessionDead, StaleCall
from reprieve.rng import bits
from reprieve.stores.protocol import (
    Annotation,
    ChangeResult,
    Claim,
    Claimed,
    Entry,
    Filter,
    Heartbeat,
    LimitState,
    LimitUpdate,
    Page,
    Pruned,
    Retention,
    Subject,
    Tally,
)
from reprieve.stores.redis.enqueue import MOST
from reprieve.stores.redis.keys import FRESH, Keys
from reprieve.stores.redis.link import Links
from reprieve.stores.redis.partition import Grown, Overtaken, Partition, State
from reprieve.stores.redis.quotas import Quotas
from reprieve.stores.redis.together import together
from reprieve.stores.redis.tour import MOST_VISITS, Stay, Tour

T = TypeVar("T")
U = TypeVar("U")


class Carry(Protocol):
    """How jobs are brought to a partition; with several partitions keys are kept elsewhere."""

    async def __call__(self, partition: Partition, jobs: Sequence[Job], now: int, /, *, has_keys: bool) -> list[str]:
        """Bring them; answer for each the id under which it is known."""
        ...


PLACES_A_MILLISECOND = 64
"""By which places in a partition's stream grow with its server's time."""

SKEW = 1_000
"""Milliseconds by which the clocks of servers may be apart."""


class Fleet:
    """The partitions of a store."""

    def __init__(self, links: Links) -> None:
        """Take the links; partitions are made when they are needed."""
        self._links = links
        self._partitions: dict[int, Partition] = {}
        self._turns = itertools.count(bits(16))
        self._keys = Keys(links, self._knows)
        self._quotas = Quotas(links)
        self._opened: dict[str, set[int]] = {}
        """In which partitions sessions were met alive."""
        self._idles: dict[str, dict[int, float]] = {}
        """Partitions in which a session found nothing, and until when there will be nothing, unless the bell rings."""
        self._singles: dict[str, int] = {}
        """The last claim of every session while there was one partition."""
        self._tours: dict[str, Tour] = {}
        """The last claim of every session."""
        self._stays: dict[str, Stay] = {}

    def partition(self, number: int) -> Partition:
        """Return a partition."""
        found = self._partitions.get(number)
        return self._partitions.setdefault(number, Partition(self._links, number)) if found is None else found

    def next(self) -> int:
        """Return the partition of the next job."""
        return next(self._turns) % self._links.partitions

    @property
    def is_one(self) -> bool:
        """Whether there is but one partition."""
        return self._links.partitions == 1

    def _all(self) -> list[Partition]:
        return [self.partition(number) for number in range(self._links.partitions)]

    async def _know(self, ids: Iterable[str]) -> None:
        """Learn how many partitions there are: at once, if a job is in one that is not known yet."""
        await self._links.here().admit()
        if max(map(partition_of, ids), default=0) >= self._links.partitions:
            await self._links.here().look_for_more()

    async def landed(self, ids: Sequence[str]) -> list[bool]:
        """Return of each job whether it has come out of an outbox, and is still remembered."""
        return await self._spread(ids, partition_of, lambda partition, some: partition.landed(some))

    async def known(self) -> list[Partition]:
        """Return all partitions, after the servers have said how many there are."""
        await self._links.here().admit()
        return self._all()

    async def _knows(self, ids: Sequence[str]) -> list[str]:
        return await self._spread(ids, partition_of, lambda partition, some: partition.knows(some))

    async def _spread(
        self, items: Sequence[T], number_of: Callable[[T], int], call: Callable[[Partition, list[T]], Any]
    ) -> list[Any]:
        """Hand each item to its partition; answer one answer for each, in their order."""
        groups: dict[int, list[int]] = {}
        for place, item in enumerate(items):
            groups.setdefault(number_of(item), []).append(place)
        answers: list[Any] = [None] * len(items)

        async def ask(number: int, places: list[int]) -> None:
            found = await call(self.partition(number), [items[place] for place in places])
            for place, answer in zip(places, found, strict=True):
                answers[place] = answer

        await together(ask(number, places) for number, places in groups.items())
        return answers

    async def enqueue(self, jobs: Sequence[Job], now: int, carry: Carry = Partition.enqueue) -> list[str]:
        """Store new jobs, each in the partition that its id names."""
        await self._know(job.id for job in jobs)
        if self.is_one:
            try:
                return await carry(self.partition(0), jobs, now, has_keys=True)
            except Grown:
                await self._links.here().look_for_more()
        began = ticks()
        known: dict[str, str] = {}
        keyed = [job for job in jobs if job.key]
        for start in range(0, len(keyed), MOST):
            # A batch may take its time, and each reservation has a minute from when it is made.
            at = now + int(1_000 * (ticks() - began))
            known |= await self._store_keyed(keyed[start : start + MOST], at, carry)
        known |= await self._store([job for job in jobs if not job.key], now, carry)
        return [known[job.id] for job in jobs]

    def enqueue_here(self, job: Job, now: int) -> str | None:
        """Store a new job from the calling thread; None if that takes more than one trip, or did not succeed."""
        number = partition_of(job.id)
        if (job.key and not self.is_one) or number >= self._links.partitions:
            return None
        return self.partition(number).enqueue_here(job, now)

    async def _store(self, jobs: Sequence[Job], now: int, carry: Carry) -> dict[str, str]:
        ids = await self._spread(
            jobs, lambda job: partition_of(job.id), lambda partition, some: carry(partition, some, now, has_keys=False)
        )
        return {job.id: job_id for job, job_id in zip(jobs, ids, strict=True)}

    async def _store_keyed(self, jobs: Sequence[Job], now: int, carry: Carry) -> dict[str, str]:
        """Reserve keys, store the jobs that have them now, and confirm them."""
        began = ticks()
        taken = await self._keys.reserve(jobs, now)
        if (late := ticks() - began) > FRESH:
            # Somebody else may have taken over what seemed to be a dead producer's.
            now += int(1_000 * late)
            taken = await self._keys.reserve(jobs, now)
        fresh = [job for job in jobs if job.id not in taken]
        stored = await self._store(fresh, now, carry)
        await self._keys.confirm(fresh, now)
        return taken | stored

    async def claim(self, claim: Claim) -> Claimed:
        """Settle in every partition what is its own, and claim where there may be something, until the limit."""
        await self._links.here().admit()
        if self.is_one or self._singles.get(claim.session) == claim.number:
            # A repeat goes where the first time went, and no further, though there may be more partitions now.
            self._singles[claim.session] = claim.number
            return await self.partition(0).claim(replace(claim, number=claim.number * MOST_VISITS))
        tour = self._tours.get(claim.session)
        if tour is None or tour.claim.number != claim.number:
            if tour is not None and claim.number < tour.claim.number:
                message = f"call {claim.number} of session {claim.session!r} comes after call {tour.claim.number}"
                raise StaleCall(message)
            partitions, idle = self._links.partitions, self._idle(claim.session)
            if tour is None or tour.partitions != partitions:
                self._stays[claim.session] = Stay(partitions)
            tour = self._tours[claim.session] = Tour(claim, partitions, idle, self._stays[claim.session])
        while not tour.is_done:
            while not tour.is_over:
                limits = tour.plan()
                await together(self._visit(tour, number, limit) for number, limit in limits.items())
                tour.count += 1
            if tour.may_deal and self._quotas.is_needed and await self._quotas.deal(self._all(), claim.now):
                tour.begin_again()
            else:
                tour.end()
        if tour.is_dead(self._opened.setdefault(claim.session, set())):
            message = f"session {claim.session!r} is not open, or dead: its time was up, and others have its jobs"
            raise SessionDead(message)
        return tour.claimed()

    async def _visit(self, tour: Tour, number: int, limit: int) -> None:
        # Each visit has a number of its own, and one whose answer was lost is repeated under it.
        call = replace(
            tour.claim,
            number=tour.claim.number * MOST_VISITS + tour.count,
            limit=limit,
            changes=tour.changes_for(number),
        )
        try:
            tour.note(number, limit, await self.partition(number).claim(call))
        except SessionDead:
            tour.note(number, limit, None)

    def _idle(self, session: str) -> dict[int, float]:
        return self._idles.setdefault(session, {})

    async def apply(self, changes: Sequence[Change], now: int) -> list[ChangeResult]:
        """Carry out changes, each in its job's partition."""
        await self._know(change.job.id for change in changes)
        if self.is_one:
            return await self.partition(0).apply(changes, now)
        return await self._spread(
            changes, lambda change: partition_of(change.job.id), lambda partition, some: partition.apply(some, now)
        )

    async def heartbeat(self, heartbeat: Heartbeat) -> bool:
        """Keep a session alive in every partition; open it in those that were added."""
        link = self._links.here()
        await link.admit()
        if not heartbeat.is_new:
            await link.look_for_more()
        partitions, opened = self._all(), self._opened.setdefault(heartbeat.session, set())
        share = replace(heartbeat, slots=max(1, round(heartbeat.slots / len(partitions))))
        is_over = heartbeat.lease <= 0
        if is_over:
            for kept in (self._tours, self._stays, self._opened, self._idles):
                kept.pop(heartbeat.session, None)

        async def keep(partition: Partition) -> bool:
            is_new = not is_over and (heartbeat.is_new or partition.number not in opened)
            is_alive = await partition.heartbeat(replace(share, is_new=is_new))
            if is_alive:
                opened.add(partition.number)
            return is_alive

        if not (opened or heartbeat.is_new):
            # Somebody else has opened it: one that lives in the first partition is opened in those that were added.
            opened.add(0)
        if len(partitions) == 1:
            return await keep(partitions[0])
        # Nobody has a session, and so can claim, where the rules are not known.
        await self._quotas.adopt(partitions[0])
        await self._quotas.remind(partitions, heartbeat.now)
        known = [one for one in partitions if is_over or one.number in opened]
        added = [one for one in partitions if one not in known]
        is_alive = all(await together(map(keep, known))) and all(await together(map(keep, added)))
        await self._quotas.deal_if_due(partitions, heartbeat.now)
        return is_alive

    async def recover(self, now: int, limit: int) -> list[Job]:
        """Declare the dead in every partition, and answer what they hold."""
        await self._links.here().admit()
        jobs: list[Job] = []
        for partition in self._all():
            # Where nothing more is asked for the dead are declared all the same.
            jobs += await partition.recover(now, limit - len(jobs))
        return jobs

    async def annotate(self, annotations: Sequence[Annotation]) -> list[bool]:
        """Request a cancel or note progress."""
        return await self._spread(
            annotations,
            lambda annotation: partition_of(annotation.job_id),
            lambda partition, some: partition.annotate(some),
        )

    async def update_limits(self, updates: Sequence[LimitUpdate], now: int) -> None:
        """Change limiters, limits, weights and pauses everywhere."""
        first = self.partition(0)

        async def write(state: State | None) -> bool:
            await first.update_limits(updates, now, state)
            return True

        await self._tell(updates, now, write)

    async def _tell(self, updates: Sequence[LimitUpdate], now: int, write: Callable[[State | None], Awaitable[T]]) -> T:
        """Write to the first partition, and tell the others."""
        link = self._links.here()
        await link.admit()
        if self.is_one or not updates:
            with contextlib.suppress(Overtaken):
                return await write(None)
            # There are more partitions by now.
            await link.look_for_more()
        return await self._quotas.change(self._all(), updates, now, write)

    async def compare_and_set(
        self, key: str, version: int, value: bytes | None, updates: Sequence[LimitUpdate], now: int
    ) -> Entry | None:
        """Set or delete an entry, which is the first partition's, and tell the others what came with it."""
        first = self.partition(0)
        return await self._tell(
            updates, now, lambda state: first.compare_and_set(key, version, value, updates, now, state)
        )

    async def prune(self, retention: Retention) -> Pruned:
        """Forget what has ended long enough ago, everywhere."""
        await self._links.here().admit()
        partitions = self._all()
        kept = math.ceil(retention.succeeded / len(partitions))

        def part(partition: Partition) -> Retention:
            archived = tuple(job for job in retention.archived if partition_of(job.id) == partition.number)
            return replace(retention, succeeded=kept, archived=archived)

        pruned = await together(partition.prune(part(partition)) for partition in partitions)
        keys = 0 if self.is_one else await self._keys.prune(retention.now)
        sums = {name: sum(getattr(one, name) for one in pruned) for name in Pruned.__struct_fields__}
        return Pruned(**sums | {"keys": sums["keys"] + keys})

    async def find(self, wanted: Filter, now: int, cursor: str, limit: int) -> Page:
        """Return jobs, one partition after the other."""
        await self._know(wanted.ids or ())
        if self.is_one:
            return await self.partition(0).find(wanted, now, cursor, limit)
        if wanted.ids is not None:
            pages = await self._spread(
                wanted.ids,
                partition_of,
                lambda partition, ids: _by_id(partition, replace(wanted, ids=tuple(ids)), now),
            )
            found = [one for one in pages if one is not None]
            return Page(jobs=tuple(job for job, _ in found), statuses=tuple(status for _, status in found))
        number, _, rest = cursor.partition(".") if cursor else ("0", "", "")
        if not number.isdecimal() or not number.isascii() or int(number) >= self._links.partitions:
            message = f"cursor {cursor[:80]!r} does not belong to this search; begin again without one"
            raise InvalidCursor(message)
        page = await self.partition(int(number)).find(wanted, now, rest, limit)
        if page.cursor:
            return replace(page, cursor=f"{number}.{page.cursor}")
        following = int(number) + 1
        return replace(page, cursor=f"{following}." if following < self._links.partitions else "")

    async def tally(self, by: Tally, wanted: Filter, now: int) -> dict[str, int]:
        """Count jobs, over all partitions."""
        await self._links.here().admit()
        counts: Counter[str] = Counter()
        for found in await together(partition.tally(by, wanted, now) for partition in self._all()):
            counts.update(found)
        return dict(counts)

    async def events(self, after: int, limit: int, job_id: str) -> list[tuple[int, Event]]:
        """Return events of all partitions in the order of their servers' times.

        What has just happened is kept back for a second: a partition whose clock is behind may still have to say
        something that belongs before it.
        """
        await self._know((job_id,) if job_id else ())
        if self.is_one:
            return (await self.partition(0).events(after, limit, job_id))[1]
        if job_id:
            number = partition_of(job_id)
            _, found = await self.partition(number).events(_before(after, number), limit, job_id)
            return _placed(found, number)
        answers = await together(
            partition.events(_before(after, partition.number), limit, "") for partition in self._all()
        )
        latest = (min(time for time, _ in answers) - SKEW) * PLACES_A_MILLISECOND * PARTITIONS
        merged = [entry for number, (_, found) in enumerate(answers) for entry in _placed(found, number)]
        return sorted((entry for entry in merged if entry[0] < latest), key=lambda entry: entry[0])[:limit]

    async def limit_states(self, subject: Subject, queue: str) -> list[LimitState]:
        """Return limit states, summed over all partitions."""
        await self._links.here().admit()
        if self.is_one:
            return await self.partition(0).limit_states(subject, queue)
        sums: dict[tuple[str, str], LimitState] = {}
        for limit_state in itertools.chain(*await together(p.limit_states(subject, queue) for p in self._all())):
            before = sums.get((limit_state.queue, limit_state.name))
            sums[limit_state.queue, limit_state.name] = limit_state if before is None else _added(before, limit_state)
        return await self._quotas.whole([sums[name] for name in sorted(sums)])

    async def wait(self, queues: Sequence[str], at_most: float, session: str) -> bool:
        """Wait for the bell of any partition."""
        if self.is_one:
            return await self.partition(0).wait(queues, at_most, session)
        waits = {
            asyncio.ensure_future(partition.wait(queues, at_most, session)): partition.number
            for partition in self._all()
        }
        idle = self._idle(session)
        try:
            done, waiting = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            while waiting and not any(task.result() for task in done):
                more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                done |= more
        finally:
            for task in waits:
                task.cancel()
        rung = [waits[task] for task in done if task.result()]
        for number in rung or list(idle):
            # Who has heard nothing looks everywhere again: the bell is but a hint.
            idle.pop(number, None)
        return bool(rung)


async def _by_id(partition: Partition, wanted: Filter, now: int) -> list[tuple[Job, Status] | None]:
    page = await partition.find(wanted, now, "", len(wanted.ids or ()))
    found = {job.id: (job, status) for job, status in zip(page.jobs, page.statuses, strict=True)}
    return [found.get(job_id) for job_id in wanted.ids or ()]


def _placed(found: list[tuple[int, Event]], number: int) -> list[tuple[int, Event]]:
    return [(place * PARTITIONS + number, event) for place, event in found]


def _before(after: int, number: int) -> int:
    """Return the place in a partition's own stream after which to go on."""
    place, reached = divmod(after, PARTITIONS)
    return place if number <= reached else place - 1


def _added(one: LimitState, other: LimitState) -> LimitState:
    times = [at for at in (one.served_at, other.served_at) if at is not None]
    return replace(
        one,
        running=one.running + other.running,
        served=one.served + other.served,
        served_at=max(times, default=None),
        streak=max(one.streak, other.streak),
        rounds=max(one.rounds, other.rounds),
    )
