"""Recovery: takes back the jobs of sessions that are gone. Every supervisor does it every second, traffic or not."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import structlog

from reprieve.clock import TUNE_EVERY_SECONDS, Clock, ticks
from reprieve.core import change
from reprieve.core.decide import Conditions, decide
from reprieve.core.job import Job
from reprieve.core.outcome import Crashed, Outcome
from reprieve.errors import StoreError
from reprieve.registry import Registry
from reprieve.rng import draw
from reprieve.stores.paginate import find_all
from reprieve.stores.protocol import Filter, Store
from reprieve.worker.job_logging import log_recovered

log = structlog.get_logger("reprieve")

RECOVERY_INTERVAL_SECONDS = 1.0
"""Seconds between two checks for sessions past their lease."""

BEFORE_ANY_LEASE = 0
"""An instant at which no lease has run out: only the jobs of sessions that are already dead are taken back."""

CLOCK_JUMP_SECONDS = 1.0
"""Seconds by which the time of day may differ from the time that has passed before it counts as a jump."""


class Recovery:
    """Expires sessions past their lease, but only when it is certain that they are gone.

    When the store could not be written, the clock has jumped, or the whole machine stood still, every session looks
    dead. So no session is expired until all was well for as long as every live session needs to send a heartbeat, and
    the store was written every second meanwhile: without a write, a store that is locked would go unnoticed.
    """

    def __init__(self, store: Store, clock: Clock, registry: Registry, heartbeat: float) -> None:
        """Take the store, and the seconds between two heartbeats of a live session."""
        self._store = store
        self._clock = clock
        self._registry = registry
        self._heartbeat = heartbeat
        self._steady_since: float | None = None
        self._last: tuple[int, float] | None = None

    async def run(self) -> AsyncIterator[None]:
        """Recover once a second, until cancelled."""
        while True:
            try:
                await self.recover_if_steady()
            except StoreError:
                self.unsettle()
                raise
            yield
            await asyncio.sleep(RECOVERY_INTERVAL_SECONDS)

    def unsettle(self) -> None:
        """Record that the store could not be written: heartbeats of live sessions may be missing."""
        self._steady_since = None

    async def recover_if_steady(self) -> int:
        """Take back the jobs of dead sessions; return how many. Sessions are expired only after a steady time."""
        await self._clock.tune()
        self._check_clock()
        steady_after = self._heartbeat + RECOVERY_INTERVAL_SECONDS
        if self._steady_since is not None and ticks() - self._steady_since >= steady_after:
            return await self.recover()
        count = await self._recover_at(BEFORE_ANY_LEASE)
        if self._steady_since is None:
            self._steady_since = ticks()
        return count

    async def recover(self) -> int:
        """Expire sessions past their lease and take back the jobs they hold; return how many."""
        return await self._recover_at(self._clock.now())

    async def _recover_at(self, now: int) -> int:
        count = 0
        while jobs := await self._store.recover(now):
            recovered = await self.take_back(jobs, lambda _: Crashed())
            count += recovered
            if not recovered:
                # Another supervisor took back every one of them first.
                break
        return count

    async def end_session(
        self, session: str, outcome_of: Callable[[Job], Outcome], end: Callable[[], Awaitable[None]]
    ) -> None:
        """Settle what the session of a process that is gone holds, then end it with `end`.

        Until it is ended, the session keeps other supervisors away. The last claim of the process may arrive after its
        jobs were read: what was leased by then is read after the end, and no other claim can follow.
        """
        await self.take_back(await self._held_by(session), outcome_of)
        await end()
        await self.take_back(await self._held_by(session), outcome_of)

    async def _held_by(self, session: str) -> list[Job]:
        return await find_all(self._store, Filter(session=session), self._clock.now())

    async def take_back(self, jobs: Sequence[Job], outcome_of: Callable[[Job], Outcome]) -> int:
        """Settle jobs in place of a worker that is gone, each with the given outcome; return how many were settled."""
        if not jobs:
            return 0
        now = self._clock.now()
        changes = []
        for job in jobs:
            decision = decide(job, outcome_of(job), self._registry.policy_of(job), Conditions(now=now, u=draw()))
            changes.append(change.settle(job, decision, now))
        results = await self._store.apply(changes, now)
        for made, result in zip(changes, results, strict=True):
            if result == "applied":
                log_recovered(made)
        return results.count("applied")

    def _check_clock(self) -> None:
        now, passed = self._clock.now(), ticks()
        if self._last is not None:
            gap = passed - self._last[1]
            jump = (now - self._last[0]) / 1_000 - gap
            if abs(jump) > CLOCK_JUMP_SECONDS:
                log.warning("clock jumped", seconds=round(jump, 3))
                # Other processes notice it when they tune their clocks.
                self._steady_since = passed + TUNE_EVERY_SECONDS
            if gap > RECOVERY_INTERVAL_SECONDS + self._heartbeat:
                # This process stood still, or waited for the store: other processes may have, too.
                self._steady_since = None
        self._last = (now, passed)
