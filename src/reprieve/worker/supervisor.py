"""The supervisor: keeps worker processes and their sessions alive, and takes back the jobs of those that die.

It runs no jobs itself, so nothing that a job does can silence its heartbeats.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import structlog

from reprieve.clock import ticks
from reprieve.core.job import Job
from reprieve.core.outcome import Crashed, Interrupted, Outcome, overran
from reprieve.core.redact import mask_url
from reprieve.core.suggestion import nearest
from reprieve.errors import (
    ForeignStore,
    LifespanFailed,
    NewerSchema,
    StoreCorrupt,
    StoreError,
    StoreRefused,
    UnsafeStore,
)
from reprieve.rng import bits
from reprieve.stores.paginate import find_all
from reprieve.stores.protocol import Filter, Heartbeat, Retention
from reprieve.worker import board, recovery
from reprieve.worker.board import Board
from reprieve.worker.child import Child, Duty
from reprieve.worker.opening import START_FAILED_STATUS
from reprieve.worker.persist import Outage, Patience, persist
from reprieve.worker.plan import Plan
from reprieve.worker.recovery import Recovery
from reprieve.worker.workplace import Workplace

log = structlog.get_logger("reprieve")

WATCH_EVERY = 0.5
"""Seconds between two looks at what the children run."""

BLOCKED_AFTER = 2.0
"""Seconds that a job may overrun while the loop of its child does not turn: then only the child's end can stop it."""

HUNG_AFTER = 10.0
"""Seconds that a job may go on after it was given up, before its process is replaced."""

MERCY = 5.0
"""Seconds that a child is given on top of the grace to settle what it has."""

PRUNE_EVERY, PRUNE_AGAIN = 10.0, 0.05
"""Seconds between two prunings: when nothing was left to go, and when there may be more."""

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
"""Seconds before a child is replaced that died soon after its start, again and again."""

SOON = 5.0
"""Seconds of life after which a death is no sign that the next child will die as well."""


HOPELESS = (UnsafeStore, ForeignStore, NewerSchema, StoreCorrupt, StoreRefused)
"""What a store says when a worker starts that no waiting changes: it has to be corrected first."""


class Supervisor:
    """Runs a worker: so many children, each with a session of its own."""

    def __init__(self, place: Workplace, plan: Plan) -> None:
        """Take the app and what is wanted."""
        self._place = place
        self._plan = plan
        self._store = place.store
        self._clock = place.clock
        self._recovery = Recovery(self._store, self._clock, place.registry, plan.heartbeat)
        self._children: set[Child] = set()
        self._seeing_off: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()
        self._stop_by: float | None = None
        """When, by `ticks`, all must be over; None while nobody wants that."""
        self._name = f"{socket.gethostname()[:40]}-{os.getpid()}-{bits(24):06x}"
        self._started = 0
        self._has_worked = False
        """Whether any child has begun to work: then the application can start, and what fails later may pass."""
        self._is_hopeless = False
        """Whether the application's lifespans failed before any child had begun to work."""
        self._outage = Outage()
        self._lifeline = os.pipe()

    async def run(self) -> None:
        """Work until told to stop; raises `LifespanFailed` when the first child cannot start."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        if await self._reach_store():
            self._announce()
        keepers = [
            asyncio.create_task(persist(keep, what, self._outage))
            for keep, what in (
                (self._heartbeat, "beating"),
                (self._recover, "recovering"),
                (self._prune, "pruning"),
                (self._watch, "watching"),
            )
        ]
        try:
            await asyncio.gather(*(self._fill() for _ in range(self._plan.processes)))
            await asyncio.gather(*self._seeing_off)
        finally:
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)
            for file in self._lifeline:
                os.close(file)
        log.info("worker stopped")
        if self._is_hopeless:
            message = (
                f"a lifespan of {self._plan.target} failed when the first worker process started; "
                "its traceback is in the log above: fix it, then start the worker again"
            )
            raise LifespanFailed(message)

    def _announce(self) -> None:
        """Say what is served, and warn of queues that no task names: their jobs can only come from `using(queue=…)`."""
        plan, registry = self._plan, self._place.registry
        log.info(
            "worker started",
            target=plan.target,
            store=mask_url(plan.url),
            queues=list(plan.queues),
            tasks=len(list(registry)),
            processes=plan.processes,
            slots=plan.slots,
            pid=os.getpid(),
        )
        known = registry.queues()
        for queue in plan.queues:
            if queue not in known:
                log.warning(
                    "no task uses this queue",
                    queue=queue,
                    queuesOfTheApp=list(known),
                    didYouMean=nearest(queue, known),
                )

    async def _reach_store(self) -> bool:
        """Wait for a store that is away; raise what it says if waiting cannot help, as a password that is wrong.

        Return False if the worker was told to stop before the store could be used.
        """
        patience = Patience("reaching the store", self._outage)
        while not self._stop.is_set():
            try:
                # A session that does not exist: nothing is stored, and everything is asked for that a worker needs.
                await self._heartbeat_for(f"{self._name}-0", lease=0)
            except StoreError as error:
                if isinstance(error, HOPELESS):
                    raise
                # Told to stop, there is nothing to finish.
                stopping = asyncio.create_task(self._stop.wait())
                waiting = asyncio.create_task(patience.wait(error))
                await asyncio.wait({stopping, waiting}, return_when=asyncio.FIRST_COMPLETED)
                stopping.cancel()
                waiting.cancel()
            else:
                patience.end()
                return True
        return False

    def stop(self) -> None:
        """Stop in good order; called again, at once."""
        again = self._stop.is_set()
        self._stop.set()
        grace = 0.0 if again else self._plan.grace
        self._stop_by = ticks() + grace + MERCY
        running = [entry for child in self._children for entry in child.board.entries() if not entry.is_abandoned]
        jobs, tasks = [entry.job_id for entry in running], [entry.task for entry in running]
        log.info("worker stopping", grace=grace, jobs=jobs, tasks=tasks)
        for child in self._children:
            if again:
                child.stop_now()
            else:
                child.stop()
        asyncio.get_running_loop().call_later(grace + MERCY, self._kill_all)

    def _kill_all(self) -> None:
        for child in self._children:
            child.kill()

    async def _fill(self) -> None:
        """Keep one place filled with a child."""
        pause = FIRST_PAUSE
        while not self._stop.is_set():
            child = await self._spawn()
            if child is not None:
                end = asyncio.create_task(self._see_off(child))
                self._seeing_off.add(end)
                end.add_done_callback(self._seeing_off.discard)
                # One that is being retired finishes what it has, and its place is free already.
                retired = asyncio.create_task(child.retired.wait())
                await asyncio.wait({end, retired}, return_when=asyncio.FIRST_COMPLETED)
                retired.cancel()
                has_lived = ticks() - child.started > SOON and not child.is_failed_start
                if child.is_ending or has_lived:
                    pause = FIRST_PAUSE
                    continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stop.wait()
            pause = min(LONGEST_PAUSE, pause * 2)

    async def _spawn(self) -> Child | None:
        """Start a child; None when that cannot be done now."""
        plan, slots = self._plan, self._plan.slots
        self._started += 1
        session = f"{self._name}-{self._started}"
        if not await self._insist(lambda: self._heartbeat_for(session, is_new=True), "opening a session"):
            return None
        file = board.make_file(slots)
        duty = Duty(
            target=plan.target,
            session=session,
            url=plan.url,
            queues=plan.queues,
            slots=slots,
            grace=plan.grace,
            parent=os.getpid(),
            board=file,
            lifeline=self._lifeline[0],
            logs=plan.logs,
        )
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "reprieve.worker.child"),
                pass_fds=[file, self._lifeline[0]],
                stdin=asyncio.subprocess.PIPE,
            )
            child = Child(process, session, Board(slots, file))
        except OSError as error:
            log.exception("child could not be started", errorReason=str(error))
            await self._insist(lambda: self._heartbeat_for(session, lease=0), "ending a session")
            return None
        finally:
            os.close(file)
        self._children.add(child)
        await child.tell(msgspec.json.encode(duty))
        if self._stop.is_set():
            child.stop()
        return child

    async def _insist(self, call: Callable[[], Awaitable[object]], what: str) -> bool:
        """Repeat a call until it succeeds; answer False when all must be over before it has."""
        patience = Patience(what, self._outage)
        while True:
            try:
                await call()
            except StoreError as error:
                if self._stop_by is not None and ticks() > self._stop_by:
                    # Whatever is left undone is done by others, when the lease is over.
                    patience.give_up()
                    return False
                await patience.wait(error)
            else:
                patience.end()
                return True

    async def _heartbeat_for(self, session: str, *, is_new: bool = False, lease: float | None = None) -> bool:
        await self._clock.tune()
        heartbeat = Heartbeat(
            session=session,
            now=self._clock.now(),
            lease=self._plan.lease if lease is None else lease,
            slots=self._plan.slots,
            is_new=is_new,
        )
        return await self._store.heartbeat(heartbeat)

    # the end of a child

    async def _see_off(self, child: Child) -> None:
        """Wait for a child's end, and take back what it leaves."""
        status = await child.process.wait()
        started = frozenset(entry.job_id for entry in child.board.entries() if not entry.is_abandoned)
        child.is_failed_start = status == START_FAILED_STATUS and not child.board.pulse()
        self._has_worked = self._has_worked or any(other.board.pulse() for other in self._children)
        if not child.is_ending and not child.is_failed_start:
            log.error("child died", session=child.session, status=status, running=len(started))
        self._children.discard(child)
        child.board.close()
        if child.is_failed_start and not self._has_worked and not self._stop.is_set():
            self._is_hopeless = True
            self.stop()
        await self._insist(lambda: self._inherit(child, started), "taking back jobs")

    async def _inherit(self, child: Child, started: frozenset[str]) -> None:
        """Settle what a child held that is gone, while its session still keeps others away; then end that."""

        def outcome_of(job: Job) -> Outcome:
            # Whoever blocks a loop makes everybody late: only one that was late all by itself is to blame for it.
            if job.id in child.overdue or (child.is_blocked and started == {job.id}):
                return overran(self._place.registry.timeout_of(job.task))
            # A child that we ended ourselves is nobody's fault; one that died may be that of what it ran.
            is_innocent = child.is_ending and not child.is_blocked
            return Interrupted() if is_innocent else Crashed(started=job.id in started)

        held = await find_all(self._store, Filter(session=child.session), self._clock.now())
        await self._recovery.take_back(held, outcome_of)
        await self._heartbeat_for(child.session, lease=0)

    # what goes on all the time

    async def _heartbeat(self) -> AsyncIterator[None]:
        while True:
            began = ticks()
            for child in list(self._children):
                try:
                    is_alive = await self._heartbeat_for(child.session)
                except StoreError:
                    self._recovery.unsettle()
                    raise
                if not is_alive and child in self._children:
                    log.warning("session declared dead", session=child.session)
                    child.stop_now()
                    asyncio.get_running_loop().call_later(MERCY, child.kill)
                yield
            await asyncio.sleep(max(0.0, began + self._plan.heartbeat - ticks()))

    async def _recover(self) -> AsyncIterator[None]:
        while True:
            try:
                await self._recovery.look()
            except StoreError:
                self._recovery.unsettle()
                raise
            yield
            await asyncio.sleep(recovery.EVERY)

    async def _prune(self) -> AsyncIterator[None]:
        settings = self._place.settings
        while True:
            retention = Retention(
                now=self._clock.now(), succeeded=settings.succeeded_kept, succeeded_for=settings.succeeded_kept_for
            )
            pruned = await self._store.prune(retention)
            yield
            await asyncio.sleep(PRUNE_EVERY if pruned.is_all else PRUNE_AGAIN)

    async def _watch(self) -> AsyncIterator[None]:
        """Look for children that a job has got stuck in."""
        last = ticks()
        while True:
            now = ticks()
            for child in self._children:
                child.board.tell_store_away(is_away=self._outage.is_on)
            # After a standstill everything looks late; what really is will still be so at the next look.
            if now - last < BLOCKED_AFTER:
                for child in list(self._children):
                    self._look_at(child, now)
            last = now
            yield
            await asyncio.sleep(WATCH_EVERY)

    def _look_at(self, child: Child, now: float) -> None:
        entries = child.board.entries()
        late = [entry for entry in entries if now > entry.overdue_at + BLOCKED_AFTER and not entry.is_abandoned]
        hung = [entry for entry in entries if now > entry.overdue_at + HUNG_AFTER]
        if late and child.board.pulse() + BLOCKED_AFTER < now:
            log.error("child is blocked", session=child.session, jobs=[entry.job_id for entry in late])
            child.is_blocked = True
            child.kill()
        elif hung and not child.is_ending:
            log.warning("child has jobs that do not end", session=child.session, jobs=[job.job_id for job in hung])
            child.retire()
        elif hung and child.retired.is_set() and len(hung) == len(entries):
            child.kill(frozenset(entry.job_id for entry in hung))
