"""The sessions of a supervisor's children: opened before a child starts, kept alive, and ended when it is gone."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Collection

import structlog
from msgspec.structs import replace

from reprieve.clock import Clock, ticks
from reprieve.errors import ForeignStore, NewerSchema, StoreCorrupt, StoreError, StoreRefused, UnsafeStore
from reprieve.stores.protocol import Heartbeat, Store
from reprieve.version import __version__
from reprieve.worker.child_process import ChildProcess
from reprieve.worker.configuration import WorkerConfiguration
from reprieve.worker.prefetch import is_news
from reprieve.worker.recovery import Recovery
from reprieve.worker.supervised_loop import LoopBackoff, Outage
from reprieve.worker.worker_context import WorkerContext

log = structlog.get_logger("reprieve")

KILL_AFTER_SECONDS = 5.0
"""Seconds that a child has, after the grace, to settle what it holds before it is killed."""

WATCH_PREFETCH_SECONDS = 0.1
"""Seconds between two looks at how many jobs each child fetches ahead."""

MIN_NEWS_SECONDS = 0.5
"""Seconds after a heartbeat before another may be sent early, because a child fetches many more or fewer jobs ahead."""

_PERMANENT = (UnsafeStore, ForeignStore, NewerSchema, StoreCorrupt, StoreRefused)
"""Errors of a store that only a person can correct: a worker does not wait for them to pass."""


async def open_store(context: WorkerContext, outage: Outage) -> None:
    """Open the store of an app, and wait while it cannot be opened: a file may be read-only, or locked, for a while.

    Raises what the store says if waiting cannot help.
    """
    backoff = LoopBackoff("opening the store", outage)
    while True:
        try:
            await asyncio.to_thread(lambda: context.store)
        except _PERMANENT:
            raise
        except StoreError as error:
            await backoff.wait(error)
        else:
            backoff.succeed()
            return


class Sessions:
    """Sends the heartbeats of all children, and repeats what the store cannot do now."""

    def __init__(self, store: Store, clock: Clock, configuration: WorkerConfiguration, outage: Outage) -> None:
        """Take the store, and how long a session lives without a heartbeat."""
        self._store = store
        self._clock = clock
        self._configuration = configuration
        self._outage = outage
        self.give_up_at: float | None = None
        """When, by `ticks`, calls are not repeated any more; None while the worker runs."""

    async def open(self, session: str) -> bool:
        """Open a session; return False if the worker must end first."""
        return await self.insist(lambda: self._send(self._opening(session)), "opening a session")

    async def close(self, session: str) -> None:
        """End a session."""
        await self._send(self._heartbeat(session, lease=0.0))

    async def keep_alive(self, children: Collection[ChildProcess], recovery: Recovery) -> AsyncIterator[None]:
        """Send heartbeats for children, until cancelled. A child whose session was declared dead is ended."""
        while True:
            for child in list(children):
                # Its in-flight table is closed when it is not among the children any more.
                if child not in children or not self._is_due(child):
                    continue
                try:
                    is_alive = await self._beat(child)
                except StoreError:
                    recovery.unsettle()
                    raise
                if not is_alive and child in children:
                    log.warning("session declared dead", session=child.session)
                    child.stop_now()
                    asyncio.get_running_loop().call_later(KILL_AFTER_SECONDS, child.kill)
                yield
            await asyncio.sleep(WATCH_PREFETCH_SECONDS)

    def _is_due(self, child: ChildProcess) -> bool:
        """Whether it is time for a heartbeat, or the child fetches many more or fewer jobs ahead than the last said."""
        passed = ticks() - child.heartbeat_at
        interval = self._configuration.heartbeat
        if passed >= interval:
            return True
        is_news_due = passed >= min(interval, MIN_NEWS_SECONDS)
        return is_news_due and is_news(child.in_flight.prefetch(), child.announced_prefetch, self._configuration.slots)

    async def _beat(self, child: ChildProcess) -> bool:
        """Send the heartbeat of a child; return whether its session is alive."""
        began, prefetch = ticks(), child.in_flight.prefetch()
        heartbeat = self._heartbeat(child.session)
        is_alive = await self._send(replace(heartbeat, prefetch=prefetch, running=len(child.attempts())))
        child.heartbeat_at, child.announced_prefetch = began, prefetch
        return is_alive

    async def reach_store(self, session: str, stop: asyncio.Event) -> bool:
        """Wait until the store can be used; return False if `stop` is set first. The session must not exist.

        Raises what the store says if waiting cannot help, as for a wrong password.
        """
        backoff = LoopBackoff("reaching the store", self._outage)
        while not stop.is_set():
            try:
                # To end a session that does not exist stores nothing, and needs every permission that a worker needs.
                await self.close(session)
            except _PERMANENT:
                raise
            except StoreError as error:
                stopping = asyncio.create_task(stop.wait())
                waiting = asyncio.create_task(backoff.wait(error))
                await asyncio.wait({stopping, waiting}, return_when=asyncio.FIRST_COMPLETED)
                stopping.cancel()
                waiting.cancel()
            else:
                backoff.succeed()
                return True
        return False

    async def insist(self, call: Callable[[], Awaitable[object]], what: str, at_most: float | None = None) -> bool:
        """Repeat a call until it succeeds; return False if `give_up_at` comes first, or `at_most` seconds pass."""
        backoff = LoopBackoff(what, self._outage)
        try:
            async with asyncio.timeout(at_most):
                return await self._insist(call, backoff)
        except TimeoutError:
            backoff.reset()
            return False

    async def _insist(self, call: Callable[[], Awaitable[object]], backoff: LoopBackoff) -> bool:
        while True:
            try:
                await call()
            except StoreError as error:
                if self.give_up_at is not None and ticks() > self.give_up_at:
                    # Other workers take over what is left, when the lease is over.
                    backoff.reset()
                    return False
                await backoff.wait(error)
            else:
                backoff.succeed()
                return True

    def _opening(self, session: str) -> Heartbeat:
        return replace(
            self._heartbeat(session),
            is_new=True,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            tasks=self._configuration.tasks,
        )

    def _heartbeat(self, session: str, lease: float | None = None) -> Heartbeat:
        wanted = self._configuration
        lease = wanted.lease if lease is None else lease
        return Heartbeat(session=session, now=0, lease=lease, slots=wanted.slots, queues=wanted.queues)

    async def _send(self, heartbeat: Heartbeat) -> bool:
        await self._clock.tune()
        return await self._store.heartbeat(replace(heartbeat, now=self._clock.now()))
