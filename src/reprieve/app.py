"""The app: tasks, a store and a clock, put together. Everything that users do begins here."""

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any, Protocol, Self, TypedDict, TypeVar, Unpack, overload

from msgspec.structs import replace

from reprieve import config
from reprieve.admin import cancel, look, retry
from reprieve.admin.cancel import Cancelled
from reprieve.admin.retry import Retried
from reprieve.clock import Clock, SystemClock, ticks
from reprieve.codec import load
from reprieve.config import Settings
from reprieve.core.change import Request
from reprieve.core.duration import Duration, milliseconds, seconds
from reprieve.core.job import Job
from reprieve.core.policy import Policy
from reprieve.declaration import Dependency, Executor, declare
from reprieve.errors import ResultUnavailable, StoreError, ValidationError
from reprieve.portal import Portal
from reprieve.registry import Registry
from reprieve.stores.open import open_store
from reprieve.stores.protocol import Immediate, Store, Transactional
from reprieve.task import Call, Options, P, R, Receipt, Task
from reprieve.worker.middleware import Middleware

T = TypeVar("T")

PATIENCE = 5.0
"""Seconds for which an enqueue rides out a store that does not answer."""

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5
"""Seconds between two tries of an enqueue."""

BULK = 5_000
"""Jobs of one call to the store, when many are enqueued."""


class TaskOptions(TypedDict, total=False):
    """What can be said about a task."""

    name: str
    """What its jobs are stored under; the function's module and name unless given."""
    queue: str
    policy: Policy | None
    dependency: Dependency
    priority: int
    timeout: Duration | None
    executor: Executor | None
    result_ttl: Duration
    """How long what it returns is kept; nothing is kept unless given."""


class Follower(Protocol):
    """Whoever wants to act as soon as jobs are stored, and before the caller hears of it.

    Jobs in a transaction of the caller's are not stored yet, and nobody is told.
    """

    def follow(self) -> None:
        """Act in code without a loop."""
        ...

    async def afollow(self) -> None:
        """Act in the caller's loop."""
        ...


class Reprieve:
    """An application's tasks, on one store."""

    def __init__(
        self,
        url: str | None = None,
        *,
        policy: Policy | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Make an app. Nothing is opened until it is needed.

        Settings come from `REPRIEVE_*` and `reprieve.toml` unless they are given; `url` goes over both.
        """
        self.settings = config.load().settings if settings is None else settings
        if url is not None:
            self.settings = replace(self.settings, url=url)
        self.clock: Clock = clock or SystemClock()
        self.registry = Registry(self.settings, policy)
        self.middleware: list[Middleware] = []
        """What goes around every attempt, the first outermost."""
        self.follower: Follower | None = None
        """What acts after every enqueue: tests run their jobs at once this way."""
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._portal = Portal()
        _apps.add(self)

    # declaring

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(self, /, **options: Unpack[TaskOptions]) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    def task(
        self, function: Callable[P, R] | None = None, /, **options: Unpack[TaskOptions]
    ) -> Task[P, R] | Callable[[Callable[P, R]], Task[P, R]]:
        """Register a function as a task: `@app.task`, or `@app.task(queue="mail", timeout="30s")`."""

        def register(function: Callable[P, R]) -> Task[P, R]:
            declaration = declare(function, **options)
            self.registry.add(declaration)
            return Task(function, declaration, self)

        return register if function is None else register(function)

    # enqueueing

    def enqueue(self, call: Call) -> Receipt:
        """Store one call, from code without a loop."""
        return self.enqueue_many([call])[0]

    async def aenqueue(self, call: Call) -> Receipt:
        """Store one call. Calls that are made at the same time share one trip to the store."""
        return (await self.aenqueue_many([call]))[0]

    def enqueue_many(self, calls: Iterable[Call]) -> list[Receipt]:
        """Store many calls, from code without a loop; see `aenqueue_many`."""
        receipts: list[Receipt] = []
        is_news = False
        # All but the store's own work is done in the caller's thread: a connection or an iterator may know no other.
        with _telling(receipts):
            for batch in self._batches(calls):
                if isinstance(batch, Call):
                    # Whoever follows must not wait for the lock that the caller's transaction is about to take.
                    self._follow(is_news=is_news)
                    receipts.append(self._enqueue_in(batch))
                else:
                    receipts += self._enqueue_here(batch)
                is_news = not isinstance(batch, Call)
        self._follow(is_news=is_news)
        return receipts

    async def aenqueue_many(self, calls: Iterable[Call]) -> list[Receipt]:
        """Store many calls, thousands in one trip. Each batch is stored whole or not at all.

        Whatever is raised has `receipts`: a list of those that were stored before it, in the order of the calls. The
        rest can be enqueued again. Those in a transaction of the caller's count if it commits.
        """
        receipts: list[Receipt] = []
        is_news = False
        with _telling(receipts):
            for batch in self._batches(calls):
                if isinstance(batch, Call):
                    await self._afollow(is_news=is_news)
                    receipts.append(self._enqueue_in(batch))
                else:
                    receipts += await self._enqueue(batch)
                is_news = not isinstance(batch, Call)
        await self._afollow(is_news=is_news)
        return receipts

    def _follow(self, *, is_news: bool) -> None:
        if self.follower is not None and is_news:
            self.follower.follow()

    async def _afollow(self, *, is_news: bool) -> None:
        if self.follower is not None and is_news:
            await self.follower.afollow()

    def _batches(self, calls: Iterable[Call]) -> Iterator[list[Job] | Call]:
        """Answer the jobs of calls by the thousands, and each call in a transaction of the caller's by itself."""
        jobs: list[Job] = []
        for call in calls:
            if call.options.get("connection") is not None:
                if jobs:
                    yield jobs
                    jobs = []
                yield call
                continue
            jobs.append(self.job_of(call))
            if len(jobs) == BULK:
                yield jobs
                jobs = []
        if jobs:
            yield jobs

    def job_of(self, call: Call) -> Job:
        """Make the job that a call will be stored as."""
        declaration, options, now = call.declaration, call.options, self.clock.now()
        queue, override = options.get("queue", declaration.queue), call.override
        policy = self.registry.policy_for(declaration.name, override)
        due_at, deadline_at = self._due_at(options, now), policy.deadline_of(now)
        if "deadline" in options:
            deadline_at = now + milliseconds(seconds(options["deadline"], "deadline"))
        return Job(
            id=self.store.new_id(now, queue),
            task=declaration.name,
            queue=queue,
            tenant=options.get("tenant", ""),
            dependency=call.dependency,
            group=options.get("group", ""),
            key=options.get("key", ""),
            key_ttl=seconds(options["key_ttl"], "key_ttl") if "key_ttl" in options else None,
            priority=options.get("priority", declaration.priority),
            payload=call.payload,
            override=override,
            created_at=now,
            due_at=due_at,
            waiting_for="schedule" if due_at > now else "turn",
            deadline_at=deadline_at,
            max_attempts=policy.max_attempts,
        )

    def _due_at(self, options: Options, now: int) -> int:
        if "at" in options:
            return max(now, _moment(options))
        delay = options.get("delay")
        # A wait that is counted from the millisecond that has begun would be too short.
        return now if not delay else self.clock.next() + milliseconds(seconds(delay, "delay"))

    def _enqueue_here(self, jobs: list[Job]) -> list[Receipt]:
        store = self.store
        if isinstance(store, Immediate):
            try:
                return _receipts(jobs, store.enqueue_here(jobs, self.clock.now()))
            except StoreError as error:
                if not error.is_passing:
                    raise
        return self._portal.run(self._enqueue(jobs))

    async def _enqueue(self, jobs: list[Job]) -> list[Receipt]:
        store, clock = self.store, self.clock
        # The ids are made, so a repeat after a lost reply stores nothing twice.
        return _receipts(jobs, await patiently(lambda: store.enqueue(jobs, clock.now())))

    def _enqueue_in(self, call: Call) -> Receipt:
        if not isinstance(self.store, Transactional):
            message = "this store cannot join a transaction of yours; use SQLite or PostgreSQL, or leave connection out"
            raise ValidationError(message)
        job = self.job_of(call)
        (known,) = self.store.enqueue_in(call.options["connection"], [job], self.clock.now())
        return Receipt(id=known, is_new=known == job.id)

    # looking and acting

    async def ajob(self, job_id: str) -> Job:
        """Answer a job as it is; raises `JobNotFound`."""
        return await look.get(self.store, self.clock, job_id)

    def job(self, job_id: str) -> Job:
        """Answer a job as it is, from code without a loop."""
        return self._portal.run(self.ajob(job_id))

    async def aresult(self, job_id: str, *, wait: Duration = 0.0) -> object:
        """Answer what a job returned, as plain JSON; `wait` for it to end, if it has not.

        Raises `ResultUnavailable` when the job has not succeeded in time, or its result is not kept.
        """
        until = ticks() + seconds(wait, "wait")
        while True:
            job = await self.ajob(job_id)
            left = until - ticks()
            if job.state not in ("waiting", "running") or left <= 0:
                return await self._result_of(job)
            await self.store.wait((job.queue,), min(left, 1.0))

    def result(self, job_id: str, *, wait: Duration = 0.0) -> object:
        """Answer what a job returned, from code without a loop."""
        return self._portal.run(self.aresult(job_id, wait=wait))

    async def _result_of(self, job: Job) -> object:
        if job.state != "succeeded":
            why = f": {job.cause.reason}" if job.cause is not None else ""
            message = f"job {job.id} is {job.state} and has no result{why}"
            raise ResultUnavailable(message)
        data = await self.store.result(job.id)
        if data is None:
            message = f"the result of job {job.id} is not kept; declare {job.task} with a result_ttl"
            raise ResultUnavailable(message)
        return load(data)

    async def aprogress(self, job_id: str) -> object:
        """Answer how far a running job says that it has come; None when it says nothing or does not run."""
        data = await self.store.progress(job_id)
        return None if data is None else load(data)

    def progress(self, job_id: str) -> object:
        """Answer how far a running job has come, from code without a loop."""
        return self._portal.run(self.aprogress(job_id))

    async def aretry(self, job_id: str, *, by: str, reason: str, force: bool = False, delay: Duration = 0.0) -> Retried:
        """Let a person run a job again that is dead, cancelled, retrying, parked or stuck.

        `force` grants one more attempt to a job that has used up its own. See `admin.retry` for what is raised.
        """
        request = Request(by=by, reason=reason, force=force, delay=seconds(delay, "delay"))
        return await retry.retry(self.store, self.clock, job_id, request, self._stuck_after)

    def _stuck_after(self, job: Job) -> float:
        """Answer after how long a running job counts as stuck: never before its own timeout."""
        return max(self.settings.stuck_after, self.registry.timeout_of(job.task))

    def retry(self, job_id: str, *, by: str, reason: str, force: bool = False, delay: Duration = 0.0) -> Retried:
        """Let a person run a job again, from code without a loop."""
        return self._portal.run(self.aretry(job_id, by=by, reason=reason, force=force, delay=delay))

    async def acancel(self, job_id: str, *, by: str, reason: str) -> Cancelled:
        """Give a job up; one that runs is asked to stop and ends as soon as it does."""
        return await cancel.cancel(self.store, self.clock, job_id, Request(by=by, reason=reason))

    def cancel(self, job_id: str, *, by: str, reason: str) -> Cancelled:
        """Give a job up, from code without a loop."""
        return self._portal.run(self.acancel(job_id, by=by, reason=reason))

    # opening and closing

    @property
    def store(self) -> Store:
        """The store, opened when it is first needed."""
        if self._store is None:
            with self._lock:
                if self._store is None:
                    settings = self.settings
                    self._store = open_store(
                        settings.url,
                        durability=settings.durability,
                        largest_payload=settings.largest_payload,
                        shared=settings.shared,
                    )
        return self._store

    async def aclose(self) -> None:
        """Let go of the store; it is opened again if it is needed again."""
        store, self._store = self._store, None
        # Whoever waits in other threads is sent away first, or would open the store again.
        self._portal.close()
        if store is not None:
            await store.close()

    def close(self) -> None:
        """Let go of the store, from code without a loop."""
        store, self._store = self._store, None
        self._portal.close()
        if store is not None:
            self._portal.run(store.close())
            self._portal.close()

    @contextmanager
    def override(
        self, *, url: str | None = None, store: Store | None = None, clock: Clock | None = None
    ) -> Iterator[Self]:
        """Use another store or another clock for a while, as tests do; afterwards everything is as it was before.

        A store that is opened by its `url` is closed in the end; one that is handed in stays open.
        """
        before = self.settings, self._store, self.clock
        if url is not None:
            self.settings = replace(self.settings, url=url)
        if url is not None or store is not None:
            self._store = store
        if clock is not None:
            self.clock = clock
        try:
            yield self
        finally:
            self.settings, previous, self.clock = before
            if url is not None or store is not None:
                used, self._store = self._store, previous
                if used is not None and used is not store:
                    self._portal.run(used.close())
                    self._portal.close()

    def __enter__(self) -> Self:
        """Use the app and close it in the end."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the app."""
        self.close()

    async def __aenter__(self) -> Self:
        """Use the app and close it in the end."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the app."""
        await self.aclose()

    def forget(self) -> None:
        """Forget what a fork has copied but cannot use: threads do not survive it."""
        self._lock = threading.Lock()
        self._store = None
        self._portal = Portal()


@contextmanager
def _telling(receipts: list[Receipt]) -> Iterator[None]:
    """Let whoever hears of an error know what was stored before it."""
    try:
        yield
    except BaseException as error:
        # Callers who shared one trip to the store share its error, and have different receipts.
        own = copy(error) if isinstance(error, StoreError) else error
        own.receipts = receipts  # type: ignore[attr-defined]  # it may be anybody's exception
        if own is error:
            raise
        raise own.with_traceback(error.__traceback__) from error.__cause__


def _receipts(jobs: list[Job], known: list[str]) -> list[Receipt]:
    return [Receipt(id=name, is_new=name == job.id) for name, job in zip(known, jobs, strict=True)]


def _moment(options: Options) -> int:
    at = options["at"]
    if "delay" in options:
        message = "at and delay say the same thing; give one of the two"
        raise ValidationError(message)
    if at.tzinfo is None:
        message = f"at {at!r} is no moment; give a datetime with a time zone"
        raise ValidationError(message)
    return milliseconds(at.timestamp())


async def patiently(call: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Repeat a call that can be repeated while the store does not answer, for as long as a caller can wait."""
    until, pause = ticks() + PATIENCE, FIRST_PAUSE
    while True:
        try:
            return await call()
        except StoreError as error:
            if not error.is_passing or ticks() + pause > until:
                raise
        await asyncio.sleep(pause)
        pause = min(LONGEST_PAUSE, pause * 2)


_apps: weakref.WeakSet[Reprieve] = weakref.WeakSet()


def _forget_all() -> None:
    for app in _apps:
        app.forget()


os.register_at_fork(after_in_child=_forget_all)
