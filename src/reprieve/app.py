"""The app: tasks, a store and a clock, put together. Everything that users do begins here."""

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Self, TypeVar, Unpack, overload

from msgspec.structs import replace

from reprieve import config
from reprieve.admin import cancel, lookup, retry
from reprieve.admin.cancel import Cancelled
from reprieve.admin.outbox import explained
from reprieve.admin.retry import Retried
from reprieve.call import Call, Receipt
from reprieve.clock import Clock, ticks
from reprieve.codec import load
from reprieve.config import Settings
from reprieve.core.change import Request
from reprieve.core.duration import Duration, seconds
from reprieve.core.job import Job
from reprieve.core.policy import Policy
from reprieve.declaration import TaskOptions, declare
from reprieve.errors import JobNotFound, ResultUnavailable
from reprieve.lifespan import Lifespan, Lifespans
from reprieve.portal import Portal
from reprieve.producer import Producer, patiently
from reprieve.registry import Registry
from reprieve.stores.open import open_outbox, open_store
from reprieve.stores.outbox import Outbox
from reprieve.stores.protocol import Store, Transactional
from reprieve.task import P, R, Task
from reprieve.worker.middleware import Middleware

L = TypeVar("L", bound=Lifespan)
T = TypeVar("T")


class Reprieve:
    """An application's tasks, on one store."""

    def __init__(
        self,
        url: str | None = None,
        *,
        outbox: str | None = None,
        shared: bool | None = None,
        policy: Policy | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Make an app. Nothing is opened until it is needed.

        Settings come from `REPRIEVE_*` and `reprieve.toml` unless they are given; `url`, `outbox` and `shared`
        go over both. The outbox is a database of yours whose transactions send jobs to a store that cannot join them:
        Redis. `shared` keeps the jobs in a SQLite file that has tables of yours.
        """
        self.settings = config.load().settings if settings is None else settings
        if url is not None:
            self.settings = replace(self.settings, url=url)
        if outbox is not None:
            self.settings = replace(self.settings, outbox=outbox)
        if shared is not None:
            self.settings = replace(self.settings, shared=shared)
        self._clock = clock
        self.registry = Registry(self.settings, policy)
        self.middleware: list[Middleware] = []
        """What goes around every attempt, the first outermost."""
        self._lifespans = Lifespans()
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._outbox: Outbox | None = None
        self.portal = Portal()
        """Where code without a loop has its calls made."""
        self.producer = Producer(self)
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
            declaration = declare(function, options)
            self.registry.add(declaration)
            return Task(function, declaration, self)

        return register if function is None else register(function)

    # resources

    def lifespan(self, function: L) -> L:
        """Register what every worker process opens before it takes jobs and closes after them: `@app.lifespan`.

        The function takes no arguments. It is an async generator that yields once, or returns an async context manager.
        Isolated processes enter it as well, once each. Several lifespans are entered in order and left in reverse.
        """
        self._lifespans.add(function)
        return function

    def lifespan_context(self) -> AbstractAsyncContextManager[None]:
        """Enter the lifespans of this app outside of a worker: `async with app.lifespan_context():`.

        Blocks inside of each other in one event loop share one set of resources.
        """
        return self._lifespans.entered()

    def resource(self, kind: type[T]) -> T:
        """Return what a lifespan has yielded, by its type: `app.resource(SmtpPool)`.

        A resource of exactly this class goes before those of its subclasses. Raises `ResourceUnavailable` when there is
        none or more than one, or where no lifespan was entered.
        """
        return self._lifespans.find(kind)

    # enqueueing

    def enqueue(self, call: Call) -> Receipt:
        """Store one call, from code without a loop."""
        return self.producer.enqueue(call)

    async def aenqueue(self, call: Call) -> Receipt:
        """Store one call. Calls that are made at the same time share one trip to the store."""
        return await self.producer.aenqueue(call)

    def enqueue_many(self, calls: Iterable[Call]) -> list[Receipt]:
        """Store many calls, from code without a loop; see `aenqueue_many`."""
        return self.producer.enqueue_many(calls)

    async def aenqueue_many(self, calls: Iterable[Call]) -> list[Receipt]:
        """Store many calls, thousands in one trip. Each batch is stored whole or not at all.

        Whatever is raised has `receipts`: a list of those that were stored before it, in the order of the calls. The
        rest can be enqueued again. Those in a transaction of the caller's count if it commits.
        """
        return await self.producer.aenqueue_many(calls)

    # looking and acting

    async def ajob(self, job_id: str) -> Job:
        """Return a job as it is; raises `JobNotFound`."""
        async with explained(self._outbox_in_use(), job_id):
            return await lookup.get_job(self.store, self.clock, job_id)

    def job(self, job_id: str) -> Job:
        """Return a job as it is, from code without a loop."""
        return self.portal.run(self.ajob(job_id))

    async def aresult(self, job_id: str, *, wait: Duration = 0.0) -> object:
        """Return what a job returned, as plain JSON; `wait` for it to end, if it has not.

        Raises `ResultUnavailable` when the job has not succeeded in time, or its result is not kept; `JobNotFound` when
        neither the job nor a result of it is stored.
        """
        until = ticks() + seconds(wait, "wait")
        while True:
            try:
                job = await self.ajob(job_id)
            except JobNotFound:
                # A result may be kept for longer than its job.
                data = await self.store.result(job_id)
                if data is None:
                    raise
                return load(data)
            left = until - ticks()
            if job.state not in ("waiting", "running") or left <= 0:
                return await self._result_of(job)
            await self.store.wait((job.queue,), min(left, 1.0))

    def result(self, job_id: str, *, wait: Duration = 0.0) -> object:
        """Return what a job returned, from code without a loop."""
        return self.portal.run(self.aresult(job_id, wait=wait))

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
        """Return how far a running job says that it has come; None when it says nothing or does not run."""
        data = await self.store.progress(job_id)
        return None if data is None else load(data)

    def progress(self, job_id: str) -> object:
        """Return how far a running job has come, from code without a loop."""
        return self.portal.run(self.aprogress(job_id))

    async def aretry(self, job_id: str, *, by: str, reason: str, force: bool = False, delay: Duration = 0.0) -> Retried:
        """Let a person run a job again that is dead, cancelled, retrying, parked or stuck.

        `force` grants one more attempt to a job that has used up its own. See `admin.retry` for what is raised.
        """
        request = Request(by=by, reason=reason, force=force, delay=seconds(delay, "delay"))
        async with explained(self._outbox_in_use(), job_id):
            return await retry.retry(self.store, self.clock, job_id, request, self._stuck_after)

    def _stuck_after(self, job: Job) -> float:
        """Return after how long a running job counts as stuck: never before its own timeout."""
        return max(self.settings.stuck_after, self.registry.timeout_of(job.task))

    def retry(self, job_id: str, *, by: str, reason: str, force: bool = False, delay: Duration = 0.0) -> Retried:
        """Let a person run a job again, from code without a loop."""
        return self.portal.run(self.aretry(job_id, by=by, reason=reason, force=force, delay=delay))

    async def acancel(self, job_id: str, *, by: str, reason: str) -> Cancelled:
        """Give a job up; one that runs is asked to stop and ends as soon as it does."""
        async with explained(self._outbox_in_use(), job_id):
            return await cancel.cancel(self.store, self.clock, job_id, Request(by=by, reason=reason))

    def cancel(self, job_id: str, *, by: str, reason: str) -> Cancelled:
        """Give a job up, from code without a loop."""
        return self.portal.run(self.acancel(job_id, by=by, reason=reason))

    # opening and closing

    @property
    def clock(self) -> Clock:
        """The clock that was handed in, or that of the store."""
        return self._clock or self.store.clock

    async def aopen(self) -> None:
        """Open the store now, and make it if it is missing, instead of when it is first needed.

        Call it when a program starts: whatever is wrong with the store is raised there, and the first enqueue in a
        transaction of yours finds the store ready. An app with an outbox opens the outbox, and leaves the store, which
        may be down, for later. Opening again does nothing.
        """
        await asyncio.to_thread(lambda: self.store)
        outbox = self._outbox_in_use()
        await patiently(self._reach_store if outbox is None else outbox.open)

    async def _reach_store(self) -> None:
        await self.clock.tune()
        # Whether a server keeps jobs safely is looked at when it is first used.
        await self.store.limit_states("queue")

    def open(self) -> None:
        """Open the store now, from code without a loop; see `aopen`."""
        self.portal.run(self.aopen())

    @property
    def store(self) -> Store:
        """The store, opened when it is first needed."""
        return self._opened(may_wait=True)

    @property
    def store_to_join(self) -> Store:
        """The store, for a caller with an open transaction: opening it does not wait for that transaction's end."""
        return self._opened(may_wait=False)

    def _opened(self, *, may_wait: bool) -> Store:
        if self._store is None:
            with self._lock:
                if self._store is None:
                    settings = self.settings
                    self._store = open_store(
                        settings.url,
                        durability=settings.durability,
                        largest_payload=settings.largest_payload,
                        shared=settings.shared,
                        may_wait=may_wait,
                    )
        return self._store

    @property
    def outbox(self) -> Outbox | None:
        """The outbox, opened when it is first needed; None where the settings name none."""
        if self._outbox is None and self.settings.outbox:
            with self._lock:
                if self._outbox is None:
                    settings = self.settings
                    self._outbox = open_outbox(settings.outbox, largest_payload=settings.largest_payload)
        return self._outbox

    def _outbox_in_use(self) -> Outbox | None:
        """Return the outbox; None where the store joins transactions itself, and needs none."""
        return None if isinstance(self.store, Transactional) else self.outbox

    async def aclose(self) -> None:
        """Let go of the store and the outbox; they are opened again if they are needed again."""
        opened = self._let_go()
        # Whoever waits in other threads is sent away first, or would open the store again.
        self.portal.close()
        for one in opened:
            await one.close()

    def close(self) -> None:
        """Let go of the store and the outbox, from code without a loop."""
        opened = self._let_go()
        self.portal.close()
        for one in opened:
            self.portal.run(one.close())
        self.portal.close()

    def _let_go(self) -> list[Store | Outbox]:
        opened = [one for one in (self._store, self._outbox) if one is not None]
        self._store = self._outbox = None
        return opened

    @contextmanager
    def override(
        self, *, url: str | None = None, store: Store | None = None, clock: Clock | None = None
    ) -> Iterator[Self]:
        """Use another store or another clock for a while, as tests do; afterwards everything is as it was before.

        A store that is opened by its `url` is closed in the end; one that is handed in stays open. The outbox of the
        app's own store is left out meanwhile.
        """
        before = self.settings, self._store, self._clock
        outbox = self._outbox
        if url is not None:
            self.settings = replace(self.settings, url=url)
        if url is not None or store is not None:
            self.settings = replace(self.settings, outbox="")
            self._store, self._outbox = store, None
        if clock is not None:
            self._clock = clock
        try:
            yield self
        finally:
            self.settings, previous, self._clock = before
            if url is not None or store is not None:
                used, self._store, self._outbox = self._store, previous, outbox
                if used is not None and used is not store:
                    self.portal.run(used.close())
                    self.portal.close()

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
        self._store = self._outbox = None
        self._lifespans.forget()
        self.portal = Portal()


_apps: weakref.WeakSet[Reprieve] = weakref.WeakSet()


def _forget_all() -> None:
    for app in _apps:
        app.forget()


os.register_at_fork(after_in_child=_forget_all)
