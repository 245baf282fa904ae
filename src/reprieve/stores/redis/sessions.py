"""Sessions over partitions: a worker has a session in each, and one call settles and claims in all of them."""

import asyncio
import math
from collections.abc import Sequence

from msgspec.structs import replace

from reprieve.core.fairness.candidates import Capacity
from reprieve.errors import SessionDead
from reprieve.stores.protocol import Claim, Claimed, Heartbeat
from reprieve.stores.redis.affinity import PartitionAffinity
from reprieve.stores.redis.bounded_gather import bounded_gather
from reprieve.stores.redis.partition import Partition, session_dead, stale_call
from reprieve.stores.redis.partitioned_claim import MAX_CALLS_PER_CLAIM, PartitionedClaim
from reprieve.stores.redis.partitions import Partitions
from reprieve.stores.redis.shared_limits import SharedLimits


class SessionState:
    """What this process knows of one session."""

    __slots__ = ("affinity", "claim", "idle", "opened", "single_number")

    def __init__(self) -> None:
        """Know nothing yet."""
        self.opened: set[int] = set()
        """Partitions in which the session was alive."""
        self.idle: dict[int, float] = {}
        """Partitions without jobs for the session, and until when, unless they notify."""
        self.single_number: int | None = None
        """The number of its last claim while there was one partition."""
        self.claim: PartitionedClaim | None = None
        """Its last claim while there were several."""
        self.affinity: PartitionAffinity | None = None


class Sessions:
    """The sessions of one store."""

    def __init__(self, partitions: Partitions, limits: SharedLimits) -> None:
        """Take the partitions, and the limits that they share."""
        self._partitions = partitions
        self._limits = limits
        self._states: dict[str, SessionState] = {}

    def _state(self, session: str) -> SessionState:
        state = self._states.get(session)
        if state is None:
            state = self._states[session] = SessionState()
        return state

    async def claim(self, request: Claim) -> Claimed:
        """Settle changes in their partitions, and claim from those that may have jobs, until the limit."""
        await self._partitions.load()
        state = self._state(request.session)
        if self._partitions.is_one or state.single_number == request.number:
            # A repeat goes where the first call went, though there may be more partitions now.
            state.single_number = request.number
            return await self._partitions[0].claim(replace(request, number=request.number * MAX_CALLS_PER_CLAIM))
        claim = self._begin(state, request)
        while not claim.is_done:
            while not claim.is_exhausted:
                limits = claim.next_round()
                await bounded_gather(self._call(claim, number, limit) for number, limit in limits.items())
                claim.end_round()
            if (
                claim.may_divide
                and self._limits.is_needed
                and await self._limits.divide(self._partitions.all(), request.now)
            ):
                claim.ask_again()
            else:
                claim.finish()
        if claim.is_dead(state.opened):
            raise session_dead(request.session)
        return claim.claimed()

    def _begin(self, state: SessionState, request: Claim) -> PartitionedClaim:
        """Return the claim of a request: the last one if it is a repeat."""
        last, partitions = state.claim, len(self._partitions)
        if last is not None and last.claim.number == request.number:
            return last
        if last is not None and request.number < last.claim.number:
            raise stale_call(request.session, request.number, last.claim.number)
        if state.affinity is None or last is None or last.partitions != partitions:
            state.affinity = PartitionAffinity(partitions)
        state.claim = PartitionedClaim(request, partitions, state.idle, state.affinity)
        return state.claim

    async def _call(self, claim: PartitionedClaim, number: int, limit: int) -> None:
        request = replace(
            claim.claim,
            number=claim.call_number(),
            limit=limit,
            changes=claim.changes_for(number),
            series=claim.series_for(number),
            starts=claim.starts_for(number),
        )
        try:
            claim.note(number, limit, await self._partitions[number].claim(request))
        except SessionDead:
            claim.note(number, limit, None)

    async def heartbeat(self, heartbeat: Heartbeat) -> bool:
        """Keep a session alive in every partition, and open it in new ones; return whether it lives."""
        await self._partitions.load()
        if not heartbeat.is_new:
            await self._partitions.refresh()
        partitions, opened = self._partitions.all(), self._state(heartbeat.session).opened
        share = Capacity(
            max(1, round(heartbeat.slots / len(partitions))), math.ceil(heartbeat.prefetch / len(partitions))
        )
        is_over = heartbeat.lease <= 0
        if is_over:
            del self._states[heartbeat.session]

        async def keep(partition: Partition) -> bool:
            is_new = not is_over and (heartbeat.is_new or partition.number not in opened)
            is_alive = await partition.heartbeat(replace(heartbeat, is_new=is_new), share)
            if is_alive:
                opened.add(partition.number)
            return is_alive

        if not (opened or heartbeat.is_new):
            # Another process opened it. If it lives in the first partition, it is opened in those that were added.
            opened.add(0)
        if len(partitions) == 1:
            return await keep(partitions[0])
        # A partition must know the limits before a session can claim from it.
        await self._limits.adopt(partitions[0])
        await self._limits.catch_up(partitions, heartbeat.now)
        known = [one for one in partitions if is_over or one.number in opened]
        added = [one for one in partitions if one not in known]
        is_alive = all(await bounded_gather(map(keep, known))) and all(await bounded_gather(map(keep, added)))
        await self._limits.divide_if_due(partitions, heartbeat.now)
        return is_alive

    async def wait(self, queues: Sequence[str], at_most: float, session: str) -> bool:
        """Wait for a notification of any partition; return whether one came."""
        if self._partitions.is_one:
            return await self._partitions[0].wait(queues, at_most, session)
        waits = {
            asyncio.ensure_future(partition.wait(queues, at_most, session)): partition.number
            for partition in self._partitions.all()
        }
        try:
            done, waiting = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            while waiting and not any(task.result() for task in done):
                more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                done |= more
        finally:
            for task in waits:
                task.cancel()
        notified = [waits[task] for task in done if task.result()]
        idle = self._state(session).idle
        for number in notified or list(idle):
            # Without a notification the session asks everywhere again: notifications are only hints.
            idle.pop(number, None)
        return bool(notified)
