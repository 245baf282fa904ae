"""The relay: delivers the jobs of an outbox to the store, each once, and then removes them from the outbox.

It keeps no state of its own: when it dies, another relay continues with what is in the outbox.
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
from reprieve.stores.outbox import Contents, Outbox, OutboxRow
from reprieve.stores.protocol import Store
from reprieve.worker.supervised_loop import LoopBackoff

log = structlog.get_logger("reprieve")

BATCH: Final = 250
"""Jobs that are delivered at once."""

POLL_SECONDS: Final = 1.0
"""Seconds after which the outbox is read again without a notification."""

UNREADABLE: Final = "unreadable: the record is not of this release; update the relay, or find out what wrote it"


class Relayed(Record, omit_defaults=False):
    """How many jobs a relay has delivered, and how many the store has refused."""

    relayed: int = 0
    refused: int = 0

    def __add__(self, other: "Relayed") -> "Relayed":
        """Add two counts."""
        return Relayed(relayed=self.relayed + other.relayed, refused=self.refused + other.refused)


class Relay:
    """Relays one outbox to one store."""

    def __init__(self, outbox: Outbox, store: Store, clock: Clock) -> None:
        """Take the outbox, the store and its clock."""
        if not isinstance(store, RelayTarget):
            message = "this store joins transactions itself and needs no outbox; there is nothing to relay"
            raise InvalidSetting(message)
        self._outbox = outbox
        self._clock = clock
        self._sink = store.outbox_sink()
        self._stop = asyncio.Event()
        self._fetching = LoopBackoff("fetching jobs out of the outbox")
        self._delivering = LoopBackoff("delivering jobs to the store")
        self._current = self._delivering
        """Which of the two is under way."""
        self.done = Relayed()
        """What was relayed so far."""

    def stop(self) -> None:
        """End after the batch that is under way."""
        self._stop.set()

    async def run(self) -> Relayed:
        """Relay until `stop` is called, however long either side is unreachable; return what was relayed."""
        log.info("relay started", pid=os.getpid())
        while not self._stop.is_set():
            try:
                count = await self._round()
            except StoreError as error:
                if not _may_pass(error):
                    # Not transient.
                    raise
                await self._unless_stopped(self._current.wait(error))
                continue
            self._fetching.succeed()
            self._delivering.succeed()
            if count < BATCH:
                await self._unless_stopped(self._listen())
        await self._end()
        log.info("relay stopped", relayed=self.done.relayed, refused=self.done.refused)
        return self.done

    async def drain(self, on_progress: Callable[[Relayed], None]) -> Relayed:
        """Relay what is in the outbox now, and return what was relayed; errors are raised at once."""
        while not self._stop.is_set():
            count = await self._round()
            on_progress(self.done)
            if count < BATCH:
                break
        await self._end()
        return self.done

    async def readmit(self) -> int:
        """Relay refused jobs again; return how many there are."""
        return await self._outbox.readmit()

    async def look(self) -> Contents:
        """Return what is in the outbox."""
        return await self._outbox.look()

    async def _round(self) -> int:
        """Deliver one batch; return how many jobs it had."""
        self._current = self._delivering
        await self._sink.prepare()
        self._current = self._fetching
        entries = await self._outbox.take(BATCH)
        if not entries:
            return 0
        delivery = _Delivery(self._deliver, entries)
        try:
            self._current = self._delivering
            await delivery.carry_out()
            self._current = self._fetching
            await self._outbox.settle(delivery.delivered, delivery.refused)
        except BaseException:
            await self._outbox.give_back()
            raise
        self._sink.note_removed([entry.job.id for entry in delivery.delivered if entry.job is not None])
        self.done += Relayed(relayed=len(delivery.delivered), refused=len(delivery.refused))
        for entry in entries:
            if entry.place in delivery.refused:
                job_id = "" if entry.job is None else entry.job.id
                log.error("job refused", jobId=job_id, place=entry.place, errorReason=delivery.refused[entry.place])
        if delivery.error is not None:
            self._current = self._delivering
            raise delivery.error
        return len(entries)

    async def _deliver(self, jobs: Sequence[Job]) -> None:
        await self._clock.tune()
        await self._sink.deliver(jobs, self._clock.now())

    async def _listen(self) -> None:
        try:
            await self._outbox.wait(POLL_SECONDS)
        except StoreError as error:
            await self._fetching.wait(error)

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for a coroutine, and cancel it when `stop` is called."""
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
            # Harmless: the store keeps a few bytes for each job for months.
            log.warning("store not told what has arrived", errorCode=error.code, errorReason=str(error))


class _Delivery:
    """One batch: delivered together if possible, and one by one if the store refuses one of its jobs."""

    def __init__(
        self, deliver: Callable[[Sequence[Job]], Coroutine[Any, Any, None]], entries: Sequence[OutboxRow]
    ) -> None:
        self._deliver = deliver
        self._readable = [(entry, entry.job) for entry in entries if entry.job is not None]
        self.delivered: list[OutboxRow] = []
        self.refused = {entry.place: UNREADABLE for entry in entries if entry.job is None}
        """Why the store refuses jobs for good, by their position in the outbox."""
        self.error: StoreError | None = None
        """The error of jobs that were not delivered, and are to be tried again."""

    async def carry_out(self) -> None:
        try:
            if self._readable:
                await self._deliver([job for _, job in self._readable])
        except (ValidationError, StoreLocked):
            await self._one_by_one()
        else:
            self.delivered = [entry for entry, _ in self._readable]

    async def _one_by_one(self) -> None:
        for entry, job in self._readable:
            try:
                await self._deliver([job])
            except ValidationError as error:
                self.refused[entry.place] = f"{error.code}: {error}"
            except StoreLocked as error:
                # Another transaction is taking its key at this moment; the other jobs need not wait for that.
                self.error = error
            except StoreError as error:
                self.error = error
                return
            else:
                self.delivered.append(entry)


def _may_pass(error: StoreError) -> bool:
    return error.is_passing or isinstance(error, StoreFull | StoreReadOnly)
