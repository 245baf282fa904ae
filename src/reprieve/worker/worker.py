"""The worker: fetches jobs, runs them, and settles them, with exactly one call to the store under way.

Each call carries what has ended since the last one and asks for as much as there is room for, so batches find their own
size: one job when it is quiet, hundreds under load, and no timer.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from contextlib import aclosing

import structlog
from msgspec.structs import replace

from reprieve.clock import ticks
from reprieve.context import Running
from reprieve.core.change import Change
from reprieve.core.classify import judge
from reprieve.core.job import Job
from reprieve.core.move import Succeed
from reprieve.core.outcome import Failed, Interrupted, Outcome, Succeeded, overran
from reprieve.errors import SessionDead, StoreError
from reprieve.stores.paginate import find_all
from reprieve.stores.protocol import Filter
from reprieve.worker.attempt import Attempt, Why
from reprieve.worker.bell import rings
from reprieve.worker.board import Board
from reprieve.worker.claims import Claims
from reprieve.worker.fetched import Fetched
from reprieve.worker.gates import Gates
from reprieve.worker.journal import note_refused, note_settled, note_started, note_succeeded, note_unjudged
from reprieve.worker.judge import Judge
from reprieve.worker.opening import START_WITHIN_SECONDS
from reprieve.worker.persist import CHILD_WAITS_SECONDS, Outage, persist
from reprieve.worker.progress import Progress
from reprieve.worker.runner import Isolation, Runner
from reprieve.worker.stopwatch import MOST, Stopwatch
from reprieve.worker.tracebacks import failure_of
from reprieve.worker.workplace import Workplace

log = structlog.get_logger("reprieve")

LISTEN_AT_MOST = 5.0
"""Seconds after which a worker looks by itself, in case the bell was not heard."""

PULSE_EVERY = 0.5
"""Seconds between two signs that the loop turns, and between two looks for what has waited for too long."""

START_UP = 30.0 + START_WITHIN_SECONDS
"""Seconds that a process of its own, with the lifespans of its app, may take to start, before the time of an attempt in
it begins to count."""


class Worker:
    """Runs the jobs of one session, up to so many at once."""

    def __init__(
        self,
        place: Workplace,
        session: str,
        *,
        queues: Sequence[str] = (),
        slots: int = 0,
        isolation: Isolation,
        board: Board | None = None,
    ) -> None:
        """Get ready to work for a session that somebody has opened and keeps alive."""
        self.session = session
        self.is_lost = False
        """Whether the session was found dead: its jobs belong to others."""
        self._store = place.store
        self._clock = place.clock
        self._registry = place.registry
        self._queues = tuple(queues) or place.registry.queues()
        self._slots = slots or place.settings.slots
        self._board = board or Board(self._slots)
        self._gates = Gates(place.store, place.clock, lambda name: self._calls[name])
        self._judge = Judge(place.registry, self._gates, place.clock)
        self._runner = Runner(
            place.registry,
            place.clock,
            middleware=place.middleware,
            largest_result=place.settings.largest_payload,
            threads=self._slots,
            isolation=isolation,
        )
        self._stopwatch = Stopwatch()
        self._largest_progress = place.settings.largest_payload
        self._heartbeat = place.settings.heartbeat
        self._outage = Outage(is_told=self._board.is_store_away, told_within=CHILD_WAITS_SECONDS)
        self._claims = Claims(place.store, place.clock, session, self._outage)
        self._changes: list[Change] = []
        self._fetched = Fetched()
        self._running: dict[str, Attempt] = {}
        self._calls: Counter[str] = Counter()
        self._is_stopping = False
        self._may_look = True
        """Whether there may be something to fetch: the last look was not in vain, or the bell has rung since."""
        self._next_at: int | None = None
        self._wake = asyncio.Event()
        self._progress = Progress(place.store, place.clock, session)

    async def run(self) -> None:
        """Work until told to stop, or until the session is lost."""
        self._loop = asyncio.get_running_loop()
        keepers = [asyncio.create_task(persist(keep, what, self._outage)) for keep, what in self._keepers()]
        try:
            while not (self._is_stopping and not (self._running or self._fetched or self._changes)):
                limit = self._room()
                if self._changes or (limit and self._may_look):
                    await self._exchange(limit)
                else:
                    await self._idle(limit)
        finally:
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)
            self._runner.close()

    def stop(self) -> None:
        """Fetch nothing more, give back what has not started, and end when what runs has ended."""
        self._is_stopping = True
        self._give_back(lambda _: True)
        self._wake.set()

    def stop_now(self) -> None:
        """End what still runs; it goes back uncharged."""
        self.stop()
        for attempt in list(self._running.values()):
            attempt.end("stopped")

    # the conversation with the store

    def _room(self) -> int:
        """Return how many jobs to ask for: free slots, and what fast jobs will have freed in a moment."""
        if self._is_stopping:
            return 0
        if self._gates.has_unconfirmed:
            # What is fetched now would soon be given back.
            return 0
        wanted = self._slots + self._stopwatch.ahead(self._slots)
        return max(0, min(MOST, wanted - len(self._running) - len(self._fetched)))

    async def _exchange(self, limit: int) -> None:
        """Settle what has ended and fetch more, in one call; repeated until it is answered."""
        changes, self._changes = tuple(self._changes), []
        try:
            claimed = await self._claims.make(self._queues, limit, changes)
        except SessionDead:
            if not self.is_lost:
                log.warning("session lost", session=self.session)
            for change in changes:
                note_refused(change, "refused")
            self.is_lost = True
            self.stop_now()
            return
        for change, answer in zip(changes, claimed.results, strict=True):
            if answer in ("refused", "missing"):
                note_refused(change, answer)
        if limit:
            self._next_at = claimed.next_at
            # A store may lease fewer at a time than it was asked for, and says then that there is more.
            is_more = claimed.next_at is not None and claimed.next_at <= self._clock.now()
            self._may_look = len(claimed.jobs) == limit or (is_more and bool(claimed.jobs))
        self._fetched.add(claimed.jobs, ticks())
        if self._is_stopping:
            self._give_back(lambda _: True)
        self._start()

    async def _idle(self, limit: int) -> None:
        """Wait until something ends here, the bell rings, or the next job is due."""
        listener = asyncio.create_task(self._listen()) if limit else None
        if listener is not None:
            listener.add_done_callback(self._heard)
        try:
            await self._wake.wait()
        finally:
            if listener is not None:
                listener.cancel()
        self._wake.clear()

    def _heard(self, listener: asyncio.Task[None]) -> None:
        """Have a look, however the listening ended, unless it was we who had enough of it."""
        if not listener.cancelled():
            self._may_look = True
            self._wake.set()

    async def _listen(self) -> None:
        """Listen to the bell, until the next job is due at the longest."""
        at_most = LISTEN_AT_MOST
        if self._next_at is not None:
            at_most = min(at_most, max(0.0, (self._next_at - self._clock.now()) / 1_000))
        try:
            await self._store.wait(self._queues, at_most, self.session)
        except StoreError:
            await asyncio.sleep(PULSE_EVERY)

    # running

    def _start(self) -> None:
        """Start what was fetched, as far as there are slots."""
        while self._fetched and len(self._running) < self._slots:
            job = self._fetched.first()
            if self._gates.is_unconfirmed(job.dependency):
                return
            if job.dependency and self._gates.is_held(job.dependency):
                self._give_back(lambda other: self._gates.is_held(other.dependency))
                continue
            self._launch(self._fetched.start())

    def _launch(self, job: Job) -> None:
        started, timeout = ticks(), self._registry.timeout_of(job.task)
        is_apart = self._runner.is_apart(job)
        limit = timeout + START_UP if is_apart else timeout
        slot = self._board.begin(job.id, started + limit, job.task)
        attempt = Attempt(Running(job, self._progress.say, self._largest_progress), slot, started)
        if is_apart:
            attempt.running.begin = lambda: self._limit(attempt, timeout)
        self._running[job.id] = attempt
        note_started(job)
        if job.dependency:
            self._calls[job.dependency] += 1
        self._limit(attempt, limit)
        attempt.task = self._loop.create_task(self._attempt(attempt))

    def _limit(self, attempt: Attempt, timeout: float) -> None:
        """Let an attempt go on for so long from now."""
        if attempt.overrun is not None:
            attempt.overrun.cancel()
        attempt.overrun = self._loop.call_later(timeout, attempt.end, "overran")

    async def _attempt(self, attempt: Attempt) -> None:
        job = attempt.job
        try:
            outcome = await self._runner.run(attempt.running)
            if attempt.why is not None and not isinstance(outcome, Succeeded):
                # Told to end, it failed in words of its own.
                traceback = outcome.failure.traceback if isinstance(outcome, Failed) else ""
                outcome = self._ended_from_outside(attempt.why, job, traceback)
        except asyncio.CancelledError as error:
            # If nobody here cancelled it, the task's own code did.
            failed = _failed(error, job)
            why = attempt.why
            outcome = failed if why is None else self._ended_from_outside(why, job, failed.failure.traceback)
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - a task, rule or middleware may be anybody's code: its slot must be freed
            outcome = _failed(error, job)
        self._end(attempt, outcome)

    def _ended_from_outside(self, why: Why, job: Job, traceback: str) -> Outcome:
        """Return the outcome of an attempt that was ended; the traceback shows what it was doing."""
        match why:
            case "overran":
                outcome = overran(self._registry.timeout_of(job.task))
                return replace(outcome, failure=replace(outcome.failure, traceback=traceback))
            case "cancelled" | "stopped":
                return Interrupted()

    def _end(self, attempt: Attempt, outcome: Outcome) -> None:
        job, took = attempt.job, ticks() - attempt.started
        self._stopwatch.note(took)
        if isinstance(outcome, Succeeded):
            note_succeeded(job, took)
        if attempt.overrun is not None:
            attempt.overrun.cancel()
        del self._running[job.id]
        if job.dependency:
            self._calls[job.dependency] -= 1
            if not self._calls[job.dependency]:
                del self._calls[job.dependency]
        thread = attempt.running.thread
        if thread is None or thread.done():
            self._board.end(attempt.slot)
        else:
            self._abandon(attempt.slot, thread)
        self._settle(job, outcome)
        self._start()

    def _abandon(self, slot: int, thread: Future[object]) -> None:
        """Let a thread be that cannot be stopped. Its slot is free when it ends, or when the process is replaced."""
        self._slots -= 1
        self._board.abandon(slot, ticks())

        def done(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended before the thread did
                self._loop.call_soon_threadsafe(self._regain, slot)

        thread.add_done_callback(done)

    def _regain(self, slot: int) -> None:
        self._slots += 1
        self._board.end(slot)
        self._wake.set()

    def _settle(self, job: Job, outcome: Outcome) -> None:
        try:
            change = self._judge.settle(job, outcome)
        except Exception as error:  # noqa: BLE001 - it is logged; rules and backoffs may be anybody's code
            note_unjudged(job, error)
            change = self._judge.give_up(job, error)
        self._changes.append(change)
        self._wake.set()
        if not isinstance(change.event.move, Succeed):
            note_settled(change, outcome.failure if isinstance(outcome, Failed) else None, before=job)

    def _give_back(self, is_meant: Callable[[Job], bool]) -> None:
        """Give fetched jobs back that have not started; it costs them nothing."""
        for job in self._fetched.take_out(is_meant):
            self._settle(job, Interrupted())

    # keeping things in order

    def _keepers(self) -> list[tuple[Callable[[], AsyncIterator[None]], str]]:
        """Return what goes on beside the jobs, for as long as the worker works; see `persist`."""
        return [
            (self._gates.keep, "sharing gates"),
            (self._keep_gates_fresh, "reading gates"),
            (self._watch_for_cancels, "looking for cancel requests"),
            (self._progress.write, "writing progress"),
            (self._tidy, "tidying"),
        ]

    async def _keep_gates_fresh(self) -> AsyncIterator[None]:
        """Read what the fleet agrees on whenever something was written, and act on it at once."""

        def act() -> None:
            self._start()
            self._wake.set()

        self._gates.when_settled = act
        async with aclosing(rings(self._store, self._queues, self._heartbeat)) as ringing:
            async for _ in ringing:
                await self._gates.refresh()
                yield

    async def _watch_for_cancels(self) -> AsyncIterator[None]:
        """Look for cancel requests whenever something was written, while anything runs."""
        async with aclosing(rings(self._store, self._queues, LISTEN_AT_MOST)) as ringing:
            async for _ in ringing:
                if self._running:
                    await self._end_what_is_unwanted()
                # Also when nothing runs any more: or an outage that it met would never end.
                yield

    async def _end_what_is_unwanted(self) -> None:
        """End what a person wants to stop, and what was taken away from this session."""
        running = list(self._running)
        held = await find_all(self._store, Filter(session=self.session), self._clock.now())
        mine = {job.id: job for job in held}
        for attempt in [self._running[job_id] for job_id in running if job_id in self._running]:
            job = mine.get(attempt.job.id)
            if job is None:
                attempt.end("stopped")
            elif job.cancel_request is not None:
                attempt.cancel(job)

    async def _tidy(self) -> AsyncIterator[None]:
        """Show that the loop turns, and give back what has waited behind slow jobs."""
        while True:
            now = ticks()
            self._board.heartbeat(now)
            if stale := self._fetched.stale(now):
                self._learn_from_what_runs(now)
                self._give_back(lambda job: job.id in stale)
            yield
            await asyncio.sleep(PULSE_EVERY)

    def _learn_from_what_runs(self, now: float) -> None:
        """Believe what runs that it is slow, before it ends: or what is given back would be fetched again at once."""
        if self._running:
            self._stopwatch.note(now - max(attempt.started for attempt in self._running.values()))


def _failed(error: BaseException, job: Job) -> Failed:
    failure = failure_of(error, dependency=job.dependency)
    return Failed(failure=failure, verdict=judge(failure, ()))
