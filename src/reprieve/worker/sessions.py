"""The sessions of a supervisor's children: opened before a child starts, kept alive, and ended when it is gone."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection

import structlog

from reprieve.clock import Clock, ticks
from reprieve.errors import ForeignStore, NewerSchema, StoreCorrupt, StoreError, StoreRefused, UnsafeStore
from reprieve.stores.protocol import Heartbeat, Store
from reprieve.worker.child_process import ChildProcess
from reprieve.worker.configuration import WorkerConfiguration
from reprieve.worker.recovery import Recovery
from reprieve.worker.supervised_loop import LoopBackoff, Outage
from reprieve.worker.worker_context import WorkerContext

log = structlog.get_logger("reprieve")

KILL_AFTER_SECONDS = 5.0
"""Seconds that a child has, after the grace, to settle what it holds before it is killed."""

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
        return await self.insist(lambda: self._send(session, is_new=True), "opening a session")

    async def close(self, session: str) -> None:
        """End a session."""
        await self._send(session, lease=0)

    async def keep_alive(self, children: Collection[ChildProcess], recovery: Recovery) -> AsyncIterator[None]:
        """Send heartbeats for children, until cancelled. A child whose session was declared dead is ended."""
        while True:
            began = ticks()
            for child in list(children):
                try:
                    is_alive = await self._send(child.session)
                except StoreError:
                    recovery.unsettle()
                    raise
                if not is_alive and child in children:
                    log.warning("session declared dead", session=child.session)
                    child.stop_now()
                    asyncio.get_running_loop().call_later(KILL_AFTER_SECONDS, child.kill)
                yield
            await asyncio.sleep(max(0.0, began + self._configuration.heartbeat - ticks()))

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

    async def _send(self, session: str, *, is_new: bool = False, lease: float | None = None) -> bool:
        await self._clock.tune()
        heartbeat = Heartbeat(
            session=session,
            now=self._clock.now(),
            lease=self._configuration.lease if lease is None else lease,
            slots=self._configuration.slots,
            is_new=is_new,
        )
        return await self._store.heartbeat(heartbeat)
