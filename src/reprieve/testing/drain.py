"""Draining: everything that waits is run here and now, by a real worker that never waits.

The clock of the app, if it is a `FakeClock`, jumps to the moment at which the next job is due, or the next probe of a
dependency that is down. Everything else is a worker's own doing: the claim, the attempt, its timeout, the decision.
"""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from dataclasses import dataclass

from reprieve.app import Reprieve
from reprieve.clock import Clock
from reprieve.config import Settings
from reprieve.context import Running
from reprieve.core.duration import MAX_DURATION_SECONDS, Duration, milliseconds, seconds
from reprieve.core.job import Job
from reprieve.core.outcome import Interrupted, Outcome
from reprieve.declaration import Declaration
from reprieve.errors import EndlessDrain, ReprieveError
from reprieve.producer import patiently
from reprieve.registry import Registry
from reprieve.rng import bits
from reprieve.signals import Signal
from reprieve.stores.protocol import Filter, Heartbeat, Store, Tally
from reprieve.testing.clock import FakeClock
from reprieve.testing.drained import Attempted, Drained, attempted, failure_of
from reprieve.worker.middleware import Middleware, Proceed
from reprieve.worker.recovery import Recovery
from reprieve.worker.runner import Runner
from reprieve.worker.worker import Worker

AT_MOST = 1_000
"""Attempts after which a drain takes it that there is no end, unless it is told otherwise."""

IN_VAIN = 1_000
"""Looks at one moment that bring nothing, after which a drain takes it that there is no end."""


def drain(
    app: Reprieve,
    clock: FakeClock | None = None,
    *,
    within: Duration | None = None,
    at_most: int = AT_MOST,
    raises: bool = False,
) -> Drained:
    """Run everything that waits, from code without a loop; see `adrain`."""
    if is_in_loop():
        message = "drain() is for code without a loop; here one is running: await adrain(app)"
        raise ReprieveError(message)
    return asyncio.run(adrain(app, clock, within=within, at_most=at_most, raises=raises))


def is_in_loop() -> bool:
    """Return whether the caller runs in an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def adrain(
    app: Reprieve,
    clock: FakeClock | None = None,
    *,
    within: Duration | None = None,
    at_most: int = AT_MOST,
    raises: bool = False,
) -> Drained:
    """Run everything that waits, one job after the other, until nothing waits any more; answer what happened.

    With a `FakeClock`, the app's own or the one that is given, nobody waits for a retry or a schedule: the clock jumps
    there. `within` is how far it may go; that much time has passed afterwards. On the machine's clock only what is due
    is run. More than `at_most` attempts raise `EndlessDrain`, which names the job that keeps coming back. With `raises`
    the drain ends at the first attempt that fails, and raises what its task raised.
    """
    with nullcontext() if clock is None else app.override(clock=clock):
        now = app.clock.now()
        until = now + milliseconds(MAX_DURATION_SECONDS if within is None else seconds(within, "within"))
        drained = await run_due(app, until=until, at_most=at_most, raises=raises)
        if within is not None and isinstance(app.clock, FakeClock):
            app.clock.set(max(until, app.clock.now()))
        return drained


async def run_due(app: Reprieve, *, until: int, at_most: int = AT_MOST, raises: bool = False) -> Drained:
    """Run what is due until a moment that a fake clock may jump to; with `raises`, up to the first failure."""
    async with app.lifespan_context():
        drain = Drain(app, until, at_most, raises=raises)
        await drain.open()
        try:
            await drain.run()
        finally:
            await drain.close()
        return await drain.drained()


@dataclass(slots=True)
class Place:
    """What a drain works with: an app, with somebody who sees what its tasks raise."""

    settings: Settings
    clock: Clock
    registry: Registry
    middleware: list[Middleware]
    store: Store


class Here:
    """Runs in this process what a worker would run in a process of its own: what it does is seen by the test."""

    def __init__(self) -> None:
        """Wait for the runner."""
        self.runner: Runner | None = None

    async def run(self, declaration: Declaration, running: Running) -> Outcome:
        """Run one attempt."""
        if self.runner is None:
            message = "there is no runner yet"
            raise AssertionError(message)
        return await self.runner.run_here(declaration, running)


class Drain(Worker):
    """A worker that runs one job at a time and, when there is nothing to do, goes to where there is."""

    def __init__(self, app: Reprieve, until: int, at_most: int, *, raises: bool) -> None:
        """Get ready to work, for at most so many attempts and up to a moment."""
        middleware = [self._witness, *app.middleware]
        place = Place(app.settings, app.clock, app.registry, middleware, app.store)
        here = Here()
        super().__init__(place, f"drain-{os.getpid()}-{bits(32):08x}", isolation=here)
        here.runner = self._runner
        self._recovery = Recovery(app.store, app.clock, app.registry, app.settings.heartbeat)
        self._until = until
        self._at_most = at_most
        self._raises = raises
        self._in_vain = 0
        self._is_endless = False
        self._errors: dict[str, BaseException] = {}
        self._attempts: list[Attempted] = []

    async def open(self) -> None:
        """Open the session, for longer than any clock jumps."""
        heartbeat = Heartbeat(
            session=self.session, now=self._clock.now(), lease=MAX_DURATION_SECONDS, slots=1, is_new=True
        )
        await patiently(lambda: self._store.heartbeat(heartbeat))
        await patiently(self._gates.refresh)
        await self._look_around()
        self._may_look = True

    async def close(self) -> None:
        """End the session."""
        heartbeat = Heartbeat(session=self.session, now=self._clock.now(), lease=0, slots=1)
        await patiently(lambda: self._store.heartbeat(heartbeat))

    async def drained(self) -> Drained:
        """Return what happened, or raise what nobody may overlook."""
        for attempt in self._attempts:
            if attempt.error is not None and not isinstance(attempt.error, Exception | SystemExit):
                # A test that fails, or a key pressed, inside of a task is no failure of the task.
                raise attempt.error
            if self._raises and (failure := failure_of(attempt)) is not None:
                raise failure
        if self._is_endless:
            raise EndlessDrain(self._complaint())
        waiting = await self._tally("status")
        count = sum(waiting.get(status, 0) for status in ("ready", "scheduled", "retrying", "parked"))
        return Drained(attempts=tuple(self._attempts), waiting=count)

    # what differs from a worker

    def _keepers(self) -> list[tuple[Callable[[], AsyncIterator[None]], str]]:
        # Gates are looked after between two jobs, so that the same test ends in the same way every time.
        return [
            (self._watch_for_cancels, "looking for cancel requests"),
            (self._progress.write, "writing progress"),
        ]

    def _room(self) -> int:
        return int(not self._is_stopping and not self._running and not self._fetched and self._slots > 0)

    async def _exchange(self, limit: int) -> None:
        await patiently(self._gates.share_all)
        await super()._exchange(limit)

    async def _idle(self, limit: int) -> None:
        if not limit:
            await super()._idle(limit)
        elif not await self._look_around() and not self._jump():
            self.stop()

    def _jump(self) -> bool:
        """Go to the moment of the next job or probe, and say whether there is one."""
        now = self._clock.now()
        moments = [at for at in (self._next_at, self._gates.next_probe_at()) if at is not None]
        at = min(moments, default=None)
        if at is None or at > self._until:
            return False
        if at > now:
            if not isinstance(self._clock, FakeClock):
                return False
            self._clock.set(at)
            self._in_vain = 0
        self._may_look = True
        self._in_vain += 1
        self._is_endless = self._in_vain > IN_VAIN
        return not self._is_endless

    async def _look_around(self) -> bool:
        """See what the store has beside jobs that wait their turn: jobs of the dead, and queues that are new."""
        known = await self._tally("queue")
        queues = tuple(dict.fromkeys((*self._queues, *sorted(known))))
        is_new = queues != self._queues
        self._queues = queues
        returned = await patiently(self._recovery.recover)
        self._may_look = is_new or returned > 0
        return self._may_look

    async def _tally(self, by: Tally) -> dict[str, int]:
        return await patiently(lambda: self._store.tally(by, Filter(), self._clock.now()))

    def _launch(self, job: Job) -> None:
        self._in_vain = 0
        if len(self._attempts) < self._at_most:
            super()._launch(job)
            return
        self._is_endless = True
        super()._settle(job, Interrupted())
        self.stop()

    def _settle(self, job: Job, outcome: Outcome) -> None:
        super()._settle(job, outcome)
        self._attempts.append(attempted(self._changes[-1], self._errors.pop(job.id, None)))
        if self._raises and failure_of(self._attempts[-1]) is not None:
            self.stop()

    async def _witness(self, running: Running, proceed: Proceed) -> object:
        try:
            answer = await proceed()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._errors[running.id] = error
            raise
        if isinstance(answer, Signal):
            self._errors[running.id] = answer
        return answer

    def _complaint(self) -> str:
        """Name the job that keeps coming back, or else the task."""
        if self._in_vain > IN_VAIN:
            return f"the store says that there is work and gives none, {IN_VAIN:,} times at the same moment"
        (job_id, times), *_ = Counter(attempt.job.id for attempt in self._attempts).most_common(1)
        last = next(attempt for attempt in reversed(self._attempts) if attempt.job.id == job_id)
        culprit = f"job {job_id} of {last.task} was tried {times:,} times and was {last.ending} in the end"
        if times == 1:
            (task, times), *_ = Counter(attempt.task for attempt in self._attempts).most_common(1)
            culprit = f"{times:,} of them were different jobs of {task}"
        return (
            f"{len(self._attempts):,} attempts were made and jobs are still coming: {culprit}; "
            "say how much time may pass (within=), or allow more (at_most=)"
        )
