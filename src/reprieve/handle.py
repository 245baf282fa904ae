"""A handle of a job: what an enqueue returns, and what a job is looked up, awaited, retried and cancelled with."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Generic, Protocol, TypeVar

import msgspec

from reprieve.admin import cancel, lookup, retry
from reprieve.admin.cancel import Cancelled
from reprieve.admin.outbox import explained
from reprieve.admin.retry import Retried
from reprieve.clock import Clock, ticks
from reprieve.config import Settings
from reprieve.core.change import Request
from reprieve.core.duration import Duration, seconds, spell
from reprieve.core.history import History
from reprieve.core.job import Job
from reprieve.declaration import Declaration
from reprieve.errors import JobCancelled, JobDead, JobNotFound, ResultTimeout, ResultUnavailable, UndecodablePayload
from reprieve.json_data import load
from reprieve.portal import Portal
from reprieve.registry import Registry
from reprieve.stores.outbox import Outbox
from reprieve.stores.paginate import all_events
from reprieve.stores.protocol import Store
from reprieve.views.activity import activity
from reprieve.views.story import story

R_co = TypeVar("R_co", covariant=True)

MIN_POLL_SECONDS, MAX_POLL_SECONDS = 0.02, 1.0
"""How often a job that is awaited is read, at the most and at the least: after a tenth of the time waited so far."""


class App(Protocol):
    """What a handle and a producer need of an app."""

    settings: Settings
    registry: Registry
    portal: Portal

    @property
    def clock(self) -> Clock:
        """The clock that was passed in, or that of the store."""
        ...

    @property
    def store(self) -> Store:
        """The store, opened when it is first needed."""
        ...

    @property
    def store_to_join(self) -> Store:
        """The store, for a caller with an open transaction: opening it does not wait for that transaction's end."""
        ...

    @property
    def outbox(self) -> Outbox | None:
        """The outbox, where the settings name one."""
        ...

    @property
    def outbox_in_use(self) -> Outbox | None:
        """The outbox; None where the store joins transactions itself, and needs none."""
        ...


class JobHandle(msgspec.Struct, Generic[R_co], frozen=True, eq=False, gc=False):
    """A job by its id. Nothing is read from the store until a method is called.

    Handles of one job are equal, and `str` is the id. A handle belongs to its app: to pass a job to another process,
    pass `handle.id` and call `app.job(id)` there.

    A bulk enqueue makes thousands of them. Nothing leads back from an app to a handle, so they are in no cycle, and the
    garbage collector need not visit them.
    """

    _app: App
    id: str
    _declaration: Declaration | None = None
    is_new: bool | None = True
    """False when a job with the same key existed: `id` is that job's. None when that is not known yet: a job with a key
    went into an outbox, and if its key is taken when the relay delivers it, no job of this `id` will exist."""
    _is_joined: bool = False
    """Whether the job was enqueued in a transaction of the caller's."""

    def __repr__(self) -> str:
        """Show the task, where it is known, and the id."""
        task = "" if self._declaration is None else f"{self._declaration.name} "
        return f"<JobHandle {task}{self.id}>"

    def __str__(self) -> str:
        """Return the id."""
        return self.id

    def __eq__(self, other: object) -> bool:
        """Return whether both are handles of the same job."""
        return self.id == other.id if isinstance(other, JobHandle) else NotImplemented

    def __hash__(self) -> int:
        """Hash the id."""
        return hash(self.id)

    # reading

    async def afetch(self) -> Job:
        """Return the job as it is now; raises `JobNotFound`."""
        return (await self._find()).job

    def fetch(self) -> Job:
        """Return the job as it is now, from code without a loop."""
        return self._app.portal.run(self.afetch())

    async def aprogress(self) -> object:
        """Return the progress that the running job has noted; None when it has noted none or does not run."""
        data = await self._app.store.progress(self.id)
        return None if data is None else load(data)

    def progress(self) -> object:
        """Return the progress of the running job, from code without a loop."""
        return self._app.portal.run(self.aprogress())

    async def ahistory(self) -> History:
        """Return the job, the events that are kept of it, and the job that they rebuild; raises `JobNotFound`."""
        job = await self.afetch()
        return History(job=job, events=tuple(await all_events(self._app.store, self.id)))

    def history(self) -> History:
        """Return the job and the events that are kept of it, from code without a loop."""
        return self._app.portal.run(self.ahistory())

    async def aresult(self, *, timeout: Duration | None = None) -> R_co:  # noqa: ASYNC109 - the error says what the job is doing
        """Wait until the job has ended, and return what its task returned, as the type that the task is annotated with.

        Without a timeout the wait has no limit; a timeout of 0 does not wait. Raises `JobDead` and `JobCancelled`
        with the cause, `ResultTimeout` with what the job is doing, `ResultUnavailable` when the result is not kept, and
        `JobNotFound` when neither the job nor a result of it is stored.
        """
        limit = None if timeout is None else seconds(timeout, "timeout")
        began = ticks()
        while True:
            try:
                found = await self._find()
            except JobNotFound:
                # A result may be kept for longer than its job.
                data = await self._app.store.result(self.id)
                if data is None:
                    raise
                return self._decode(self._declaration, data)
            if found.job.state not in ("waiting", "running"):
                return await self._result_of(found.job)
            self._require_kept(found.job)
            waited = ticks() - began
            if limit is not None and waited >= limit:
                raise self._timeout(found, limit)
            await self._wait(found.job.queue, waited, limit)

    def result(self, *, timeout: Duration | None = None) -> R_co:
        """Wait for the result, from code without a loop; see `aresult`."""
        return self._app.portal.run(self.aresult(timeout=timeout))

    # acting

    async def aretry(self, *, by: str, reason: str, force: bool = False, delay: Duration = 0.0) -> Retried:
        """Run a job again that is dead, cancelled, retrying, parked or stuck, at the request of a person.

        `force` grants one more attempt to a job that has used up its own. See `admin.retry` for what is raised.
        """
        app = self._app
        request = Request(by=by, reason=reason, force=force, delay=delay)  # type: ignore[arg-type]  # any duration
        async with self._explained():
            return await retry.retry(app.store, app.clock, self.id, request, self._stuck_after)

    def retry(self, *, by: str, reason: str, force: bool = False, delay: Duration = 0.0) -> Retried:
        """Run a job again, from code without a loop; see `aretry`."""
        return self._app.portal.run(self.aretry(by=by, reason=reason, force=force, delay=delay))

    async def acancel(self, *, by: str, reason: str) -> Cancelled:
        """Cancel the job. One that runs is asked to stop: then "stopping" is returned."""
        app = self._app
        async with self._explained():
            return await cancel.cancel(app.store, app.clock, self.id, Request(by=by, reason=reason))

    def cancel(self, *, by: str, reason: str) -> Cancelled:
        """Cancel the job, from code without a loop; see `acancel`."""
        return self._app.portal.run(self.acancel(by=by, reason=reason))

    async def _find(self) -> lookup.Found:
        async with self._explained():
            return await lookup.find_job(self._app.store, self._app.clock, self.id)

    @asynccontextmanager
    async def _explained(self) -> AsyncIterator[None]:
        """Add to a `JobNotFound` that the transaction or the outbox may still hold the job."""
        try:
            async with explained(self._app.outbox_in_use, self.id):
                yield
        except JobNotFound as error:
            if not self._is_joined:
                raise
            message = f"{error}; it was enqueued in a transaction of yours, and is visible after the commit"
            raise JobNotFound(message) from None

    def _stuck_after(self, job: Job) -> float:
        """Return the seconds after which the running job counts as stuck: never before its own timeout."""
        return max(self._app.settings.stuck_after, self._app.registry.timeout_of(job.task))

    # results

    async def _result_of(self, job: Job) -> R_co:
        if job.state != "succeeded":
            raise await self._ending(job)
        data = await self._app.store.result(job.id)
        if data is None:
            self._require_kept(job)
            message = f"the result of job {job.id} ({job.task}) is no longer kept; its result_ttl is over"
            raise ResultUnavailable(message)
        return self._decode(self._declaration_of(job), data)

    def _declaration_of(self, job: Job) -> Declaration | None:
        return self._declaration or self._app.registry.find(job.task)

    def _require_kept(self, job: Job) -> None:
        """Raise `ResultUnavailable` for a task that keeps no results: to wait for one would be in vain."""
        declaration = self._declaration_of(job)
        if declaration is not None and not declaration.result_ttl:
            message = (
                f"the result of job {job.id} is not kept; declare {job.task} with a result_ttl, "
                'as in @app.task(result_ttl="1h")'
            )
            raise ResultUnavailable(message)

    def _decode(self, declaration: Declaration | None, data: bytes) -> R_co:
        if declaration is None:
            return load(data)  # type: ignore[return-value]  # of a task that this app does not know: plain JSON
        try:
            return declaration.codec.decode_result(data)  # type: ignore[return-value]  # as the task is annotated
        except UndecodablePayload as error:
            message = f"the result of job {self.id} cannot be read: {error}"
            raise UndecodablePayload(message) from error

    async def _ending(self, job: Job) -> ResultUnavailable:
        """Return the error for a job that has ended without a result."""
        if job.state == "cancelled":
            last = story(job, await all_events(self._app.store, job.id))[-1]
            text = last.then or last.text
            return JobCancelled(f"job {job.id} ({job.task}) was {text}", by=last.by, reason=last.reason)
        cause, attempts = job.cause, f"attempt {job.attempt}" if job.attempt else "its first attempt"
        why = "" if cause is None else f": {cause.reason}"
        when = "after" if job.attempt else "before"
        return JobDead(
            f"job {job.id} ({job.task}) died {when} {attempts}, {job.death}{why}",
            death=job.death or "",
            reason="" if cause is None else cause.reason,
            cause_code="" if cause is None else cause.code,
        )

    def _timeout(self, found: lookup.Found, limit: float) -> ResultTimeout:
        doing = activity(found.job, found.status, self._app.clock.now())
        message = f"job {self.id} ({found.job.task}) has not ended within {spell(limit)}: {doing}"
        return ResultTimeout(message, status=found.status)

    async def _wait(self, queue: str, waited: float, limit: float | None) -> None:
        """Wait for a notification of the queue, or for a while.

        Not every store notifies when a job ends, and a busy queue notifies all the time.
        """
        pause = min(MAX_POLL_SECONDS, max(MIN_POLL_SECONDS, waited / 10))
        if limit is not None:
            pause = min(pause, limit - waited)
        began = ticks()
        await self._app.store.wait((queue,), pause)
        rest = pause / 4 - (ticks() - began)
        if rest > 0:
            await asyncio.sleep(rest)
