"""Recovery: what becomes of jobs whose worker is gone. It runs on a timer, in every worker, traffic or not."""

from collections.abc import Callable, Sequence

import structlog

from reprieve.clock import TUNE_EVERY_SECONDS, Clock, ticks
from reprieve.core import change
from reprieve.core.decide import Conditions, decide
from reprieve.core.job import Job
from reprieve.core.outcome import Crashed, Outcome
from reprieve.registry import Registry
from reprieve.rng import draw
from reprieve.stores.protocol import Store
from reprieve.worker.journal import note_recovered

log = structlog.get_logger("reprieve")

EVERY = 1.0
"""Seconds between two looks for sessions whose time is up."""

NOBODY = 0
"""The moment at which nobody's time is up: what the dead hold is taken back, and nobody is added to them."""

JUMP = 1.0
"""Seconds by which the time of day may differ from what has passed before it counts as a jump."""


class Recovery:
    """Takes back what the dead hold, once it is sure that they are dead and not merely unheard.

    When the store could not be written, the clock has jumped, or the whole machine stood still, every session looks
    dead. So nobody is buried until all was well for as long as every living session needs to beat, and the store gave
    us its turn every second meanwhile: that nothing went wrong proves little where nothing was tried.
    """

    def __init__(self, store: Store, clock: Clock, registry: Registry, heartbeat: float) -> None:
        """Take what is looked after, and how often the living send a heartbeat."""
        self._store = store
        self._clock = clock
        self._registry = registry
        self._heartbeat = heartbeat
        self._steady_since: float | None = None
        self._last: tuple[int, float] | None = None

    def unsettle(self) -> None:
        """Note that the store could not be written: the living may not have been heard."""
        self._steady_since = None

    async def look(self) -> int:
        """Recover what is due; answer how many jobs. Nobody is declared dead before that is sure."""
        await self._clock.tune()
        self._check_clock()
        if self._steady_since is not None and ticks() - self._steady_since >= self._heartbeat + EVERY:
            return await self.recover()
        count = await self._bury(NOBODY)
        if self._steady_since is None:
            self._steady_since = ticks()
        return count

    async def recover(self) -> int:
        """Declare dead whoever's time is up, and take back what they hold; answer how many jobs."""
        return await self._bury(self._clock.now())

    async def _bury(self, now: int) -> int:
        count = 0
        while jobs := await self._store.recover(now):
            recovered = await self.take_back(jobs, lambda _: Crashed())
            count += recovered
            if not recovered:
                # Somebody else is at it, and was first with every one of them.
                break
        return count

    async def take_back(self, jobs: Sequence[Job], outcome_of: Callable[[Job], Outcome]) -> int:
        """Settle jobs in the place of a worker that is gone, each with the outcome that is known or must be assumed."""
        now = self._clock.now()
        changes = []
        for job in jobs:
            decision = decide(job, outcome_of(job), self._registry.policy_of(job), Conditions(now=now, u=draw()))
            changes.append(change.settle(job, decision, now))
        answers = await self._store.apply(changes, now)
        for made, answer in zip(changes, answers, strict=True):
            if answer == "applied":
                note_recovered(made)
        return answers.count("applied")

    def _check_clock(self) -> None:
        now, passed = self._clock.now(), ticks()
        if self._last is not None:
            gap = passed - self._last[1]
            jump = (now - self._last[0]) / 1_000 - gap
            if abs(jump) > JUMP:
                log.warning("clock jumped", seconds=round(jump, 3))
                # Others notice it when they tune their clocks.
                self._steady_since = passed + TUNE_EVERY_SECONDS
            if gap > EVERY + self._heartbeat:
                # We were frozen, or the store kept us waiting: so may the others have been.
                self._steady_since = None
        self._last = (now, passed)
