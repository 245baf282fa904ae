"""The worker: fetches jobs, runs them and settles them, with exactly one call to the store under way.

Each call carries the changes of all attempts that ended since the last one, and asks for as many jobs as there is room
for. So batches find their own size: one job when it is quiet, hundreds under load, and no timer.

The module reads in the order of a job: fetch, run, settle. The parts are described in `worker.parts`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress

import structlog

from reprieve.clock import ticks
from reprieve.core.change import Change
from reprieve.core.job import Job
from reprieve.core.outcome import Interrupted, Outcome
from reprieve.errors import SessionDead, StoreError
from reprieve.stores.paginate import find_all
from reprieve.stores.protocol import Claimed, Filter
from reprieve.worker.ended_attempts import EndedAttempts
from reprieve.worker.in_flight import InFlightTable
from reprieve.worker.job_logging import log_leased_again, log_unknown_lease
from reprieve.worker.notifier import wake_ups
from reprieve.worker.parts import WorkerParts
from reprieve.worker.prefetch import PrefetchBuffer
from reprieve.worker.runner import Isolation
from reprieve.worker.supervised_loop import Loop, supervised_loops
from reprieve.worker.worker_context import WorkerContext

log = structlog.get_logger("reprieve")

MAX_IDLE_SECONDS = 5.0
"""Seconds after which an idle worker claims without a notification, in case it missed one."""

COMPARE_SECONDS = 15.0
"""Seconds between two comparisons of the jobs that a session holds with those that it knows."""

FETCH_GRACE_SECONDS = 0.5
"""Seconds that a claim which settles nothing may still take when the worker stops."""

PULSE_SECONDS = 0.5
"""Seconds between two signs that the event loop turns, and between two checks for jobs that wait for too long."""


class Worker:
    """Runs the jobs of one session, as many at once as it has slots."""

    def __init__(
        self,
        context: WorkerContext,
        session: str,
        *,
        queues: Sequence[str] = (),
        slots: int = 0,
        isolation: Isolation | None = None,
        in_flight: InFlightTable | None = None,
    ) -> None:
        """Work for a session that the caller has opened and keeps alive."""
        slots = slots or context.settings.slots
        self.session = session
        self.is_lost = False
        """Whether the session was declared dead: its jobs belong to other sessions."""
        self._in_flight = in_flight or InFlightTable(slots)
        self.parts = WorkerParts.assemble(context, session, in_flight=self._in_flight, slots=slots, isolation=isolation)
        self._claims, self._attempts, self._settlement, self._gates = (
            self.parts.claims,
            self.parts.attempts,
            self.parts.settlement,
            self.parts.gates,
        )
        self._unknown_tasks, self._counts = self.parts.unknown_tasks, self.parts.counts
        self._store = context.store
        self._clock = context.clock
        self._queues = tuple(queues) or context.registry.queues()
        self._heartbeat = context.settings.heartbeat
        self._prefetched = PrefetchBuffer()
        self._unsettled = EndedAttempts()
        self._compare_at = ticks() + COMPARE_SECONDS
        """When the jobs that the store says this session holds are next compared with those that it knows."""
        self._is_stopping = False
        self._fetching: asyncio.Task[Claimed] | None = None
        """The claim under way, if it settles nothing."""
        self._may_claim = True
        """Whether there may be jobs to fetch: the last claim found some, or a notification has come since."""
        self._next_at: int | None = None
        """When the next job is due, as the last claim said."""
        self._wake = asyncio.Event()
        self._attempts.on_slot_freed = self._wake.set

    async def run(self) -> None:
        """Work until told to stop, or until the session is lost."""
        async with supervised_loops(self._loops(), self.parts.outage):
            try:
                while not (self._is_stopping and not (self._attempts.running or self._prefetched or self._unsettled)):
                    if ticks() > self._compare_at:
                        await self._give_back_unknown()
                    limit = self._room()
                    if self._unsettled or (limit and self._may_claim) or self._counts.is_due():
                        await self._claim(limit)
                    else:
                        await self._idle(limit)
                await self._hand_over_counts()
            finally:
                self._attempts.close()

    def stop(self) -> None:
        """Fetch nothing more, give back what has not started, and end when the running attempts have ended."""
        self._is_stopping = True
        if self._fetching is not None:
            # The store may be away, and this claim would be repeated until it is back.
            asyncio.get_running_loop().call_later(FETCH_GRACE_SECONDS, self._fetching.cancel)
        self._give_back(lambda _: True)
        self._wake.set()

    def stop_now(self) -> None:
        """End the running attempts too; their jobs go back uncharged."""
        self.stop()
        self._attempts.stop_all()

    # fetch

    def _room(self) -> int:
        """Return how many jobs to ask for: free slots, and the slots that fast jobs will free in a moment."""
        if self._is_stopping:
            return 0
        if self._gates.has_unconfirmed:
            # What is fetched now might be given back in a moment.
            return 0
        slots, claim = self._attempts.slots, self._claims.time
        ahead = self._attempts.jobs_ahead(claim)
        self._in_flight.set_prefetch(ahead)
        return max(0, min(claim.max_jobs, slots + ahead - len(self._attempts.running) - len(self._prefetched)))

    async def _claim(self, limit: int) -> None:
        """Settle what has ended and fetch up to `limit` jobs, in one call."""
        changes = self._unsettled.take()
        try:
            claimed = await self._fetch(limit, changes)
        except SessionDead:
            if not self.is_lost:
                log.warning("session lost", session=self.session)
            self.is_lost = True
            self.stop_now()
            return
        if claimed is None:
            return
        if limit:
            self._next_at = claimed.next_at
            # A store may lease fewer jobs than it was asked for; then `next_at` says that there are more.
            is_more = claimed.next_at is not None and claimed.next_at <= self._clock.now()
            self._may_claim = len(claimed.jobs) == limit or (is_more and bool(claimed.jobs))
        self._unsettled.add_results(changes, claimed.results)
        new = self._new_jobs(claimed.jobs)
        for job in self._unknown_tasks.remove_from(new):
            self._settle(job, Interrupted(started=False))
        self._prefetched.add(new, ticks())
        if self._is_stopping:
            self._give_back(lambda _: True)
        self._start()

    async def _fetch(self, limit: int, changes: Sequence[Change]) -> Claimed | None:
        """Make a claim. Return None for one that settles nothing and was given up, because the worker stops."""
        claim = self._claims.claim(self._queues, limit, changes)
        if changes:
            return await claim
        self._fetching = asyncio.create_task(claim)
        try:
            return await self._fetching
        except asyncio.CancelledError:
            if self._is_stopping and self._fetching.cancelled():
                return None
            raise
        finally:
            self._fetching = None

    def _new_jobs(self, leased: Sequence[Job]) -> list[Job]:
        """Return the jobs of a claim that are to be started.

        A store that was restored to an earlier state leases jobs again that this session runs or has run, under no
        higher version. They are not run twice: the attempt goes on under the new lease, or its outcome settles the new
        lease. Under a higher version, the job has moved on without the attempt, which is ended first.
        """
        if not leased:
            return []
        waiting = self._prefetched.ids()
        new = []
        for job in leased:
            attempt = self._attempts.running.get(job.id)
            if attempt is not None and job.version > attempt.job.version:
                attempt.stop("stopped")
                new.append(job)
                continue
            if attempt is not None:
                attempt.job = job
            elif (outcome := self._unsettled.outcome_of(job)) is not None:
                self._settle(job, outcome)
            else:
                new.append(job)
                if job.id not in waiting:
                    continue
            log_leased_again(job)
        again = {job.id for job in new} & waiting
        self._prefetched.remove(lambda job: job.id in again)
        return new

    async def _give_back_unknown(self) -> None:
        """Give back jobs that this session holds in a store that was restored, and does not know.

        No claim is under way, so every other job that it holds is known here.
        """
        self._compare_at = ticks() + COMPARE_SECONDS
        if self._is_stopping:
            return
        try:
            held = await find_all(self._store, Filter(session=self.session), self._clock.now())
        except StoreError:
            # The claims wait until the store is back.
            return
        known = {*self._attempts.running, *self._prefetched.ids(), *self._unsettled.ids()}
        for job in held:
            if job.id not in known:
                log_unknown_lease(job)
                self._settle(job, Interrupted())

    async def _idle(self, limit: int) -> None:
        """Wait until an attempt ends, the store notifies, or the next job is due."""
        listener = asyncio.create_task(self._listen()) if limit else None
        if listener is not None:
            listener.add_done_callback(self._notified)
        try:
            await self._wake.wait()
        finally:
            if listener is not None:
                listener.cancel()
        self._wake.clear()

    async def _listen(self) -> None:
        """Wait for a notification, but not longer than until the next job is due."""
        at_most = MAX_IDLE_SECONDS
        if self._next_at is not None:
            at_most = min(at_most, max(0.0, (self._next_at - self._clock.now()) / 1_000))
        try:
            await self._store.wait(self._queues, at_most, self.session)
        except StoreError:
            await asyncio.sleep(PULSE_SECONDS)

    def _notified(self, listener: asyncio.Task[None]) -> None:
        """Claim again, however the wait ended, unless this worker cancelled it."""
        if not listener.cancelled():
            self._may_claim = True
            self._wake.set()

    # run

    def _start(self) -> None:
        """Start prefetched jobs while there are free slots."""
        while self._prefetched and len(self._attempts.running) < self._attempts.slots:
            job = self._prefetched.next(self._attempts.by_tenant, self._attempts.slots, self._attempts.has_other_tenant)
            if job is None:
                return
            dependency = job.dependency
            if self._gates.is_unconfirmed(dependency) or job.id in self._attempts.running:
                return
            if dependency and self._gates.is_held(dependency):
                self._give_back(lambda job: self._gates.is_held(job.dependency))
                continue
            self._attempts.start(self._prefetched.take(job), self._ended)

    # settle

    def _ended(self, job: Job, outcome: Outcome) -> None:
        """Settle an attempt with the next claim, and use its slot."""
        self._settle(job, outcome)
        self._start()

    def _settle(self, job: Job, outcome: Outcome) -> None:
        self._unsettled.add(job, outcome, self._settlement.settle(job, outcome))
        self._wake.set()

    def _give_back(self, is_wanted: Callable[[Job], bool]) -> None:
        """Give prefetched jobs back that have not started; it costs them nothing."""
        for job in self._prefetched.remove(is_wanted):
            self._settle(job, Interrupted(started=False))

    async def _hand_over_counts(self) -> None:
        """Hand over what was counted since the last claim, unless the store is away."""
        if self.is_lost or self.parts.outage.is_on:
            return
        with suppress(TimeoutError, StoreError):
            async with asyncio.timeout(FETCH_GRACE_SECONDS):
                await self._claims.hand_over_counts()

    # beside the jobs

    def _loops(self) -> dict[str, Loop]:
        """Return the background loops, each under what the log calls it."""
        return {
            "sharing gates": self._gates.run,
            "reading gates": self._read_gates,
            "looking for cancel requests": lambda: self.parts.cancel_requests.watch(self._queues),
            "writing progress": self.parts.progress.run,
            "describing failures": self.parts.failures.run,
            "checking unknown tasks": self._unknown_tasks.run,
            "tidying": self._tidy,
        }

    async def _read_gates(self) -> AsyncIterator[None]:
        """Read the fleet's gates after every notification, and act on a change at once."""

        def act() -> None:
            self._start()
            self._wake.set()

        self._gates.on_change = act
        async with aclosing(wake_ups(self._store, self._queues, self._heartbeat)) as woken:
            async for _ in woken:
                await self._gates.refresh()
                yield

    async def _tidy(self) -> AsyncIterator[None]:
        """Show that the event loop turns, and give back jobs that wait behind slow ones."""
        while True:
            now = ticks()
            self._in_flight.heartbeat(now)
            if now > self._compare_at or self._counts.is_due():
                self._wake.set()
            if stale := self._prefetched.stale(now, self._claims.time):
                # Or as many would be fetched again at once.
                self._attempts.count_running()
                self._give_back(lambda job: job.id in stale)
            # Other tenants may not have been active for a while now.
            self._start()
            yield
            await asyncio.sleep(PULSE_SECONDS)
