"""The attempts of one process: each has a slot and a time limit, and can be ended from outside."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from typing import Literal, TypeAlias

from msgspec.structs import replace

from reprieve.clock import ticks
from reprieve.context import Running
from reprieve.core.job import Job
from reprieve.core.outcome import Failed, Interrupted, Outcome, Succeeded
from reprieve.worker.attempt_counts import AttemptCounts
from reprieve.worker.in_flight import InFlightTable
from reprieve.worker.job_logging import log_started, log_succeeded
from reprieve.worker.lifespans import START_TIMEOUT_SECONDS
from reprieve.worker.prefetch import ClaimTime, DurationEstimate, EndRate, RecentTenants, count_out
from reprieve.worker.progress import Progress
from reprieve.worker.runner import Runner, failed_by

PROCESS_START_SECONDS = 30.0 + START_TIMEOUT_SECONDS
"""Seconds that an isolated process, with the lifespans of its app, may take to start before the time limit of its
attempt begins to count."""

StopReason: TypeAlias = Literal["cancelled", "overran", "stopped"]
"""Why an attempt was ended from outside."""

OnEnd: TypeAlias = Callable[[Job, Outcome], None]
"""Called when an attempt has ended; the job carries a cancel request if one ended it."""


class Attempt:
    """One attempt that is under way."""

    __slots__ = ("job", "on_end", "reason", "running", "slot", "started", "task", "timer")

    def __init__(self, running: Running, slot: int, started: float, on_end: OnEnd) -> None:
        """Take what runs, in which slot of the in-flight table, and since when."""
        self.running = running
        self.job = running.job
        self.slot = slot
        self.started = started
        self.on_end = on_end
        self.reason: StopReason | None = None
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None

    def cancel(self, job: Job) -> None:
        """End it because of a cancel request, which the job carries."""
        self.job = job
        self.stop("cancelled")

    def stop(self, reason: StopReason) -> None:
        """End it from outside. The first reason counts; an attempt that went on is cancelled again."""
        self.running.is_stopping = True
        self.reason = self.reason or reason
        if self.task is not None:
            self.task.cancel()


class Attempts:
    """Runs attempts, at most one in each slot.

    `start` returns at once and calls back when the attempt has ended; `run` waits for it. Every attempt ends with an
    outcome, whatever its task does.
    """

    def __init__(
        self,
        runner: Runner,
        progress: Progress,
        *,
        slots: int,
        max_progress_bytes: int,
        in_flight: InFlightTable,
        counts: AttemptCounts,
    ) -> None:
        """Take what runs an attempt, and where its progress goes. Every start is recorded in the in-flight table."""
        self.slots = slots
        """Slots that can be used: a thread that cannot be stopped takes one away until it ends."""
        self.running: dict[str, Attempt] = {}
        """The attempts under way, by the ids of their jobs."""
        self.by_tenant: Counter[str] = Counter()
        """How many attempts each tenant has under way."""
        self.durations = DurationEstimate()
        self.ends = EndRate()
        self.recent_tenants = RecentTenants()
        self.on_slot_freed: Callable[[], None] = lambda: None
        """Called when a thread that could not be stopped has ended."""
        self.before_end: Callable[[], None] = lambda: None
        """Called before an attempt counts as ended. A process that must not go on exits here, and the in-flight table
        still says what ran."""
        self._runner = runner
        self._progress = progress
        self._max_progress_bytes = max_progress_bytes
        self._in_flight = in_flight
        self._counts = counts
        self._calls: Counter[str] = Counter()
        self._loop = asyncio.get_running_loop()

    def under_way(self, dependency: str) -> int:
        """Return how many attempts call a dependency now."""
        return self._calls[dependency]

    def start(self, job: Job, on_end: OnEnd) -> Attempt:
        """Start an attempt in a free slot."""
        started, is_isolated = ticks(), self._runner.is_isolated(job)
        limit = self._runner.time_limit(job, PROCESS_START_SECONDS if is_isolated else 0.0)
        slot = self._in_flight.begin(job.id, job.attempt, started + limit, job.task)
        attempt = Attempt(Running(job, self._progress.report, self._max_progress_bytes), slot, started, on_end)
        if is_isolated:
            attempt.running.begin = lambda: self._limit(attempt, self._runner.time_limit(job))
        self.running[job.id] = attempt
        self.by_tenant[job.tenant] += 1
        self.recent_tenants.note(job.tenant, started)
        if job.dependency:
            self._calls[job.dependency] += 1
        if limit <= 0:
            # Its deadline passed after it was claimed: the next claim ends it.
            self._loop.call_soon(self._end, attempt, Interrupted())
            return attempt
        log_started(job)
        self._counts.started(job)
        self._limit(attempt, limit)
        attempt.task = self._loop.create_task(self._run(attempt))
        return attempt

    async def run(self, job: Job) -> tuple[Job, Outcome]:
        """Start an attempt and wait for its end; return its job and outcome. Cancelled, it ends the attempt."""
        ended: asyncio.Future[tuple[Job, Outcome]] = self._loop.create_future()

        def end(job: Job, outcome: Outcome) -> None:
            if not ended.done():
                ended.set_result((job, outcome))

        attempt = self.start(job, end)
        try:
            return await ended
        except asyncio.CancelledError:
            attempt.stop("stopped")
            raise

    def stop_all(self) -> None:
        """End every attempt; their jobs go back uncharged."""
        for attempt in list(self.running.values()):
            attempt.stop("stopped")

    def jobs_ahead(self, claim: ClaimTime) -> int:
        """Return how many jobs to fetch ahead: no more than will end meanwhile, whatever most of them take."""
        most = int(self.ends.ended_in(claim.seconds_ahead, ticks()))
        return min(most, self.durations.jobs_ahead(self.slots, claim))

    def has_other_tenant(self, tenant: str) -> bool:
        """Whether another tenant has an attempt under way, or had one a moment ago."""
        is_alone = len(self.by_tenant) == 1 and tenant in self.by_tenant
        return not is_alone or self.recent_tenants.has_other(tenant, ticks())

    def count_running(self) -> None:
        """Count the running attempts in the duration estimate, before they end."""
        if self.running:
            self.durations.add(ticks() - max(attempt.started for attempt in self.running.values()))

    def close(self) -> None:
        """Start nothing more; a thread that still runs ends with the process."""
        self._runner.close()

    def _limit(self, attempt: Attempt, timeout: float) -> None:
        """End an attempt after so many seconds from now."""
        if attempt.timer is not None:
            attempt.timer.cancel()
        attempt.timer = self._loop.call_later(timeout, attempt.stop, "overran")

    async def _run(self, attempt: Attempt) -> None:
        job = attempt.job
        try:
            outcome = await self._runner.run(attempt.running)
            if attempt.reason is not None and not isinstance(outcome, Succeeded):
                # Its task replaced the cancellation by an error of its own.
                outcome = self._outcome_of(attempt.reason, job, outcome)
        except asyncio.CancelledError as error:
            # Without a reason, the task's own code cancelled it.
            outcome = failed_by(error, job)
            if attempt.reason is not None:
                outcome = self._outcome_of(attempt.reason, job, outcome)
        except BaseException as error:
            if isinstance(error, GeneratorExit) and asyncio.current_task(self._loop) is not attempt.task:
                # Not the task raised it: the loop has ended, and Python closes what is left of the attempt.
                raise
            outcome = failed_by(error, job)
        self.before_end()
        self._end(attempt, outcome)

    def _outcome_of(self, reason: StopReason, job: Job, ended: Outcome) -> Outcome:
        """Return the outcome of an attempt that was ended from outside; the traceback of its end shows where it was."""
        match reason:
            case "overran":
                outcome = self._runner.overran(job)
                if not isinstance(ended, Failed):
                    return outcome
                traceback, full = ended.failure.traceback, ended.failure.full_traceback
                return replace(outcome, failure=replace(outcome.failure, traceback=traceback, full_traceback=full))
            case "cancelled" | "stopped":
                return Interrupted()

    def _end(self, attempt: Attempt, outcome: Outcome) -> None:
        job, took = attempt.job, ticks() - attempt.started
        self.durations.add(took)
        self.ends.add()
        if attempt.task is not None:
            self._counts.ended(job, took, has_succeeded=isinstance(outcome, Succeeded))
        if isinstance(outcome, Succeeded):
            log_succeeded(job, took)
        elif isinstance(outcome, Failed):
            outcome = replace(outcome, duration=took)
        if attempt.timer is not None:
            attempt.timer.cancel()
        del self.running[job.id]
        count_out(self.by_tenant, job.tenant)
        if job.dependency:
            count_out(self._calls, job.dependency)
        thread = attempt.running.thread
        if thread is None or thread.done():
            self._in_flight.end(attempt.slot)
        else:
            self._abandon(attempt.slot, thread)
        attempt.on_end(job, outcome)

    def _abandon(self, slot: int, thread: Future[object]) -> None:
        """Leave a thread that cannot be stopped. Its slot is free when it ends, or when the process is replaced."""
        self.slots -= 1
        self._in_flight.abandon(slot, ticks())

        def free() -> None:
            self.slots += 1
            self._in_flight.end(slot)
            self.on_slot_freed()

        def done(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the event loop has ended before the thread did
                self._loop.call_soon_threadsafe(free)

        thread.add_done_callback(done)
