"""The producer: makes jobs of calls, and stores them."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeGuard, TypeVar

from msgspec.structs import replace

from reprieve.bulk import Sending, attached
from reprieve.call import Call
from reprieve.clock import Clock, ticks
from reprieve.context import running_job
from reprieve.core.job import Job
from reprieve.core.values import shown
from reprieve.errors import StoreError, TaskNotImportable, ValidationError
from reprieve.handle import App, JobHandle
from reprieve.importing import file_of, refuse_enqueue
from reprieve.stores.capabilities import AsyncTransactional, Immediate, Transactional
from reprieve.stores.protocol import Store

T = TypeVar("T")
R = TypeVar("R")

MAX_RETRY_SECONDS = 5.0
"""Seconds for which an enqueue is repeated while the store is not reachable."""

MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.02, 0.5
"""Seconds between two tries of an enqueue."""

BULK = 1_000
"""Jobs that `enqueue_many` sends to the store at once; other coroutines wait while they are made."""

IN_MEMORY_URLS = ("sqlite://:memory:", "sqlite:///:memory:")
"""Stores that no other process sees."""


class Follower(Protocol):
    """What runs as soon as jobs are stored, before the enqueue returns; inline mode is one.

    It does not run for jobs in a transaction of the caller's, which are not stored before the commit.
    """

    def follow(self) -> None:
        """Run in code without a loop."""
        ...

    async def afollow(self) -> None:
        """Run in the caller's loop."""
        ...


class Producer:
    """Enqueues the calls of one app."""

    def __init__(self, app: App) -> None:
        """Take the app; its store and clock may change at any time."""
        self._app = app
        self.follower: Follower | None = None
        """What runs after every enqueue."""

    def enqueue(self, call: Call[R]) -> JobHandle[R]:
        """Store one call, from code without a loop."""
        refuse_enqueue()
        self._require_importable(call)
        if self._is_joining(call):
            return self._enqueue_in(call)
        store, clock = self._app.store, self._app.clock
        self._tune(clock, (call,))
        job = self._job(call, store, clock, clock.now())
        (known,) = self._store_here(store, clock, (job,))
        if self.follower is not None:
            self.follower.follow()
        return JobHandle(self._app, known, call.terms.declaration, known == job.id)

    async def aenqueue(self, call: Call[R]) -> JobHandle[R]:
        """Store one call, together with those of other callers."""
        refuse_enqueue()
        self._require_importable(call)
        if self._is_joining(call):
            return await self._aenqueue_in(call)
        store, clock = self._app.store, self._app.clock
        await self._atune(clock, (call,))
        job = self._job(call, store, clock, clock.now())
        (known,) = await repeat_while_unreachable(lambda: store.enqueue((job,), clock.now()))
        if self.follower is not None:
            await self.follower.afollow()
        return JobHandle(self._app, known, call.terms.declaration, known == job.id)

    def enqueue_many(self, calls: Iterable[Call[R]]) -> list[JobHandle[R]]:
        """Store many calls, from code without a loop."""
        refuse_enqueue()
        handles: list[JobHandle[R]] = []
        is_to_follow = False
        # All but the store's own work is done in the caller's thread, which the caller's connection or iterator needs.
        with attached(handles):
            for batch in self._batches(calls):
                if isinstance(batch, Call):
                    # Before the caller's transaction takes a lock that the follower would wait for.
                    self._follow(is_to_follow=is_to_follow)
                    handles.append(self._enqueue_in(batch))
                else:
                    store, clock = self._app.store, self._app.clock
                    self._tune(clock, batch)
                    jobs = self._jobs(batch, store, clock)
                    handles += self._handles(batch, jobs, self._store_here(store, clock, jobs))
                is_to_follow = not isinstance(batch, Call)
        self._follow(is_to_follow=is_to_follow)
        return handles

    async def aenqueue_many(self, calls: Iterable[Call[R]]) -> list[JobHandle[R]]:
        """Store many calls: while one batch is being stored, the next is made."""
        refuse_enqueue()
        handles: list[JobHandle[R]] = []
        is_to_follow = False
        with attached(handles):
            async with Sending(handles) as sending:
                for batch in self._batches(calls):
                    if isinstance(batch, Call):
                        await sending.finish()
                        await self._afollow(is_to_follow=is_to_follow)
                        handles.append(await self._aenqueue_in(batch))
                    else:
                        store, clock = self._app.store, self._app.clock
                        await self._atune(clock, batch)
                        jobs = self._jobs(batch, store, clock)
                        await sending.finish()
                        await sending.start(self._store(store, clock, batch, jobs))
                    is_to_follow = not isinstance(batch, Call)
        await self._afollow(is_to_follow=is_to_follow)
        return handles

    def job_of(self, call: Call[object]) -> Job:
        """Make the job that a call will be stored as."""
        store, clock = self._app.store, self._app.clock
        return self._job(call, store, clock, clock.now())

    def _jobs(self, calls: Iterable[Call[object]], store: Store, clock: Clock) -> list[Job]:
        """Make the jobs that calls will be stored as, all dated with this moment."""
        now = clock.now()
        return [self._job(call, store, clock, now) for call in calls]

    def _job(self, call: Call[object], store: Store, clock: Clock, now: int) -> Job:
        terms = call.terms
        model = terms.model
        policy = self._app.registry.policy_for(model.task, model.override)
        due_at = now
        if terms.at is not None:
            due_at = max(now, terms.at)
        elif terms.delay:
            # Counted from the end of the current millisecond, so that the wait is never too short.
            due_at = clock.next() + terms.delay
        return replace(
            model,
            id=store.new_id(now, model.queue),
            dependency=call.dependency,
            payload=call.payload,
            created_at=now,
            due_at=due_at,
            waiting_for="schedule" if due_at > now else "turn",
            deadline_at=policy.deadline_of(now) if terms.deadline is None else now + terms.deadline,
            max_attempts=policy.max_attempts,
            headers=terms.headers_at(now, running_job()),
        )

    def _batches(self, calls: Iterable[Call[R]]) -> Iterator[list[Call[R]] | Call[R]]:
        """Yield calls by the thousand, and each call in a transaction of the caller's by itself."""
        batch: list[Call[R]] = []
        checked: object = self
        for call in calls:
            if getattr(call, "terms", None) is not checked:
                self._require_importable(call)
                if self._is_joining(call):
                    if batch:
                        yield batch
                        batch = []
                    yield call
                    continue
                checked = call.terms
            batch.append(call)
            if len(batch) == BULK:
                yield batch
                batch = []
        if batch:
            yield batch

    def _is_joining(self, call: Call[object]) -> bool:
        """Return whether a call becomes part of a transaction of the caller's.

        A store in memory, which tests use, is outside of every transaction: there the job is stored at once, as if the
        transaction had been committed.
        """
        if call.terms.connection is None:
            return False
        return not getattr(self._app.store_to_join, "is_in_memory", False)

    def _require_importable(self, call: Call[object]) -> None:
        """Refuse a call that no worker could run: its task is defined where no other process can import it from.

        A store in memory, and jobs that run inline, need no other process.
        """
        declaration = _require_call(call).terms.declaration
        if declaration.is_importable or self.follower is not None or self._app.settings.url in IN_MEMORY_URLS:
            return
        file = Path(file_of(declaration.function)).name
        where = f"in {file}" if file else "in code without a file (a prompt, a notebook, standard input, python -c)"
        message = (
            f"task {declaration.name} is defined {where}, which no worker can import; define it in a module such as "
            "shop.py, or give it a name that the worker's app knows: "
            f'@app.task(name="{declaration.function.__name__}")'
        )
        raise TaskNotImportable(message)

    def _store_here(self, store: Store, clock: Clock, jobs: Sequence[Job]) -> list[str]:
        """Store jobs from code without a loop: in this thread, if the store can; return the ids they are known by."""
        if _is_immediate(store):
            try:
                known = store.enqueue_sync(jobs, clock.now())
                if known is not None:
                    return known
            except StoreError as error:
                if not error.is_passing:
                    raise
        return self._app.portal.run(repeat_while_unreachable(lambda: store.enqueue(jobs, clock.now())))

    async def _store(
        self, store: Store, clock: Clock, calls: Sequence[Call[R]], jobs: Sequence[Job]
    ) -> list[JobHandle[R]]:
        # The ids are made, so a repeat after a lost reply stores nothing twice.
        return self._handles(calls, jobs, await repeat_while_unreachable(lambda: store.enqueue(jobs, clock.now())))

    def _handles(self, calls: Sequence[Call[R]], jobs: Sequence[Job], known: Sequence[str]) -> list[JobHandle[R]]:
        """Return the handles of calls; `known` are the ids under which the store knows their jobs."""
        app = self._app
        return [
            JobHandle(app, job_id, call.terms.declaration, job_id == job.id)
            for call, job, job_id in zip(calls, jobs, known, strict=True)
        ]

    def _enqueue_in(self, call: Call[R]) -> JobHandle[R]:
        store = self._joining()
        if isinstance(self._app.store, Transactional):
            # An outbox does not wait for the store, so it goes by the clock as it is.
            self._tune(self._app.clock, (call,))
        job = self.job_of(call)
        (known,) = store.enqueue_in(call.terms.connection, [job], self._app.clock.now())
        return self._joined(call, job, known)

    async def _aenqueue_in(self, call: Call[R]) -> JobHandle[R]:
        store, connection = self._joining(), call.terms.connection
        if isinstance(self._app.store, Transactional):
            await self._atune(self._app.clock, (call,))
        if not isinstance(store, AsyncTransactional) or not store.is_asynchronous(connection):
            return self._enqueue_in(call)
        job = self.job_of(call)
        (known,) = await store.aenqueue_in(connection, [job], self._app.clock.now())
        return self._joined(call, job, known)

    def _joined(self, call: Call[R], job: Job, known: str) -> JobHandle[R]:
        """Return the handle of a job in a transaction; an outbox does not know which keys are taken."""
        is_open = job.key and not isinstance(self._app.store, Transactional)
        return JobHandle(self._app, known, call.terms.declaration, None if is_open else known == job.id, True)  # noqa: FBT003 - by position, as in bulk

    def _joining(self) -> Transactional:
        """Return the store or the outbox that joins a transaction of the caller's."""
        store = self._app.store_to_join
        if isinstance(store, Transactional):
            return store
        outbox = self._app.outbox
        if outbox is None:
            message = (
                "this store cannot join a transaction of yours; name an outbox in your database, as in "
                'Reprieve("redis://…", outbox="postgresql://…"), and run reprieve relay, or leave connection out'
            )
            raise ValidationError(message)
        return outbox

    def _tune(self, clock: Clock, calls: Sequence[Call[object]]) -> None:
        waits = _have_wait(calls)
        if clock.is_stale or (waits and not clock.is_recent):
            self._app.portal.run(repeat_while_unreachable(lambda: clock.tune(waits=waits)))

    async def _atune(self, clock: Clock, calls: Sequence[Call[object]]) -> None:
        """Read the server's time again where that was long ago, before jobs are dated by it."""
        waits = _have_wait(calls)
        if clock.is_stale or (waits and not clock.is_recent):
            await repeat_while_unreachable(lambda: clock.tune(waits=waits))

    def _follow(self, *, is_to_follow: bool) -> None:
        if self.follower is not None and is_to_follow:
            self.follower.follow()

    async def _afollow(self, *, is_to_follow: bool) -> None:
        if self.follower is not None and is_to_follow:
            await self.follower.afollow()


def _require_call(value: object) -> Call[object]:
    if isinstance(value, Call):
        return value
    message = f"only calls can be enqueued, as task.call(…) makes them, got {shown(value)}"
    raise ValidationError(message)


def _is_immediate(store: Store) -> TypeGuard[Immediate]:
    # Python caches this check for a class, and not for an object.
    return issubclass(type(store), Immediate)


def _have_wait(calls: Sequence[Call[object]]) -> bool:
    """Return whether any call is to start later: by a clock that was set meanwhile it might start hours too late."""
    return any(call.terms.delay or call.terms.at is not None for call in calls)


async def repeat_while_unreachable(call: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Make a call that can be repeated, and repeat it for a while if the store is not reachable."""
    until, pause = ticks() + MAX_RETRY_SECONDS, MIN_PAUSE_SECONDS
    while True:
        try:
            return await call()
        except StoreError as error:
            if not error.is_passing or ticks() + pause > until:
                raise
        await asyncio.sleep(pause)
        pause = min(MAX_PAUSE_SECONDS, pause * 2)
