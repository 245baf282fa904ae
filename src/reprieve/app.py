"""The app: tasks, a store and a clock, put together."""

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Self, TypeVar, Unpack, overload

from msgspec.structs import replace

from reprieve import config
from reprieve.call import Call
from reprieve.clock import Clock
from reprieve.config import Settings
from reprieve.core.policy import Policy
from reprieve.declaration import TaskOptions, declare
from reprieve.errors import AppInUse
from reprieve.handle import JobHandle
from reprieve.lifespan import Lifespan, Lifespans
from reprieve.portal import Portal
from reprieve.producer import Producer, repeat_while_unreachable
from reprieve.registry import Registry
from reprieve.stores.capabilities import Transactional
from reprieve.stores.open import open_outbox, open_store
from reprieve.stores.outbox import Outbox
from reprieve.stores.protocol import Store
from reprieve.task import AsyncTask, P, R, Task, TaskDecorator
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
        policy: Policy | str | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Make an app. Nothing is opened until it is needed.

        Settings are read from `REPRIEVE_*` variables and `reprieve.toml` unless they are given; `url`, `outbox` and
        `shared` override both. The outbox is a database of the application's, whose transactions send jobs to a store
        that cannot join them: Redis. `shared` keeps the jobs in a SQLite file that has tables of the application's.
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
        """Functions that are called around every attempt, the first outermost."""
        self.workers = 0
        """Workers of this process that use the store: while there are any, the app cannot be closed."""
        self._lifespans = Lifespans()
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._outbox: Outbox | None = None
        self.portal = Portal()
        """Runs coroutines for code without a loop."""
        self.producer = Producer(self)
        _apps.add(self)

    # declaring

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(self, /, **options: Unpack[TaskOptions]) -> TaskDecorator: ...

    def task(
        self, function: Callable[..., Any] | None = None, /, **options: Unpack[TaskOptions]
    ) -> Task[..., Any] | TaskDecorator:
        """Register a function as a task: `@app.task`, or `@app.task(queue="mail", timeout="30s")`."""

        def register(function: Callable[..., Any]) -> Any:  # noqa: ANN401 - the overloads say which kind of task
            declaration = declare(function, options, self.registry.named_policies)
            self.registry.add(declaration)
            kind = AsyncTask if declaration.is_async else Task
            return kind(function, declaration, self)

        return register if function is None else register(function)

    # resources

    def lifespan(self, function: L) -> L:
        """Register what every worker process opens before its first job and closes after its last: `@app.lifespan`.

        The function takes no arguments. It is an async generator that yields once, or returns an async context manager.
        Isolated processes enter it as well, once each. Lifespans are entered in order, and left in reverse order.
        """
        self._lifespans.add(function)
        return function

    def lifespan_context(self) -> AbstractAsyncContextManager[None]:
        """Enter the lifespans of this app outside of a worker: `async with app.lifespan_context():`.

        Nested blocks in one event loop share one set of resources.
        """
        return self._lifespans.entered()

    def resource(self, kind: type[T]) -> T:
        """Return what a lifespan has yielded, by its type: `app.resource(SmtpPool)`.

        A resource of exactly this class is preferred to one of a subclass. Raises `ResourceUnavailable` when there is
        none or more than one, or when no lifespan was entered.
        """
        return self._lifespans.find(kind)

    # enqueueing

    def enqueue(self, call: Call[T]) -> JobHandle[T]:
        """Store one call, from code without a loop."""
        return self.producer.enqueue(call)

    async def aenqueue(self, call: Call[T]) -> JobHandle[T]:
        """Store one call. Calls that are made at the same time share one trip to the store."""
        return await self.producer.aenqueue(call)

    def enqueue_many(self, calls: Iterable[Call[T]]) -> list[JobHandle[T]]:
        """Store many calls, from code without a loop; see `aenqueue_many`."""
        return self.producer.enqueue_many(calls)

    async def aenqueue_many(self, calls: Iterable[Call[T]]) -> list[JobHandle[T]]:
        """Store many calls, a thousand in one trip. Each batch is stored whole or not at all.

        An exception that is raised has `enqueued`: the handles of the jobs that were stored before it, in the order of
        the calls. The rest can be enqueued again. Jobs in a transaction of the caller's exist if it commits.
        """
        return await self.producer.aenqueue_many(calls)

    def job(self, job_id: str) -> JobHandle[object]:
        """Return the handle of a job, by its id; nothing is read yet. `task.job(id)` knows the type of the result."""
        return JobHandle(self, job_id)

    # opening and closing

    @property
    def clock(self) -> Clock:
        """The clock that was passed in, or that of the store."""
        return self._clock or self.store.clock

    async def aopen(self) -> None:
        """Open the store now, and create it if it is missing, instead of when it is first needed.

        Call it when a program starts: an error of the store is raised there, and the first enqueue in a transaction of
        the caller's finds the store ready. An app with an outbox opens the outbox only, since the store may be down.
        Opening again does nothing.
        """
        await asyncio.to_thread(lambda: self.store)
        outbox = self.outbox_in_use
        await repeat_while_unreachable(self._reach_store if outbox is None else outbox.open)

    async def _reach_store(self) -> None:
        await self.clock.tune()
        # The first use of a server checks whether it keeps jobs safely.
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
                        stuck_after=settings.stuck_after,
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

    @property
    def outbox_in_use(self) -> Outbox | None:
        """The outbox; None where the store joins transactions itself, and needs none."""
        return None if isinstance(self.store, Transactional) else self.outbox

    async def aclose(self) -> None:
        """Close the store and the outbox; they are opened again if they are needed again.

        Raises `AppInUse` in a process whose worker uses them, as in a task.
        """
        opened = self._detach()
        # Calls of other threads end first: otherwise they would open the store again.
        self.portal.close()
        for one in opened:
            await one.close()

    def close(self) -> None:
        """Close the store and the outbox, from code without a loop; see `aclose`."""
        opened = self._detach()
        self.portal.close()
        for one in opened:
            self.portal.run(one.close())
        self.portal.close()

    def _detach(self) -> list[Store | Outbox]:
        self._require_unused()
        opened = [one for one in (self._store, self._outbox) if one is not None]
        self._store = self._outbox = None
        return opened

    def _require_unused(self) -> None:
        if self.workers:
            message = (
                "the app cannot be closed here: the worker of this process uses it; leave out `with app:` and "
                "close() in tasks, where the app is open already"
            )
            raise AppInUse(message)

    @contextmanager
    def override(
        self, *, url: str | None = None, store: Store | None = None, clock: Clock | None = None
    ) -> Iterator[Self]:
        """Use another store or another clock inside the block, as tests do.

        A store that is opened by its `url` is closed at the end; one that is passed in stays open. The outbox of the
        app's own store is not used in the block.
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
        """Use the app, and close it at the end."""
        self._require_unused()
        return self

    def __exit__(self, *_: object) -> None:
        """Close the app."""
        self.close()

    async def __aenter__(self) -> Self:
        """Use the app, and close it at the end."""
        self._require_unused()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the app."""
        await self.aclose()

    def forget(self) -> None:
        """Drop what a forked process cannot use: threads do not survive a fork."""
        self._lock = threading.Lock()
        self._store = self._outbox = None
        self.workers = 0
        self._lifespans.forget()
        self.portal = Portal()


_apps: weakref.WeakSet[Reprieve] = weakref.WeakSet()


def _forget_all() -> None:
    for app in _apps:
        app.forget()


os.register_at_fork(after_in_child=_forget_all)
