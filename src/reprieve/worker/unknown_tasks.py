"""Unknown tasks: jobs that this worker cannot run, because its code does not have their task.

Such a job goes back as it was, for a worker that knows the task, and this session's claims exclude the task from then
on. A job dies only when no live session has known its task for `unknown_after`. Since when none knows it is an entry of
the store, written by the first worker that notices, and deleted as soon as a session knows the task.
"""

import asyncio
import contextlib
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

import msgspec
import structlog

from reprieve.clock import Clock
from reprieve.core import change
from reprieve.core.duration import milliseconds
from reprieve.core.job import Job
from reprieve.core.record import Record
from reprieve.core.status import Status
from reprieve.core.unreadable import unreadable_record
from reprieve.registry import Registry
from reprieve.stores.protocol import MAX_EXCLUDED_TASKS, Entry, Filter, Session, Store
from reprieve.worker.job_logging import log_settled

log = structlog.get_logger("reprieve")

MAX_CHECK_SECONDS = 60.0
"""Seconds between two checks whether a session knows the tasks; fewer where `unknown_after` is short."""

WARN_AGAIN_SECONDS = 60.0
"""Seconds after which a process warns again about a task that no live session knows."""

MAX_SESSIONS_NAMED = 5
"""Sessions that a warning names."""

JOBS_PER_PAGE, MAX_PAGES_PER_CHECK = 100, 10
"""How many jobs of a task one check ends at most."""

MORE_AFTER_MS = 1_000
"""Milliseconds after which a check goes on that could not end all jobs."""

_PREFIX = "unknown-task:"

_UNENDED: frozenset[Status] = frozenset({"ready", "scheduled", "retrying", "parked", "running", "stuck"})


class UnknownSince(Record):
    """A task that no live session knows, as an entry of the store says it for all processes."""

    queue: str
    task: str
    since_at: int


class StoredTask(NamedTuple):
    """Such an entry."""

    entry: Entry
    unknown: UnknownSince


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(UnknownSince).decode


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
        self._met: dict[tuple[str, str], int | None] = {}
        """The unknown tasks by queue and name, and when the last warning about them was logged."""
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
            self._met.setdefault((job.queue, job.task), None)
        while len(self._met) > MAX_EXCLUDED_TASKS:
            # The oldest is excluded again when it is met again.
            del self._met[next(iter(self._met))]
        self._update_exclude()
        self.next_check_at = self._clock.now()
        self._has_new.set()

    async def run(self) -> AsyncIterator[None]:
        """Check the tasks when a new one is met, and from time to time, until cancelled."""
        await self.forget_known()
        yield
        while True:
            wait = None
            if self.next_check_at is not None:
                wait = max(0.0, (self.next_check_at - self._clock.now()) / 1_000)
            try:
                async with asyncio.timeout(wait):
                    await self._has_new.wait()
            except TimeoutError:
                pass
            self._has_new.clear()
            await self.check()
            yield

    async def forget_known(self) -> None:
        """Delete the entries of tasks that this worker knows: a session that knows them has just begun to live."""
        for stored in (await self._read()).values():
            if self._registry.find(stored.unknown.task) is not None:
                await self._delete(stored)

    async def check(self) -> None:
        """Warn about tasks, note since when no session knows them, and end jobs that have waited for too long."""
        now = self._clock.now()
        self.next_check_at = now + milliseconds(min(MAX_CHECK_SECONDS, self._unknown_after / 4))
        known_by = _sessions_by_task({task for _, task in self._met}, await self._store.sessions(now))
        stored = await self._read()
        for queue, task in list(self._met):
            found = stored.get((queue, task))
            if self._registry.find(task) is not None or not await self._has_jobs(queue, task, now):
                del self._met[queue, task]
                await self._delete(found)
                continue
            self._warn(queue, task, known_by[task], now)
            if known_by[task]:
                await self._delete(found)
            elif found is None:
                await self._create(UnknownSince(queue=queue, task=task, since_at=now))
            else:
                await self._end_jobs(found.unknown, now)
        self._update_exclude()
        if not self._met:
            self.next_check_at = None

    def _update_exclude(self) -> None:
        self.exclude = tuple(dict.fromkeys(task for _, task in self._met))

    def _warn(self, queue: str, task: str, sessions: Sequence[Session], now: int) -> None:
        """Log that jobs wait for a worker that knows their task; again after a while, if there is none."""
        warned_at = self._met[queue, task]
        if warned_at is not None and (sessions or now < warned_at + milliseconds(WARN_AGAIN_SECONDS)):
            return
        self._met[queue, task] = now
        known_by = [f"{session.id} ({session.host})" for session in sessions[:MAX_SESSIONS_NAMED]]
        reason = self._explain(task, is_known=bool(sessions))
        log.warning("unknown task", task=task, queue=queue, knownBy=known_by, sessions=len(sessions), reason=reason)

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

    async def _has_jobs(self, queue: str, task: str, now: int) -> bool:
        """Whether any job of a task waits, or is leased: the one that was met may not be given back yet."""
        return any((await self._store.tally("status", Filter(queue=queue, task=task, statuses=_UNENDED), now)).values())

    async def _end_jobs(self, unknown: UnknownSince, now: int) -> None:
        """End the jobs that have been ready for too long while no session knew their task, some at a time."""
        if now < unknown.since_at + milliseconds(self._unknown_after):
            return
        wanted = Filter(queue=unknown.queue, task=unknown.task, statuses=frozenset({"ready"}))
        cursor = ""
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
        # There are more: the next check goes on soon.
        self.next_check_at = now + MORE_AFTER_MS

    # entries of the store

    async def _read(self) -> dict[tuple[str, str], StoredTask]:
        """Return the entries by queue and task; those that cannot be read are left out."""
        found = {}
        for entry in await self._store.entries(_PREFIX):
            with contextlib.suppress(msgspec.MsgspecError):
                unknown = _decode(entry.value)
                found[unknown.queue, unknown.task] = StoredTask(entry, unknown)
        return found

    async def _create(self, unknown: UnknownSince) -> None:
        key = _PREFIX + json.dumps([unknown.queue, unknown.task])
        await self._store.compare_and_set(key, 0, _encode(unknown))

    async def _delete(self, stored: StoredTask | None) -> None:
        if stored is not None:
            await self._store.compare_and_set(stored.entry.key, stored.entry.version, None)


def _sessions_by_task(tasks: set[str], sessions: Sequence[Session]) -> dict[str, list[Session]]:
    """Return the sessions that know each task; one that names no tasks may know every one."""
    found: dict[str, list[Session]] = defaultdict(list)
    for session in sessions:
        for task in tasks.intersection(session.tasks) if session.tasks else tasks:
            found[task].append(session)
    return found
