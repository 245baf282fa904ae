"""The producer: makes jobs of calls, and brings them to the store."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any, Protocol, Self, TypeGuard, TypeVar

from msgspec.structs import replace

from reprieve.call import Call, Receipt
from reprieve.clock import Clock, ticks
from reprieve.config import Settings
from reprieve.core.job import Job
from reprieve.errors import StoreError, TaskNotImportable, ValidationError
from reprieve.importing import file_of, refuse_enqueue
from reprieve.portal import Portal
from reprieve.registry import Registry
from reprieve.stores.capabilities import AsyncTransactional, Immediate, Transactional
from reprieve.stores.protocol import Store

T = TypeVar("T")

PATIENCE = 5.0
"""Seconds for which an enqueue rides out a store that does not answer."""

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5
"""Seconds between two tries of an enqueue."""

HANDS = 3
"""Turns of the loop in which a batch goes from hand to hand until the store has it."""

BULK = 1_000
"""Jobs of one trip to the store, when many are enqueued; others in the loop wait while they are made."""


IN_MEMORY = ("sqlite://:memory:", "sqlite:///:memory:")
"""Stores that no other process sees."""


class Origin(Protocol):
    """What a producer enqueues for: an app."""

    settings: Settings
    registry: Registry
    portal: Portal

    @property
    def clock(self) -> Clock:
        """The clock that was handed in, or that of the store."""
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
    def outbox(self) -> Transactional | None:
        """Where calls in a transaction of the caller's are left for a store that cannot join it, if anywhere."""
        ...


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


class Producer:
    """Enqueues the calls of one app."""

    def __init__(self, origin: Origin) -> None:
        """Take whose calls they are; its store and clock may change at any time."""
        self._origin = origin
        self.follower: Follower | None = None
        """What acts after every enqueue: tests run their jobs at once this way."""

    def enqueue(self, call: Call) -> Receipt:
        """Store one call, from code without a loop."""
        refuse_enqueue()
        self._require_importable(call)
        if self._is_joining(call):
            return self._enqueue_in(call)
        self._tune()
        (receipt,) = self._bring_here([self.job_of(call)])
        if self.follower is not None:
            self.follower.follow()
        return receipt

    async def aenqueue(self, call: Call) -> Receipt:
        """Store one call, together with those of other callers."""
        refuse_enqueue()
        self._require_importable(call)
        if self._is_joining(call):
            return await self._aenqueue_in(call)
        await self._atune()
        job, store, clock = self.job_of(call), self._origin.store, self._origin.clock
        (known,) = await patiently(lambda: store.enqueue((job,), clock.now()))
        if self.follower is not None:
            await self.follower.afollow()
        return Receipt(id=known, is_new=known == job.id)

    def enqueue_many(self, calls: Iterable[Call]) -> list[Receipt]:
        """Store many calls, from code without a loop."""
        refuse_enqueue()
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
                    self._tune()
                    receipts += self._bring_here(list(map(self.job_of, batch)))
                is_news = not isinstance(batch, Call)
        self._follow(is_news=is_news)
        return receipts

    async def aenqueue_many(self, calls: Iterable[Call]) -> list[Receipt]:
        """Store many calls: while some are on their way, the next are made."""
        refuse_enqueue()
        receipts: list[Receipt] = []
        is_news = False
        with _telling(receipts):
            async with _UnderWay(receipts) as under_way:
                for batch in self._batches(calls):
                    if isinstance(batch, Call):
                        await under_way.arrive()
                        await self._afollow(is_news=is_news)
                        receipts.append(await self._aenqueue_in(batch))
                    else:
                        await self._atune()
                        jobs = list(map(self.job_of, batch))
                        await under_way.arrive()
                        await under_way.leave(self._bring(jobs))
                    is_news = not isinstance(batch, Call)
        await self._afollow(is_news=is_news)
        return receipts

    def job_of(self, call: Call) -> Job:
        """Make the job that a call will be stored as."""
        terms, clock = call.terms, self._origin.clock
        model, now = terms.model, clock.now()
        policy = self._origin.registry.policy_for(model.task, model.override)
        due_at = now
        if terms.at is not None:
            due_at = max(now, terms.at)
        elif terms.delay:
            # A wait that is counted from the millisecond that has begun would be too short.
            due_at = clock.next() + terms.delay
        return replace(
            model,
            id=self._origin.store.new_id(now, model.queue),
            dependency=call.dependency,
            payload=call.payload,
            created_at=now,
            due_at=due_at,
            waiting_for="schedule" if due_at > now else "turn",
            deadline_at=policy.deadline_of(now) if terms.deadline is None else now + terms.deadline,
            max_attempts=policy.max_attempts,
        )

    def _batches(self, calls: Iterable[Call]) -> Iterator[list[Call] | Call]:
        """Yield calls by the thousand, and each call in a transaction of the caller's by itself."""
        batch: list[Call] = []
        for call in calls:
            self._require_importable(call)
            if self._is_joining(call):
                if batch:
                    yield batch
                    batch = []
                yield call
                continue
            batch.append(call)
            if len(batch) == BULK:
                yield batch
                batch = []
        if batch:
            yield batch

    def _is_joining(self, call: Call) -> bool:
        """Return whether a call becomes part of a transaction of the caller's.

        A store in memory, which tests use, is outside of every transaction: there the job is stored at once, as if the
        transaction had been committed.
        """
        if call.terms.connection is None:
            return False
        return not getattr(self._origin.store_to_join, "is_in_memory", False)

    def _require_importable(self, call: Call) -> None:
        """Refuse a call that no worker could run: its task is defined where no other process can import it from.

        A store in memory, and jobs that run inline, need no other process.
        """
        declaration = call.terms.declaration
        if declaration.is_importable or self.follower is not None or self._origin.settings.url in IN_MEMORY:
            return
        file = Path(file_of(declaration.function)).name
        where = f"in {file}" if file else "in code without a file (a prompt, a notebook, standard input, python -c)"
        message = (
            f"task {declaration.name} is defined {where}, which no worker can import; define it in a module such as "
            "shop.py, or give it a name that the worker's app knows: "
            f'@app.task(name="{declaration.function.__name__}")'
        )
        raise TaskNotImportable(message)

    def _bring_here(self, jobs: list[Job]) -> list[Receipt]:
        store, clock = self._origin.store, self._origin.clock
        if _is_immediate(store):
            try:
                known = store.enqueue_sync(jobs, clock.now())
                if known is not None:
                    return _receipts(jobs, known)
            except StoreError as error:
                if not error.is_passing:
                    raise
        return self._origin.portal.run(self._bring(jobs))

    async def _bring(self, jobs: list[Job]) -> list[Receipt]:
        store, clock = self._origin.store, self._origin.clock
        # The ids are made, so a repeat after a lost reply stores nothing twice.
        return _receipts(jobs, await patiently(lambda: store.enqueue(jobs, clock.now())))

    def _enqueue_in(self, call: Call) -> Receipt:
        store = self._joining()
        if isinstance(self._origin.store, Transactional):
            # Where there is an outbox, nobody should have to wait for the store.
            self._tune()
        job = self.job_of(call)
        (known,) = store.enqueue_in(call.terms.connection, [job], self._origin.clock.now())
        return self._receipt(job, known)

    async def _aenqueue_in(self, call: Call) -> Receipt:
        store, connection = self._joining(), call.terms.connection
        if isinstance(self._origin.store, Transactional):
            await self._atune()
        if not isinstance(store, AsyncTransactional) or not store.is_asynchronous(connection):
            return self._enqueue_in(call)
        job = self.job_of(call)
        (known,) = await store.aenqueue_in(connection, [job], self._origin.clock.now())
        return self._receipt(job, known)

    def _receipt(self, job: Job, known: str) -> Receipt:
        """Return the receipt of a job in a transaction; an outbox does not know which keys are taken."""
        if job.key and not isinstance(self._origin.store, Transactional):
            return Receipt(id=known, is_new=None)
        return Receipt(id=known, is_new=known == job.id)

    def _joining(self) -> Transactional:
        """Return the store or the outbox that joins a transaction of the caller's."""
        store = self._origin.store_to_join
        if isinstance(store, Transactional):
            return store
        outbox = self._origin.outbox
        if outbox is None:
            message = (
                "this store cannot join a transaction of yours; name an outbox in your database, as in "
                'Reprieve("redis://…", outbox="postgresql://…"), and run reprieve relay, or leave connection out'
            )
            raise ValidationError(message)
        return outbox

    def _tune(self) -> None:
        if self._origin.clock.is_stale:
            self._origin.portal.run(self._atune())

    async def _atune(self) -> None:
        """See to it that the clock is right, before a job is dated by it."""
        clock = self._origin.clock
        if clock.is_stale:
            await patiently(clock.tune)

    def _follow(self, *, is_news: bool) -> None:
        if self.follower is not None and is_news:
            self.follower.follow()

    async def _afollow(self, *, is_news: bool) -> None:
        if self.follower is not None and is_news:
            await self.follower.afollow()


class _UnderWay:
    """Jobs on their way to the store: at most one batch, so that whatever fails, what was stored before it is known."""

    def __init__(self, receipts: list[Receipt]) -> None:
        self._receipts = receipts
        self._batch: asyncio.Task[list[Receipt]] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.arrive()

    async def leave(self, batch: Coroutine[Any, Any, list[Receipt]]) -> None:
        """Send a batch off."""
        self._batch = asyncio.create_task(batch)
        for _ in range(HANDS):
            await asyncio.sleep(0)

    async def arrive(self) -> None:
        """Wait for the batch that is on its way, if any."""
        if self._batch is not None:
            batch, self._batch = self._batch, None
            self._receipts += await batch


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


def _is_immediate(store: Store) -> TypeGuard[Immediate]:
    # Python remembers what it has found out about a class, and not what about an object.
    return issubclass(type(store), Immediate)


def _receipts(jobs: list[Job], known: list[str]) -> list[Receipt]:
    return [Receipt(id=name, is_new=name == job.id) for name, job in zip(known, jobs, strict=True)]


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
