"""Draining: runs all waiting jobs here and now, one after the other, without waiting for their time.

The clock of the app, if it is a `FakeClock`, jumps to the moment at which the next job, or the next probe of a
dependency that is down, is due. The claim, the attempt with its timeout, and the decision are made by the same parts
that a worker is composed of; see `reprieve.worker.parts`.
"""

import asyncio
import os
from collections import Counter
from contextlib import nullcontext

from reprieve.app import Reprieve
from reprieve.clock import Clock
from reprieve.context import Running
from reprieve.core.change import Change
from reprieve.core.duration import MAX_DURATION_SECONDS, Duration, milliseconds, seconds
from reprieve.core.job import Job
from reprieve.core.outcome import Interrupted, Outcome
from reprieve.errors import EndlessDrain, ReprieveError
from reprieve.producer import repeat_while_unreachable
from reprieve.rng import bits
from reprieve.signals import Signal
from reprieve.stores.protocol import Claimed, Filter, Heartbeat, Store, Tally
from reprieve.testing.clock import FakeClock
from reprieve.testing.drained import Attempted, Drained, attempted, failure_of
from reprieve.worker.expiry import expire_some
from reprieve.worker.in_flight import InFlightTable
from reprieve.worker.middleware import Proceed
from reprieve.worker.parts import WorkerParts
from reprieve.worker.recovery import Recovery
from reprieve.worker.supervised_loop import supervised_loops

MAX_ATTEMPTS = 1_000
"""Attempts after which a drain raises `EndlessDrain`, unless the caller allows more."""

MAX_EMPTY_CLAIMS = 1_000
"""Claims at one moment that return no job, although the store says that there is one; then a drain raises
`EndlessDrain`."""


def drain(
    app: Reprieve,
    clock: FakeClock | None = None,
    *,
    within: Duration | None = None,
    at_most: int = MAX_ATTEMPTS,
    raises: bool = False,
) -> Drained:
    """Run all waiting jobs, from code without an event loop; see `adrain`."""
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
    at_most: int = MAX_ATTEMPTS,
    raises: bool = False,
) -> Drained:
    """Run all waiting jobs, one after the other, until none is left; return what happened.

    With a `FakeClock`, the app's own or the one that is given, retries and schedules take no time: the clock jumps to
    them. `within` limits how far it may go; afterwards exactly that much time has passed. On the machine's clock only
    jobs that are due are run. More than `at_most` attempts raise `EndlessDrain`, which names the job that keeps coming
    back. With `raises`, the drain ends at the first attempt that fails, and raises what its task raised.
    """
    with nullcontext() if clock is None else app.override(clock=clock):
        now = app.clock.now()
        until = now + milliseconds(MAX_DURATION_SECONDS if within is None else seconds(within, "within"))
        drained = await run_due(app, until=until, at_most=at_most, raises=raises)
        if within is not None and isinstance(app.clock, FakeClock):
            app.clock.set(max(until, app.clock.now()))
            await expire_all(app.store, app.clock)
        return drained


async def run_due(app: Reprieve, *, until: int, at_most: int = MAX_ATTEMPTS, raises: bool = False) -> Drained:
    """Run the jobs that are due by `until`, which a fake clock may jump to; with `raises`, up to the first failure."""
    async with app.lifespan_context():
        drain = Drain(app, until, at_most, raises=raises)
        await drain.open()
        app.workers += 1
        try:
            await drain.run()
        finally:
            app.workers -= 1
            await drain.close()
        return await drain.drained()


async def expire_all(store: Store, clock: Clock) -> None:
    """End every job that waits past its deadline, or was parked for too long, as a worker does every second."""
    while await repeat_while_unreachable(lambda: expire_some(store, clock)):
        pass


class Drain:
    """Fetches, runs and settles one job after the other; when none is due, it moves the clock to the next one."""

    def __init__(self, app: Reprieve, until: int, at_most: int, *, raises: bool) -> None:
        """Run jobs of an app up to a moment, with at most so many attempts."""
        self._session = f"drain-{os.getpid()}-{bits(32):08x}"
        slots = app.settings.slots
        self._parts = WorkerParts.assemble(
            app, self._session, in_flight=InFlightTable(slots), slots=slots, middleware=[self._keep_error]
        )
        self._store = app.store
        self._clock = app.clock
        self._queues = app.registry.queues()
        self._tasks = tuple(declaration.name for declaration in app.registry)
        self._unknown_tasks = self._parts.unknown_tasks
        self._unknown_after = app.settings.unknown_after
        self._unknown_until = 0
        """How far the clock may jump for jobs of unknown tasks, which are dead by then."""
        self._recovery = Recovery(app.store, app.clock, app.registry, app.settings.heartbeat)
        self._until = until
        self._at_most = at_most
        self._raises = raises
        self._empty_claims = 0
        self._is_over = False
        self._is_endless = False
        self._errors: dict[str, BaseException] = {}
        """What the tasks of running jobs have raised, by the ids of the jobs."""
        self._attempts: list[Attempted] = []
        self._slot_freed = asyncio.Event()
        self._parts.attempts.on_slot_freed = self._slot_freed.set

    async def open(self) -> None:
        """Open the session, with a lease that no jump of the clock ends."""
        heartbeat = Heartbeat(
            session=self._session,
            now=self._clock.now(),
            lease=MAX_DURATION_SECONDS,
            slots=1,
            is_new=True,
            tasks=self._tasks,
        )
        await repeat_while_unreachable(lambda: self._store.heartbeat(heartbeat))
        await repeat_while_unreachable(self._parts.gates.refresh)
        await self._find_more()

    async def close(self) -> None:
        """End the session."""
        heartbeat = Heartbeat(session=self._session, now=self._clock.now(), lease=0, slots=1)
        await repeat_while_unreachable(lambda: self._store.heartbeat(heartbeat))

    async def run(self) -> None:
        """Run jobs until none is due any more."""
        parts = self._parts
        loops = {
            "looking for cancel requests": lambda: parts.cancel_requests.watch(self._queues),
            "writing progress": parts.progress.run,
        }
        async with supervised_loops(loops, parts.outage):
            try:
                await self._run_jobs()
            finally:
                parts.attempts.close()
                await parts.failures.write()

    async def drained(self) -> Drained:
        """Return what happened, or raise what the caller must see."""
        for attempt in self._attempts:
            if attempt.error is not None and not isinstance(attempt.error, Exception | SystemExit):
                # A failed assertion of the test framework, or Ctrl-C, inside of a task is not a failure of the task.
                raise attempt.error
            if self._raises and (failure := failure_of(attempt)) is not None:
                raise failure
        if self._is_endless:
            raise EndlessDrain(self._explain_endless())
        waiting = await self._tally("status")
        count = sum(waiting.get(status, 0) for status in ("ready", "scheduled", "retrying", "parked"))
        return Drained(attempts=tuple(self._attempts), waiting=count)

    # fetch, run, settle

    async def _run_jobs(self) -> None:
        claims, changes = self._parts.claims, list[Change]()
        while not self._is_over:
            # Between two jobs, not in the background: the same test ends in the same way every time.
            await repeat_while_unreachable(self._parts.gates.share_all)
            claimed = await claims.claim(self._queues, 1, changes)
            changes = [await self._settle(job) for job in claimed.jobs]
            if not changes and not await self._find_more() and not self._jump(await self._next_at(claimed)):
                return
        await repeat_while_unreachable(self._parts.gates.share_all)
        await claims.claim(self._queues, 0, changes)

    async def _settle(self, job: Job) -> Change:
        """Run a job, and return the change that settles it."""
        settlement, self._empty_claims = self._parts.settlement, 0
        if len(self._attempts) >= self._at_most:
            self._is_over = self._is_endless = True
            return settlement.settle(job, Interrupted(started=False))
        if self._unknown_tasks.remove_from([job]):
            self._unknown_until = self._clock.now() + milliseconds(2 * self._unknown_after)
            return settlement.settle(job, Interrupted(started=False))
        job, outcome = await self._attempt(job)
        change = settlement.settle(job, outcome)
        self._attempts.append(attempted(change, self._errors.pop(job.id, None)))
        self._is_over = self._raises and failure_of(self._attempts[-1]) is not None
        return change

    async def _attempt(self, job: Job) -> tuple[Job, Outcome]:
        if self._parts.gates.is_held(job.dependency):
            return job, Interrupted(started=False)
        while not self._parts.attempts.slots:
            # Threads that could not be stopped have taken every slot.
            self._slot_freed.clear()
            await self._slot_freed.wait()
        return await self._parts.attempts.run(job)

    async def _keep_error(self, running: Running, proceed: Proceed) -> object:
        """Keep what a task raises: as a middleware, before the runner turns it into an outcome."""
        try:
            value = await proceed()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._errors[running.id] = error
            raise
        if isinstance(value, Signal):
            self._errors[running.id] = value
        return value

    # when no job is due

    async def _find_more(self) -> bool:
        """Take back jobs of dead sessions, and add queues that are new; return whether there were any."""
        known = await self._tally("queue")
        queues = tuple(dict.fromkeys((*self._queues, *sorted(known))))
        is_new = queues != self._queues
        self._queues = queues
        await expire_all(self._store, self._clock)
        return await repeat_while_unreachable(self._recovery.recover) > 0 or is_new

    async def _next_at(self, claimed: Claimed) -> int | None:
        """Return when to claim again; if only jobs of unknown tasks wait, when these are checked."""
        unknown = self._unknown_tasks
        if unknown.next_check_at is not None and unknown.next_check_at <= self._clock.now():
            await repeat_while_unreachable(unknown.check)
        if unknown.next_check_at is None:
            return claimed.next_at
        wanted = Filter(statuses=frozenset({"ready", "scheduled", "retrying", "parked"}))
        now = self._clock.now()
        waiting = (await repeat_while_unreachable(lambda: self._store.tally("task", wanted, now))).counts
        if waiting.keys() - set(unknown.exclude):
            return claimed.next_at
        return unknown.next_check_at if unknown.next_check_at <= self._unknown_until else None

    def _jump(self, next_at: int | None) -> bool:
        """Set the clock to the moment of the next job or probe; return whether there is one."""
        moments = (next_at, self._parts.gates.next_probe_at())
        at = min((moment for moment in moments if moment is not None), default=None)
        if at is None or at > self._until:
            return False
        if at > self._clock.now():
            if not isinstance(self._clock, FakeClock):
                return False
            self._clock.set(at)
            self._empty_claims = 0
        self._empty_claims += 1
        self._is_endless = self._empty_claims > MAX_EMPTY_CLAIMS
        return not self._is_endless

    async def _tally(self, by: Tally) -> dict[str, int]:
        return (await repeat_while_unreachable(lambda: self._store.tally(by, Filter(), self._clock.now()))).counts

    def _explain_endless(self) -> str:
        """Return which job keeps coming back, or else which task."""
        if self._empty_claims > MAX_EMPTY_CLAIMS:
            return f"the store says that there is work and gives none, {MAX_EMPTY_CLAIMS:,} times at the same moment"
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
