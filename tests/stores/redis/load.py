"""Load on a store: producers that enqueue one job after the other, and workers that run them."""

import asyncio
from collections import Counter

from reprieve import clock
from reprieve.core import change
from reprieve.core.job import Job
from reprieve.core.move import Succeed
from reprieve.errors import StoreError
from reprieve.stores.checked import checked
from reprieve.stores.protocol import Claim, Filter, Heartbeat, Store


class Load:
    """What was acknowledged, and what ran."""

    def __init__(self, store: Store, queue: str = "default") -> None:
        # As callers use it: concurrent enqueues are one call, of which the client leaves no connection behind.
        self._store = checked(store)
        self._queue = queue
        self.acknowledged: dict[str, float] = {}
        """When each job was."""
        self.ran: dict[str, float] = {}
        """When each job was first in the hands of a worker."""
        self.refused = 0
        self.runs: Counter[str] = Counter()
        self.settled: Counter[str] = Counter()
        self._is_over = False
        """Whether no new enqueue begins."""
        self._is_all = False
        """Whether everything was acknowledged that will be."""
        self._progress = asyncio.Event()

    async def produce(self, name: int) -> None:
        """Enqueue one job after the other, each until it is acknowledged."""
        while not self._is_over:
            now = clock.now()
            job = Job(
                id=self._store.new_id(now, self._queue),
                task="send",
                queue=self._queue,
                tenant=f"tenant-{name}",
                created_at=now,
                due_at=now,
                max_attempts=10,
            )
            while True:
                try:
                    await self._store.enqueue([job], clock.now())
                except StoreError:
                    self.refused += 1
                else:
                    break
            self.acknowledged[job.id] = clock.ticks()
            await asyncio.sleep(0)

    async def work(self, session: str) -> None:
        """Run jobs until nothing is left, and repeat every call that fails under its number."""
        store, number = self._store, 0
        await store.heartbeat(Heartbeat(session=session, now=clock.now(), lease=3_600, slots=50, is_new=True))
        hand: list[Job] = []
        while hand or not (self._is_all and await self._is_empty()):
            number += 1
            changes = tuple(change.settle(job, Succeed(), clock.now()) for job in hand)
            call = Claim(
                session=session, number=number, now=clock.now(), queues=(self._queue,), limit=20, changes=changes
            )
            while True:
                try:
                    claimed = await store.claim(call)
                except StoreError:
                    await asyncio.sleep(0.05)
                else:
                    break
            self.settled.update(
                job.id for job, answer in zip(hand, claimed.results, strict=True) if answer == "applied"
            )
            self._progress.set()
            hand = list(claimed.jobs)
            self.runs.update(job.id for job in hand)
            for job in hand:
                self.ran.setdefault(job.id, clock.ticks())
            if not hand:
                await store.wait((self._queue,), 0.05, session)

    async def reach(self, count: int) -> None:
        """Wait until so many jobs are done."""
        while len(self.settled) < count:
            self._progress.clear()
            await self._progress.wait()

    async def run(self, story: asyncio.Future[None] | asyncio.Task[None], producers: int = 4, workers: int = 2) -> None:
        """Keep up the load during a story, and then until everything is done; no call may fail before."""
        async with asyncio.TaskGroup() as group:
            working = [group.create_task(self.work(f"worker-{number}")) for number in range(workers)]
            producing = [group.create_task(self.produce(number)) for number in range(producers)]
            await story
            self._is_over = True
            await asyncio.wait(producing)
            self._is_all = True
            group.create_task(self._end_in_time(working))

    async def _end_in_time(self, working: list[asyncio.Task[None]]) -> None:
        async with asyncio.timeout(30):
            await asyncio.wait(working)

    async def _is_empty(self) -> bool:
        """Whether nothing waits or runs, except what was lost."""
        unsettled = Filter(statuses=frozenset({"ready", "running"}))
        return not (await self._store.tally("status", unsettled, clock.now())).counts
