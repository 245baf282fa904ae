"""The supervisor: keeps worker processes and their sessions alive, and takes back the jobs of those that die.

It runs no jobs itself, so nothing that a job does can silence its heartbeats.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from typing import Literal, TypeAlias

import msgspec
import structlog

from reprieve.clock import ticks
from reprieve.core.job import Job
from reprieve.core.outcome import Crashed, Interrupted, Outcome, overran
from reprieve.errors import StoreError
from reprieve.rng import bits
from reprieve.stores.protocol import Beat, Retention
from reprieve.worker import board, recovery
from reprieve.worker.board import Board
from reprieve.worker.child import AT_ONCE, LOST, Duty
from reprieve.worker.persist import Patience, persist
from reprieve.worker.plan import Plan
from reprieve.worker.recovery import Recovery
from reprieve.worker.worker import Workplace

log = structlog.get_logger("reprieve")

WATCH_EVERY = 0.5
"""Seconds between two looks at what the children run."""

BLOCKED_AFTER = 2.0
"""Seconds that a job may overrun while the loop of its child does not turn: then only the child's end can stop it."""

HUNG_AFTER = 10.0
"""Seconds that a thread may go on after its job was given up, before its process is replaced."""

MERCY = 5.0
"""Seconds that a child is given on top of the grace to settle what it has."""

PRUNE_EVERY, PRUNE_AGAIN = 10.0, 0.05
"""Seconds between two prunings: when nothing was left to go, and when there may be more."""

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
"""Seconds before a child is replaced that died soon after its start, again and again."""

SOON = 5.0

Ending: TypeAlias = Literal["killed", "lost", "retired", "stopped"]
"""Why a child is ending by our will."""


class Child:
    """One worker process."""

    def __init__(self, process: asyncio.subprocess.Process, session: str, table: Board) -> None:
        """Take the process, its session, and the board that it writes on."""
        self.process = process
        self.session = session
        self.board = table
        self.started = ticks()
        self.ending: Ending | None = None
        self.overdue: frozenset[str] = frozenset()
        """Jobs that made us kill it."""

    def terminate(self, ending: Ending, *, now: bool = False) -> None:
        """Ask the process to end: when its jobs have ended, or at once."""
        if self.ending is None or now:
            self.ending = self.ending or ending
            self._send(AT_ONCE if now else signal.SIGTERM)

    def kill(self, overdue: frozenset[str] = frozenset()) -> None:
        """End the process, whatever it does."""
        self.ending, self.overdue = "killed", overdue
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)


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
        self._stop = asyncio.Event()
        self._name = f"{socket.gethostname()[:40]}-{os.getpid()}-{bits(24):06x}"
        self._started = 0
        self._lifeline = os.pipe()

    async def run(self) -> None:
        """Work until told to stop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        keepers = [
            asyncio.create_task(persist(keep, what))
            for keep, what in (
                (self._beat, "beating"),
                (self._recover, "recovering"),
                (self._prune, "pruning"),
                (self._watch, "watching"),
            )
        ]
        places = [asyncio.create_task(self._fill()) for _ in range(self._plan.processes)]
        log.info(
            "worker started",
            target=self._plan.target,
            processes=self._plan.processes,
            slots=self._plan.slots,
            queues=list(self._plan.queues),
            pid=os.getpid(),
        )
        try:
            await asyncio.gather(*places)
        finally:
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)
            for file in self._lifeline:
                os.close(file)
        log.info("worker stopped")

    def stop(self) -> None:
        """Stop in good order; called again, at once."""
        again = self._stop.is_set()
        self._stop.set()
        log.info("worker stopping", grace=0 if again else self._plan.grace)
        for child in self._children:
            child.terminate("stopped", now=again)
        if not again:
            asyncio.get_running_loop().call_later(self._plan.grace + MERCY, self._kill_all)

    def _kill_all(self) -> None:
        for child in self._children:
            child.kill()

    async def _fill(self) -> None:
        """Keep one place filled with a child."""
        pause = FIRST_PAUSE
        while not self._stop.is_set():
            child = await self._spawn()
            retired = await self._outlive(child)
            if retired is not None:
                # The place is free while the old child finishes what it has.
                await asyncio.gather(self._fill(), retired)
                return
            if self._stop.is_set() or child.ending is not None or ticks() - child.started > SOON:
                pause = FIRST_PAUSE
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stop.wait()
            pause = min(LONGEST_PAUSE, pause * 2)

    async def _outlive(self, child: Child) -> asyncio.Task[None] | None:
        """Wait for a child's end; one that is being retired is left to a task of its own."""
        end = asyncio.create_task(self._see_off(child))
        while not end.done():
            await asyncio.wait({end}, timeout=WATCH_EVERY)
            if child.ending == "retired" and not end.done() and not self._stop.is_set():
                return end
        await end
        return None

    async def _spawn(self) -> Child:
        plan, slots = self._plan, self._plan.slots
        self._started += 1
        session = f"{self._name}-{self._started}"
        await self._open(session)
        file = board.make_file(slots)
        try:
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
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "reprieve.worker.child",
                msgspec.json.encode(duty).decode(),
                pass_fds=[file, self._lifeline[0]],
                stdin=asyncio.subprocess.DEVNULL,
            )
            child = Child(process, session, Board(slots, file))
        finally:
            os.close(file)
        self._children.add(child)
        if self._stop.is_set():
            child.terminate("stopped")
        return child

    async def _open(self, session: str) -> None:
        patience = Patience("opening a session")
        while True:
            try:
                await self._store.beat(self._beat_of(session, is_new=True))
            except StoreError as error:
                await patience.wait(error)
            else:
                patience.end()
                return

    def _beat_of(self, session: str, *, is_new: bool = False, lease: float | None = None) -> Beat:
        return Beat(
            session=session,
            now=self._clock.now(),
            lease=self._plan.lease if lease is None else lease,
            slots=self._plan.slots,
            is_new=is_new,
        )

    # the end of a child

    async def _see_off(self, child: Child) -> None:
        """Wait for a child's end, and take back what it leaves."""
        status = await child.process.wait()
        started = {entry.job_id for entry in child.board.entries()}
        if status not in (0, LOST) and child.ending is None:
            log.error("child died", session=child.session, status=status, running=len(started))
        self._children.discard(child)
        child.board.close()
        if status != LOST:
            await self._inherit(child, started)

    async def _inherit(self, child: Child, started: set[str]) -> None:
        """End the session of a child that is gone, and settle what it held."""
        patience = Patience("taking back jobs")

        def outcome_of(job: Job) -> Outcome:
            if job.session != child.session:
                return Crashed()
            if job.id in child.overdue:
                return overran(self._place.registry.timeout_of(job.task))
            # A child that we ended ourselves is nobody's fault; one that died may be that of what it ran.
            return Interrupted() if child.ending is not None else Crashed(started=job.id in started)

        while True:
            try:
                await self._store.beat(self._beat_of(child.session, lease=0))
                await self._recovery.take_back(outcome_of, buries=False)
            except StoreError as error:
                await patience.wait(error)
            else:
                patience.end()
                return

    # what goes on all the time

    async def _beat(self) -> None:
        while True:
            began = ticks()
            for child in list(self._children):
                try:
                    pulse = await self._store.beat(self._beat_of(child.session))
                except StoreError:
                    self._recovery.unsettle()
                    raise
                if not pulse.is_alive and child in self._children:
                    log.warning("session declared dead", session=child.session)
                    child.terminate("lost", now=True)
            await asyncio.sleep(max(0.0, began + self._plan.heartbeat - ticks()))

    async def _recover(self) -> None:
        while True:
            try:
                await self._recovery.look()
            except StoreError:
                self._recovery.unsettle()
                raise
            await asyncio.sleep(recovery.EVERY)

    async def _prune(self) -> None:
        settings = self._place.settings
        while True:
            retention = Retention(
                now=self._clock.now(), succeeded=settings.succeeded_kept, succeeded_for=settings.succeeded_kept_for
            )
            pruned = await self._store.prune(retention)
            await asyncio.sleep(PRUNE_EVERY if pruned.is_all else PRUNE_AGAIN)

    async def _watch(self) -> None:
        """Look for children that a job has got stuck in."""
        while True:
            now = ticks()
            for child in list(self._children):
                entries = child.board.entries()
                late = [entry for entry in entries if now > entry.overdue_at + BLOCKED_AFTER]
                is_blocked = child.board.pulse() + BLOCKED_AFTER < now
                if late and is_blocked:
                    log.error("child is blocked", session=child.session, jobs=[entry.job_id for entry in late])
                    child.kill(frozenset(entry.job_id for entry in late))
                elif any(now > entry.overdue_at + HUNG_AFTER for entry in entries) and child.ending is None:
                    log.warning("child has threads that do not end", session=child.session)
                    child.terminate("retired")
            await asyncio.sleep(WATCH_EVERY)
