"""Concurrent enqueues become one: while a call is under way others gather, and the next call takes them all.

Batches find their own size this way: one job when callers come one at a time, hundreds when they crowd.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias
from weakref import WeakKeyDictionary

from reprieve.core.job import Job
from reprieve.errors import ReprieveError, StoreClosed, StoreFull, StoreLocked, StoreReadOnly, StoreUnreachable

Send = Callable[[Sequence[Job], int], Awaitable[list[str]]]

Entry: TypeAlias = tuple[Sequence[Job], int, asyncio.Future[list[str]]]
"""What a caller wants enqueued, when, and where it waits for the answer."""

CROWD = 16
"""Callers that are worth two calls, where two can be under way."""

LARGEST = 5_000
"""Jobs of one call at the most."""

_FATAL = (StoreFull, StoreReadOnly, StoreUnreachable, StoreClosed)
"""What befalls every call alike."""


class Coalescer:
    """Gathers the enqueues of each event loop."""

    def __init__(self, send: Send, at_once: int = 1, *, keys_wait: bool = False) -> None:
        """Take what carries out a call, and how many may be under way where the store works on them side by side.

        Where a key can keep its caller waiting for somebody else's transaction, jobs with keys have calls of their own.
        """
        self._send = send
        self._at_once = at_once
        self._keys_wait = keys_wait
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[bool, _Gathering]] = WeakKeyDictionary()

    def enqueue(self, jobs: Sequence[Job], now: int) -> asyncio.Future[list[str]]:
        """Enqueue jobs, together with whatever others enqueue at this moment."""
        loop = asyncio.get_running_loop()
        gatherings = self._loops.get(loop)
        if gatherings is None:
            gatherings = self._loops[loop] = {}
        may_wait = self._keys_wait and any(job.key for job in jobs)
        gathering = gatherings.get(may_wait)
        if gathering is None:
            gathering = gatherings[may_wait] = _Gathering(self._send, self._at_once, may_wait=may_wait)
        return gathering.join(jobs, now)


class _Gathering:
    """The enqueues of one event loop that wait for their turn."""

    def __init__(self, send: Send, at_once: int, *, may_wait: bool) -> None:
        self._send = send
        self._at_once = at_once
        self._fatal = _FATAL if may_wait else (*_FATAL, StoreLocked)
        self._waiting: list[Entry] = []
        self._senders: set[asyncio.Task[None]] = set()
        self._busy = 0

    def join(self, jobs: Sequence[Job], now: int) -> asyncio.Future[list[str]]:
        """Return the future of the caller: whoever gives up cancels it, and takes no jobs out of a shared call."""
        future: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self._waiting.append((jobs, now, future))
        if len(self._senders) < self._at_once:
            self._senders.add(asyncio.create_task(self._send_all()))
        return future

    async def _send_all(self) -> None:
        self._busy += 1
        try:
            while self._waiting:
                batch = self._take()
                error = await self._attempt(batch)
                if error is None:
                    continue
                # A store that was locked, full, away or closed for all would be so again for each, one after the other.
                if len(batch) == 1 or isinstance(error, self._fatal):
                    _fail(batch, error)
                else:
                    await self._attempt_each(batch)
        finally:
            self._busy -= 1
            self._senders = {sender for sender in self._senders if sender is not asyncio.current_task()}

    def _take(self) -> list[Entry]:
        # A crowd that always came together would leave the other senders nothing to do.
        most = len(self._waiting)
        if self._busy < self._at_once and most > CROWD:
            most = -(-most // 2)
        count = 0
        for number, (jobs, _, _) in enumerate(self._waiting[:most]):
            count += len(jobs)
            if count > LARGEST and number:
                break
        else:
            number = most
        batch, self._waiting = self._waiting[:number], self._waiting[number:]
        return batch

    async def _attempt_each(self, batch: list[Entry]) -> None:
        """Send what something spoiled for all one by one, so that only the guilty fail, and those with the same key."""
        held: dict[tuple[str, str, str], ReprieveError] = {}
        for entry in batch:
            keys = [(job.task, job.tenant, job.key) for job in entry[0] if job.key]
            error = next((held[key] for key in keys if key in held), None) or await self._attempt([entry])
            if error is not None:
                _fail([entry], error)
            if isinstance(error, StoreLocked):
                held.update(dict.fromkeys(keys, error))

    async def _attempt(self, batch: list[Entry]) -> ReprieveError | None:
        """Send a batch in one call; answer what went wrong."""
        try:
            ids = await self._send([job for jobs, _, _ in batch for job in jobs], max(now for _, now, _ in batch))
        except ReprieveError as error:
            return error
        except BaseException as error:
            # Nobody may be left waiting, not even when the loop ends.
            _fail(batch, error if isinstance(error, Exception) else StoreClosed("the enqueue was interrupted"))
            raise
        start = 0
        for jobs, _, future in batch:
            end = start + len(jobs)
            if not future.done():
                future.set_result(ids[start:end])
            start = end
        return None


def _fail(batch: list[Entry], error: Exception) -> None:
    for _, _, future in batch:
        if not future.done():
            future.set_exception(error)
