"""The supervisor: keeps worker processes and their sessions alive, and takes back the jobs of those that die.

It runs no jobs itself, so nothing that a job does can stop its heartbeats. Its parts: `sessions` keeps the sessions
alive, `child_process` is one child, `hang_detection` finds children that are stuck, `recovery` takes back the jobs of
other workers that died, `expiry` ends jobs that no worker claims in time, `pruning` removes finished jobs.
"""

import asyncio
import contextlib
import os
import signal
import socket
from typing import Self

import structlog

from reprieve.clock import ticks
from reprieve.core.redact import mask_url
from reprieve.core.suggestion import nearest
from reprieve.errors import LifespanFailed
from reprieve.rng import bits
from reprieve.worker import in_flight
from reprieve.worker.child_process import ChildConfiguration, ChildProcess
from reprieve.worker.configuration import WorkerConfiguration
from reprieve.worker.expiry import expire
from reprieve.worker.hang_detection import watch_for_hangs
from reprieve.worker.pruning import prune
from reprieve.worker.recovery import Recovery
from reprieve.worker.sessions import KILL_AFTER_SECONDS, Sessions, open_store
from reprieve.worker.supervised_loop import Outage, supervised_loops
from reprieve.worker.worker_context import WorkerContext

log = structlog.get_logger("reprieve")

MIN_RESTART_PAUSE_SECONDS, MAX_RESTART_PAUSE_SECONDS = 0.1, 10.0
"""Seconds before a child is replaced that died soon after its start; doubled each time."""

SHORT_LIFE_SECONDS = 5.0
"""Seconds of life after which the death of a child does not delay the next one."""

END_SESSION_SECONDS = 0.5
"""Seconds in which a worker that stops ends the session of a child that holds nothing. Otherwise its lease ends it."""


class Supervisor:
    """Runs the children of one worker, each with a session of its own."""

    def __init__(
        self, context: WorkerContext, configuration: WorkerConfiguration, outage: Outage | None = None
    ) -> None:
        """Take the app, whose store is opened, and how it is to be served."""
        self._context = context
        self._configuration = configuration
        self._outage = outage or Outage()
        self._sessions = Sessions(context.store, context.clock, configuration, self._outage)
        self._recovery = Recovery(context.store, context.clock, context.registry, configuration.heartbeat)
        self._children: set[ChildProcess] = set()
        self._exits: set[asyncio.Task[None]] = set()
        """One task for each child: waits for its end, and takes back its jobs."""
        self._stop = asyncio.Event()
        self._name = f"{socket.gethostname()[:40]}-{os.getpid()}-{bits(24):06x}"
        self._started = 0
        self._has_worked = False
        """Whether any child has begun to work: then the app can start, and a later failure may pass."""
        self._cannot_start = False
        """Whether the app's lifespans failed before any child had begun to work."""
        self._parent_pipe = os.pipe()

    @classmethod
    async def open(cls, context: WorkerContext, configuration: WorkerConfiguration) -> Self:
        """Return the supervisor of an app, when its store could be opened."""
        outage = Outage()
        await open_store(context, outage)
        return cls(context, configuration, outage)

    async def run(self) -> None:
        """Work until told to stop; raises `LifespanFailed` when the first child cannot start."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            # Not under nohup. A terminal that ends may send it more than once, which does not shorten the grace.
            loop.add_signal_handler(signal.SIGHUP, lambda: None if self._stop.is_set() else self.stop())
        if await self._sessions.reach_store(f"{self._name}-0", self._stop):
            self._log_start()
        loops = {
            "sending heartbeats": lambda: self._sessions.keep_alive(self._children, self._recovery),
            "recovering": self._recovery.run,
            "expiring": lambda: expire(self._context.store, self._context.clock),
            "pruning": lambda: prune(self._context),
            "watching": lambda: watch_for_hangs(self._children, self._outage),
        }
        try:
            async with supervised_loops(loops, self._outage):
                await asyncio.gather(*(self._keep_one_child() for _ in range(self._configuration.processes)))
                await asyncio.gather(*self._exits)
        finally:
            for file in self._parent_pipe:
                os.close(file)
        log.info("worker stopped")
        if self._cannot_start:
            message = (
                f"a lifespan of {self._configuration.target} failed when the first worker process started; "
                "its traceback is in the log above: fix it, then start the worker again"
            )
            raise LifespanFailed(message)

    def _log_start(self) -> None:
        """Log what is served, and warn of queues that no task names: their jobs can only come from `using(queue=…)`."""
        configuration, registry = self._configuration, self._context.registry
        log.info(
            "worker started",
            target=configuration.target,
            store=mask_url(configuration.url),
            queues=list(configuration.queues),
            tasks=len(list(registry)),
            processes=configuration.processes,
            slots=configuration.slots,
            pid=os.getpid(),
        )
        known = registry.queues()
        for queue in configuration.queues:
            if queue not in known:
                log.warning(
                    "no task uses this queue",
                    queue=queue,
                    queuesOfTheApp=list(known),
                    didYouMean=nearest(queue, known),
                )

    def stop(self) -> None:
        """Stop within the grace; called again, at once."""
        is_second = self._stop.is_set()
        self._stop.set()
        grace = 0.0 if is_second else self._configuration.grace
        self._sessions.give_up_at = ticks() + grace + KILL_AFTER_SECONDS
        running = [attempt for child in self._children for attempt in child.attempts()]
        jobs, tasks = [attempt.job_id for attempt in running], [attempt.task for attempt in running]
        log.info("worker stopping", grace=grace, jobs=jobs, tasks=tasks)
        for child in self._children:
            if is_second:
                child.stop_now()
            else:
                child.stop()
        asyncio.get_running_loop().call_later(grace + KILL_AFTER_SECONDS, self._kill_all)

    def _kill_all(self) -> None:
        for child in self._children:
            child.kill()

    # the life of a child

    async def _keep_one_child(self) -> None:
        """Start a child, and another one whenever it has ended, until told to stop."""
        pause = MIN_RESTART_PAUSE_SECONDS
        while not self._stop.is_set():
            child = await self._start_child()
            if child is not None:
                exit_ = asyncio.create_task(self._await_exit(child))
                self._exits.add(exit_)
                exit_.add_done_callback(self._exits.discard)
                # A child that retires still finishes its attempts; the next one starts already.
                retired = asyncio.create_task(child.retired.wait())
                await asyncio.wait({exit_, retired}, return_when=asyncio.FIRST_COMPLETED)
                retired.cancel()
                has_lived = ticks() - child.started > SHORT_LIFE_SECONDS and not child.is_failed_start
                if child.is_ending or has_lived:
                    pause = MIN_RESTART_PAUSE_SECONDS
                    continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stop.wait()
            pause = min(MAX_RESTART_PAUSE_SECONDS, pause * 2)

    async def _start_child(self) -> ChildProcess | None:
        """Open a session and start its child; None when that cannot be done now."""
        wanted = self._configuration
        self._started += 1
        session = f"{self._name}-{self._started}"
        if not await self._sessions.open(session):
            return None
        file = in_flight.make_file(wanted.slots)
        configuration = ChildConfiguration(
            target=wanted.target,
            session=session,
            url=wanted.url,
            queues=wanted.queues,
            slots=wanted.slots,
            grace=wanted.grace,
            parent=os.getpid(),
            in_flight_file=file,
            parent_pipe=self._parent_pipe[0],
            logs=wanted.logs,
        )
        try:
            child = await ChildProcess.start(configuration)
        except OSError as error:
            log.exception("child could not be started", errorReason=str(error))
            await self._sessions.insist(lambda: self._sessions.close(session), "ending a session")
            return None
        finally:
            os.close(file)
        self._children.add(child)
        await child.configure(configuration)
        if self._stop.is_set():
            child.stop()
        return child

    async def _await_exit(self, child: ChildProcess) -> None:
        """Wait for the end of a child, and take back its jobs."""
        status = await child.wait()
        self._has_worked = self._has_worked or any(other.in_flight.pulse() for other in self._children)
        if not child.is_ending and not child.is_failed_start:
            log.error("child died", session=child.session, status=status, running=len(child.had_started))
        self._children.discard(child)
        child.in_flight.close()
        if child.is_failed_start and not self._has_worked and not self._stop.is_set():
            self._cannot_start = True
            self.stop()
        # A child that was told to stop and ended by itself has settled all that it held.
        is_done = self._stop.is_set() and not status and not child.had_started
        if is_done and self._outage.is_on:
            # Nothing is to be taken back, and the lease ends the session. A call would keep a thread for seconds.
            return
        at_most = END_SESSION_SECONDS if is_done else None
        await self._sessions.insist(lambda: self._take_back(child), "taking back jobs", at_most)

    async def _take_back(self, child: ChildProcess) -> None:
        """Settle what a child held that is gone, and end its session."""
        timeout_of, session, now = self._context.registry.timeout_of, child.session, self._context.clock.now()
        await self._recovery.end_session(
            session,
            lambda job: child.outcome_of(job, timeout_of(job.task), now),
            lambda: self._sessions.close(session),
        )
