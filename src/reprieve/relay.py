"""The relay: brings the jobs of an outbox to the store, each once, and removes them only when they have arrived.

It keeps nothing in mind that matters: whenever it dies, another one goes on from what lies in the outbox.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

import structlog

from reprieve.clock import Clock
from reprieve.core.job import Job
from reprieve.core.record import Record
from reprieve.errors import InvalidSetting, StoreError, StoreFull, StoreLocked, StoreReadOnly, ValidationError
from reprieve.stores.capabilities import RelayTarget
from reprieve.stores.outbox import Contents, Entry, Outbox
from reprieve.stores.protocol import Store
from reprieve.worker.supervised_loop import LoopBackoff

log = structlog.get_logger("reprieve")

BATCH: Final = 250
"""Jobs that are brought at once."""

LOOK_EVERY: Final = 1.0
"""Seconds after which the outbox is looked into, also when nobody rings."""

UNREADABLE: Final = "unreadable: the record is not one of this release; update the relay, or look at who wrote it"


class Relayed(Record, omit_defaults=False):
    """What a relay has done."""

    relayed: int = 0
    refused: int = 0

    def __add__(self, other: "Relayed") -> "Relayed":
        """Add what was done next."""
        return Relayed(relayed=self.relayed + other.relayed, refused=self.refused + other.refused)


class Relay:
    """Relays one outbox to one store."""

    def __init__(self, outbox: Outbox, store: Store, clock: Clock) -> None:
        """Take both ends."""
        if not isinstance(store, RelayTarget):
            message = (
                "this store joins transactions by itself, and nothing is left in an outbox; there is nothing to relay"
            )
            raise InvalidSetting(message)
        self._outbox = outbox
        self._clock = clock
        self._sink = store.outbox_sink()
        self._stop = asyncio.Event()
        self._fetching = LoopBackoff("fetching jobs out of the outbox")
        self._bringing = LoopBackoff("bringing jobs to the store")
        self._asked = self._bringing
        """Which of both is under way."""
        self.done = Relayed()
        """What was done so far."""

    def stop(self) -> None:
        """End after the batch that is under way."""
        self._stop.set()

    async def run(self) -> Relayed:
        """Relay until it is told to stop, however long either side is away; answer what was done."""
        log.info("relay started", pid=os.getpid())
        while not self._stop.is_set():
            try:
                count = await self._round()
            except StoreError as error:
                if not _may_pass(error):
                    # Nobody mends these while we wait.
                    raise
                await self._unless_stopped(self._asked.wait(error))
                continue
            self._fetching.succeed()
            self._bringing.succeed()
            if count < BATCH:
                await self._unless_stopped(self._listen())
        await self._end()
        log.info("relay stopped", relayed=self.done.relayed, refused=self.done.refused)
        return self.done

    async def drain(self, on_progress: Callable[[Relayed], None]) -> Relayed:
        """Relay what is there, and answer what was done; whatever goes wrong is raised."""
        while not self._stop.is_set():
            count = await self._round()
            on_progress(self.done)
            if count < BATCH:
                break
        await self._end()
        return self.done

    async def readmit(self) -> int:
        """Take up again what was refused; answer how many those are."""
        return await self._outbox.readmit()

    async def look(self) -> Contents:
        """Return what lies in the outbox."""
        return await self._outbox.look()

    async def _round(self) -> int:
        """Bring one batch; answer how many were taken."""
        self._asked = self._bringing
        await self._sink.prepare()
        self._asked = self._fetching
        entries = await self._outbox.take(BATCH)
        if not entries:
            return 0
        delivery = _Delivery(self._land, entries)
        try:
            self._asked = self._bringing
            await delivery.carry_out()
            self._asked = self._fetching
            await self._outbox.settle(delivery.landed, delivery.refused)
        except BaseException:
            await self._outbox.give_back()
            raise
        self._sink.note_removed([entry.job.id for entry in delivery.landed if entry.job is not None])
        self.done += Relayed(relayed=len(delivery.landed), refused=len(delivery.refused))
        for entry in entries:
            if entry.place in delivery.refused:
                job_id = "" if entry.job is None else entry.job.id
                log.error("job refused", jobId=job_id, place=entry.place, errorReason=delivery.refused[entry.place])
        if delivery.error is not None:
            self._asked = self._bringing
            raise delivery.error
        return len(entries)

    async def _land(self, jobs: Sequence[Job]) -> None:
        await self._clock.tune()
        await self._sink.deliver(jobs, self._clock.now())

    async def _listen(self) -> None:
        try:
            await self._outbox.wait(LOOK_EVERY)
        except StoreError as error:
            await self._fetching.wait(error)

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for something, but not once it is time to stop."""
        waiting = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in (waiting, stopping):
                one.cancel()
            await asyncio.gather(waiting, stopping, return_exceptions=True)

    async def _end(self) -> None:
        try:
            await self._sink.close()
        except StoreError as error:
            # It then remembers for months what it need not: a matter of a few bytes.
            log.warning("store not told what has arrived", errorCode=error.code, errorReason=str(error))


class _Delivery:
    """One batch on its way: together if that can be done, one by one if something is wrong with one of them."""

    def __init__(self, land: Callable[[Sequence[Job]], Coroutine[Any, Any, None]], entries: Sequence[Entry]) -> None:
        self._land = land
        self._readable = [(entry, entry.job) for entry in entries if entry.job is not None]
        self.landed: list[Entry] = []
        self.refused = {entry.place: UNREADABLE for entry in entries if entry.job is None}
        """Why the store will never have them, by their places."""
        self.error: StoreError | None = None
        """What kept some from outbox sink that are to be tried again."""

    async def carry_out(self) -> None:
        try:
            if self._readable:
                await self._land([job for _, job in self._readable])
        except (ValidationError, StoreLocked):
            await self._one_by_one()
        else:
            self.landed = [entry for entry, _ in self._readable]

    async def _one_by_one(self) -> None:
        for entry, job in self._readable:
            try:
                await self._land([job])
            except ValidationError as error:
                self.refused[entry.place] = f"{error.code}: {error}"
            except StoreLocked as error:
                # Somebody else is taking its key at this moment; the others need not wait for that.
                self.error = error
            except StoreError as error:
                self.error = error
                return
            else:
                self.landed.append(entry)


def _may_pass(error: StoreError) -> bool:
    return error.is_passing or isinstance(error, StoreFull | StoreReadOnly)
