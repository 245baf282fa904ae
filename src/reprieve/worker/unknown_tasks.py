"""Unknown tasks: jobs that this worker cannot run, because its code does not have their task.

Such a job goes back as it was, for a worker that knows the task, and this session's claims exclude the task from then
on. A job dies only when no live session has known its task for `unknown_after`. Since when none knows it is in an entry
of the store: the first worker that notices adds it, and a worker that knows the task deletes it, however late it comes.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence

import structlog

from reprieve.clock import Clock
from reprieve.core import change
from reprieve.core.duration import milliseconds
from reprieve.core.job import Job
from reprieve.core.status import Status
from reprieve.core.unreadable import unreadable_record
from reprieve.registry import Registry
from reprieve.stores.protocol import MAX_EXCLUDED_TASKS, Filter, Session, Store
from reprieve.worker.job_logging import log_settled
from reprieve.worker.unknown_since import Since, UnknownTask, change_unknown_since

log = structlog.get_logger("reprieve")

MAX_CHECK_SECONDS = 60.0
"""Seconds between two checks of all tasks; fewer where `unknown_after` is short."""

MIN_CHECK_SECONDS = 1.0
"""Seconds between two checks of new tasks: those that are met meanwhile are checked together."""

WARN_AGAIN_SECONDS = 60.0
"""Seconds after which a process warns again about a task that no live session knows."""

MAX_SESSIONS_NAMED = 5
"""Sessions that a warning names."""

JOBS_PER_PAGE, MAX_PAGES_PER_CHECK = 100, 10
"""How many jobs of a task one check ends at most."""

MORE_AFTER_MS = 1_000
"""Milliseconds after which a check goes on that could not read all jobs."""

MAX_LANES = 100_000
"""Lanes whose tasks a check counts."""

_UNENDED: frozenset[Status] = frozenset({"ready", "scheduled", "retrying", "parked", "running", "stuck"})


class UnknownTasks:
    """The tasks that one worker has met and does not know."""

    def __init__(self, store: Store, clock: Clock, registry: Registry, unknown_after: float) -> None:
        """Take the tasks that are known here, and after how many seconds a job dies that no live session can run."""
        self.exclude: tuple[str, ...] = ()
        """The tasks that the next claim excludes."""
        self.next_check_at: int | None = None
        """When the tasks are to be checked again; None: there are none."""
        self._store = store
        self._clock = clock
        self._registry = registry
        self._unknown_after = unknown_after
        self._interval = min(MAX_CHECK_SECONDS, unknown_after / 4)
        self._check_all_at = 0
        """When all tasks are to be checked again."""
        self._met: dict[UnknownTask, int | None] = {}
        """The unknown tasks, and when the last warning about each was logged; None: it is new."""
        self._cursors: dict[UnknownTask, str] = {}
        """Where the search for jobs to end goes on, for tasks with more jobs than one check reads."""
        self._has_new = asyncio.Event()

    def remove_from(self, jobs: list[Job]) -> list[Job]:
        """Remove from leased jobs those of unknown tasks, and return them: the caller gives them back."""
        # A record that cannot be read needs no task to end.
        unknown = [job for job in jobs if self._registry.find(job.task) is None and unreadable_record(job) is None]
        if unknown:
            ids = {job.id for job in unknown}
            jobs[:] = [job for job in jobs if job.id not in ids]
            self._exclude(unknown)
        return unknown

    def _exclude(self, jobs: Sequence[Job]) -> None:
        """Exclude the tasks of jobs from now on, and let the next check come at once."""
        for job in jobs:
            self._met.setdefault(UnknownTask(job.queue, job.task), None)
        while len(self._met) > MAX_EXCLUDED_TASKS:
            # The oldest is excluded again when it is met again.
            self._forget(next(iter(self._met)))
        self._update_exclude()
        self.next_check_at = self._clock.now()
        self._has_new.set()

    def _forget(self, met: UnknownTask) -> None:
        self._met.pop(met, None)
        self._cursors.pop(met, None)

    def _update_exclude(self) -> None:
        self.exclude = tuple(dict.fromkeys(met.task for met in self._met))

    # checks

    async def run(self) -> AsyncIterator[None]:
        """Check the tasks when a new one is met, and from time to time, until cancelled."""
        while True:
            self._has_new.clear()
            await self.check()
            yield
            await asyncio.sleep(min(MIN_CHECK_SECONDS, self._interval))
            next_at = self._check_all_at if self.next_check_at is None else self.next_check_at
            try:
                async with asyncio.timeout(max(0.0, (next_at - self._clock.now()) / 1_000)):
                    await self._has_new.wait()
            except TimeoutError:
                pass

    async def check(self) -> None:
        """Warn about tasks, note since when no session knows them, and end jobs that have waited for too long.

        Every check is about the tasks that are new, or whose jobs are being ended. Once a minute it is about all tasks,
        and the times of those that this worker knows are deleted: another worker may note one after this one began.
        """
        now = self._clock.now()
        is_of_all = now >= self._check_all_at
        if is_of_all:
            await self._check(list(self._met), now, is_of_all=True)
            self._check_all_at = now + milliseconds(self._interval)
        elif some := [met for met, warned_at in self._met.items() if warned_at is None or met in self._cursors]:
            await self._check(some, now, is_of_all=False)
        self._update_exclude()
        self._update_next_check(now)

    def _update_next_check(self, now: int) -> None:
        if any(warned_at is None for warned_at in self._met.values()):
            self.next_check_at = now
        elif self._cursors:
            self.next_check_at = min(now + MORE_AFTER_MS, self._check_all_at)
        else:
            self.next_check_at = self._check_all_at if self._met else None

    async def _check(self, tasks: Sequence[UnknownTask], now: int, *, is_of_all: bool) -> None:
        """Check some of the tasks."""
        unended = await self._unended_tasks(tasks, now) if is_of_all else {}
        # As late as possible: a session that knows them may have begun.
        known_by = _sessions_by_task({met.task for met in tasks}, await self._store.sessions(now) if tasks else ())

        def is_over(one: UnknownTask) -> bool:
            has_ended = one.queue in unended and one.task not in unended[one.queue]
            return has_ended or self._registry.find(one.task) is not None

        unknown: list[UnknownTask] = []
        for met in tasks:
            if is_over(met):
                self._forget(met)
            elif met in self._met:
                self._warn(met, known_by[met.task], now)
                if not known_by[met.task]:
                    unknown.append(met)

        def changed(since: Since) -> Since:
            kept = {one: at for one, at in since.items() if not (is_over(one) or known_by.get(one.task))}
            return dict.fromkeys(unknown, now) | kept

        since = await change_unknown_since(self._store, changed, now)
        cursors, self._cursors = self._cursors, {}
        for met in unknown:
            if now >= since.get(met, now) + milliseconds(self._unknown_after):
                await self._end_jobs(met, cursors.get(met, ""), now)

    async def _unended_tasks(self, tasks: Sequence[UnknownTask], now: int) -> dict[str, set[str]]:
        """Return by queue which tasks have jobs that wait, or are leased: the one that was met may not be back yet.

        A queue is left out if all of these tasks were met just now.
        """
        queues = dict.fromkeys(met.queue for met in tasks if self._met[met] is not None)
        found = {}
        for queue in queues:
            counts = (
                await self._store.tally("task", Filter(queues=(queue,), statuses=_UNENDED), now, at_most=MAX_LANES)
            ).counts
            found[queue] = {task for task, count in counts.items() if count}
        return found

    async def _end_jobs(self, unknown: UnknownTask, cursor: str, now: int) -> None:
        """End the jobs that have been ready for too long while no session knew their task, some at a time."""
        wanted = Filter(queues=(unknown.queue,), tasks=(unknown.task,), statuses=frozenset({"ready"}))
        for _ in range(MAX_PAGES_PER_CHECK):
            page = await self._store.find(wanted, now, cursor, JOBS_PER_PAGE)
            made = [change.end_unknown(job, self._unknown_after, now) for job in page.jobs]
            changes = [one for one in made if one is not None]
            for one, result in zip(changes, await self._store.apply(changes, now), strict=True):
                if result == "applied":
                    log_settled(one)
            cursor = page.cursor
            if not cursor:
                return
        # There may be more: the next check goes on from here, soon.
        self._cursors[unknown] = cursor

    # warnings

    def _warn(self, met: UnknownTask, sessions: Sequence[Session], now: int) -> None:
        """Log that jobs wait for a worker that knows their task; again after a while, if there is none."""
        warned_at = self._met[met]
        if warned_at is not None and (sessions or now < warned_at + milliseconds(WARN_AGAIN_SECONDS)):
            return
        self._met[met] = now
        known_by = [f"{session.id} ({session.host})" for session in sessions[:MAX_SESSIONS_NAMED]]
        reason = self._explain(met.task, is_known=bool(sessions))
        log.warning(
            "unknown task", task=met.task, queue=met.queue, knownBy=known_by, sessions=len(sessions), reason=reason
        )

    def _explain(self, task: str, *, is_known: bool) -> str:
        """Return what happens to the jobs, and which task may be meant: a module can have two names."""
        missing = f"no task is named {task!r} in this worker"
        alike = [one.name for one in self._registry if one.name.endswith(f".{task}") or task.endswith(f".{one.name}")]
        if alike and not is_known:
            return (
                f"{missing}, but {alike[0]!r} is; enqueue from, and start the worker in, the same folder, or give the "
                "task a name"
            )
        if is_known:
            return f"{missing}; its jobs wait for a worker that has it"
        return f"{missing}, nor in any other; deploy the code that has it"


def _sessions_by_task(tasks: set[str], sessions: Sequence[Session]) -> dict[str, list[Session]]:
    """Return the sessions that know each task; one that names no tasks may know every one."""
    found: dict[str, list[Session]] = defaultdict(list)
    for session in sessions:
        for task in tasks.intersection(session.tasks) if session.tasks else tasks:
            found[task].append(session)
    return found
