"""Combines concurrent enqueues: while one call is under way, others are collected, and the next call sends them all.

Batches adapt to the load this way: one job when callers come one at a time, hundreds when many come at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias
from weakref import WeakKeyDictionary, ref

import msgspec

from reprieve.core.job import Job
from reprieve.errors import StoreClosed, StoreFull, StoreLocked, StoreReadOnly, StoreUnreachable
from reprieve.stores.calls import Calls

Send = Callable[[Sequence[Job], int], Awaitable[list[str]]]

SPLIT_CALLERS = 16
"""More waiting callers than this are sent in two calls, where two may be under way."""

MAX_JOBS = 5_000
"""Most jobs of one call, unless a single caller has more."""

_FATAL = (StoreFull, StoreReadOnly, StoreUnreachable, StoreClosed)
"""Errors that every call would get, so that sending the callers' jobs one by one is of no use."""


class Waiting(msgspec.Struct, frozen=True):
    """The jobs of one caller, when they were enqueued, and the future that the caller awaits."""

    jobs: Sequence[Job]
    now: int
    ids: asyncio.Future[list[str]]


class Coalescer:
    """Combines the enqueues of each event loop."""

    def __init__(
        self, send: Send, calls: Calls, max_concurrent_calls: int = 1, *, keys_may_block: bool = False
    ) -> None:
        """Take what sends a batch, what counts the calls of the store, and how many batches may be under way.

        If the key of a job can block on a transaction of another caller, jobs with keys get batches of their own.
        """
        self._send = send
        self._calls = calls
        self._max_concurrent_calls = max_concurrent_calls
        self._keys_may_block = keys_may_block
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopBatches] = WeakKeyDictionary()
        self._latest: tuple[ref[asyncio.AbstractEventLoop], _LoopBatches] | None = None

    def enqueue(self, jobs: Sequence[Job], now: int) -> asyncio.Future[list[str]]:
        """Enqueue jobs in one call with those of concurrent callers; return the future of their ids.

        A caller that cancels its future takes no jobs out of a batch.
        """
        loop = asyncio.get_running_loop()
        latest = self._latest
        # A process has one event loop, as a rule; looking it up would cost as much as the rest of this method.
        batches = latest[1] if latest is not None and latest[0]() is loop else self._batches_of(loop)
        may_block = self._keys_may_block and any(job.key for job in jobs)
        own = batches.get(may_block)
        if own is None:
            own = batches[may_block] = _Batches(
                self._send, self._calls, self._max_concurrent_calls, may_block=may_block
            )
        return own.add(Waiting(jobs, now, loop.create_future()))

    def _batches_of(self, loop: asyncio.AbstractEventLoop) -> "_LoopBatches":
        batches = self._loops.setdefault(loop, {})
        self._latest = ref(loop), batches
        return batches


class _Batches:
    """The enqueues of one event loop that wait to be sent."""

    def __init__(self, send: Send, calls: Calls, max_concurrent_calls: int, *, may_block: bool) -> None:
        self._send = send
        self._calls = calls
        self._max_concurrent_calls = max_concurrent_calls
        self._fatal = _FATAL if may_block else (*_FATAL, StoreLocked)
        self._waiting: list[Waiting] = []
        self._senders: set[asyncio.Task[None]] = set()
        self._busy = 0

    def add(self, waiting: Waiting) -> asyncio.Future[list[str]]:
        if len(self._senders) < self._max_concurrent_calls:
            # One call of the store until nothing waits: closing it lets every batch be sent.
            self._calls.begin()
            sender = asyncio.create_task(self._send_all())
            sender.add_done_callback(self._end_call)
            self._senders.add(sender)
        self._waiting.append(waiting)
        return waiting.ids

    async def _send_all(self) -> None:
        self._busy += 1
        try:
            while self._waiting:
                batch = self._take()
                error = await self._attempt(batch)
                if error is None:
                    continue
                if len(batch) == 1 or isinstance(error, self._fatal):
                    _fail(batch, error)
                else:
                    await self._attempt_each(batch)
        finally:
            self._busy -= 1
            # At once, and not when the task is done: a caller in between needs a new sender.
            self._senders = {sender for sender in self._senders if sender is not asyncio.current_task()}

    def _end_call(self, sender: asyncio.Task[None]) -> None:
        # A task that is cancelled before it starts runs none of its code.
        self._calls.end()
        self._senders.discard(sender)
        if not self._senders:
            # The sender was cancelled, as when the event loop ends: no other would send what waits.
            waiting, self._waiting = self._waiting, []
            _fail(waiting, _interrupted())

    def _take(self) -> list[Waiting]:
        callers = len(self._waiting)
        if self._busy < self._max_concurrent_calls and callers > SPLIT_CALLERS:
            # One batch of all callers would leave the other senders nothing to do.
            callers = -(-callers // 2)
        jobs = 0
        for number, waiting in enumerate(self._waiting[:callers]):
            jobs += len(waiting.jobs)
            if jobs > MAX_JOBS and number:
                callers = number
                break
        batch, self._waiting = self._waiting[:callers], self._waiting[callers:]
        return batch

    async def _attempt_each(self, batch: list[Waiting]) -> None:
        """Send the jobs of each caller alone, so that only the offending ones fail, and others with a locked key."""
        locked: dict[tuple[str, str, str], Exception] = {}
        for waiting in batch:
            keys = [(job.task, job.tenant, job.key) for job in waiting.jobs if job.key]
            error = next((locked[key] for key in keys if key in locked), None) or await self._attempt([waiting])
            if error is not None:
                _fail([waiting], error)
            if isinstance(error, StoreLocked):
                locked.update(dict.fromkeys(keys, error))

    async def _attempt(self, batch: list[Waiting]) -> Exception | None:
        """Send a batch in one call; return the error, if any: also one that no store should raise."""
        try:
            ids = await self._send([job for waiting in batch for job in waiting.jobs], max(one.now for one in batch))
        except Exception as error:  # noqa: BLE001 - the callers get it
            return error
        except BaseException:
            # Every caller must get an error, also when the event loop ends.
            _fail(batch, _interrupted())
            raise
        start = 0
        for waiting in batch:
            end = start + len(waiting.jobs)
            if not waiting.ids.done():
                waiting.ids.set_result(ids[start:end])
            start = end
        return None


_LoopBatches: TypeAlias = dict[bool, _Batches]
"""The batches of an event loop, by whether their jobs may block."""


def _interrupted() -> StoreClosed:
    return StoreClosed("the enqueue was interrupted")


def _fail(batch: list[Waiting], error: Exception) -> None:
    for waiting in batch:
        if not waiting.ids.done():
            waiting.ids.set_exception(error)
