"""A store that fails when it is told to: before a call is done, or after, when only the reply is lost."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

from reprieve.clock import Clock
from reprieve.core.change import Change
from reprieve.core.events import Event
from reprieve.core.job import Job
from reprieve.core.record import Record
from reprieve.errors import StoreError
from reprieve.stores.open import open_store
from reprieve.stores.protocol import (
    Annotation,
    ChangeResult,
    Claim,
    Claimed,
    Entry,
    Filter,
    Heartbeat,
    LimitState,
    LimitUpdate,
    Page,
    Pruned,
    Retention,
    Store,
    Subject,
    Tally,
)

T = TypeVar("T")

When: TypeAlias = Literal["before", "after"]

MEMORY = "sqlite://:memory:"


class Fault(Record):
    """One failure: of which operation, at its how-manieth call, and whether the call was done by then."""

    operation: str
    number: int
    when: When

    def __str__(self) -> str:
        """Name the point."""
        return f"{self.operation} {self.number}, {self.when} it was done"


Scenario: TypeAlias = Callable[[Store], Awaitable[object]]
"""Something that is done with a store."""


async def crash_points(scenario: Scenario, *, url: str = MEMORY) -> "AsyncIterator[FaultyStore]":
    """Return a fresh store for every call that a scenario makes, failing there: before the call is done, and after.

    The scenario is run once, on a store that does not fail, to see which calls there are. Each store is closed when the
    next one is asked for.
    """
    rehearsal = FaultyStore(open_store(url))
    try:
        await scenario(rehearsal)
    finally:
        await rehearsal.close()
    for operation, count in rehearsal.calls.items():
        for number in range(1, count + 1):
            for when in ("before", "after"):
                store = FaultyStore(open_store(url), Fault(operation=operation, number=number, when=when))
                try:
                    yield store
                finally:
                    await store.close()


class FaultyStore:
    """A store in front of another, which loses one call, or the reply to it."""

    def __init__(self, store: Store, fault: Fault | None = None) -> None:
        """Take the real store and what should go wrong; nothing, to count the calls."""
        self.fault = fault
        self.calls: Counter[str] = Counter()
        """How often each operation was called."""
        self.has_failed = False
        """Whether the fault has happened."""
        self.behind = store
        """The real store, which never fails."""

    @property
    def clock(self) -> Clock:
        """The clock of the real store."""
        return self.behind.clock

    def new_id(self, now: int, queue: str) -> str:
        """Make the id of a new job; this never fails, since it asks nobody."""
        return self.behind.new_id(now, queue)

    async def enqueue(self, jobs: Sequence[Job], now: int) -> list[str]:
        """Store new jobs."""
        return await self._do("enqueue", self.behind.enqueue(jobs, now))

    async def claim(self, claim: Claim) -> Claimed:
        """Apply changes, then choose and lease jobs."""
        return await self._do("claim", self.behind.claim(claim))

    async def apply(self, changes: Sequence[Change], now: int) -> list[ChangeResult]:
        """Carry out changes that no session makes."""
        return await self._do("apply", self.behind.apply(changes, now))

    async def heartbeat(self, heartbeat: Heartbeat) -> bool:
        """Keep a session alive, or open it."""
        return await self._do("heartbeat", self.behind.heartbeat(heartbeat))

    async def recover(self, now: int, limit: int = 100) -> list[Job]:
        """Declare the dead, and answer what they hold."""
        return await self._do("recover", self.behind.recover(now, limit))

    async def annotate(self, annotations: Sequence[Annotation]) -> list[bool]:
        """Request a cancel or note progress."""
        return await self._do("annotate", self.behind.annotate(annotations))

    async def progress(self, job_id: str) -> bytes | None:
        """Return the progress of a running job."""
        return await self._do("progress", self.behind.progress(job_id))

    async def update_limits(self, updates: Sequence[LimitUpdate], now: int) -> None:
        """Change gates, limits, weights and pauses."""
        await self._do("update_limits", self.behind.update_limits(updates, now))

    async def compare_and_set(
        self, key: str, version: int, value: bytes | None, updates: Sequence[LimitUpdate] = (), now: int = 0
    ) -> Entry | None:
        """Set or delete an entry if nobody was first, together with updates."""
        return await self._do("compare_and_set", self.behind.compare_and_set(key, version, value, updates, now))

    async def prune(self, retention: Retention) -> Pruned:
        """Forget what has ended long enough ago."""
        return await self._do("prune", self.behind.prune(retention))

    async def find(self, wanted: Filter, now: int, cursor: str = "", limit: int = 100) -> Page:
        """Return jobs as they are."""
        return await self._do("find", self.behind.find(wanted, now, cursor, limit))

    async def tally(self, by: Tally, wanted: Filter, now: int) -> dict[str, int]:
        """Count jobs by something."""
        return await self._do("tally", self.behind.tally(by, wanted, now))

    async def events(self, after: int = 0, limit: int = 1_000, job_id: str = "") -> list[tuple[int, Event]]:
        """Return events in the order in which they happened."""
        return await self._do("events", self.behind.events(after, limit, job_id))

    async def result(self, job_id: str) -> bytes | None:
        """Return what a succeeded job returned."""
        return await self._do("result", self.behind.result(job_id))

    async def entries(self, prefix: str = "") -> list[Entry]:
        """Return the entries whose key begins so."""
        return await self._do("entries", self.behind.entries(prefix))

    async def limit_states(self, subject: Subject, queue: str = "") -> list[LimitState]:
        """Return what is known of every queue, tenant, task, dependency or group."""
        return await self._do("limit_states", self.behind.limit_states(subject, queue))

    async def wait(self, queues: Sequence[str], at_most: float, session: str = "") -> bool:
        """Wait for the bell."""
        return await self._do("wait", self.behind.wait(queues, at_most, session))

    async def close(self) -> None:
        """Let go of the real store; this never fails."""
        await self.behind.close()

    async def _do(self, operation: str, work: Coroutine[Any, Any, T]) -> T:
        self.calls[operation] += 1
        fault = self.fault
        if fault is None or (fault.operation, fault.number) != (operation, self.calls[operation]):
            return await work
        self.has_failed = True
        if fault.when == "before":
            work.close()
        else:
            await work
        message = f"the store failed at {fault}, as it was told to"
        raise StoreError(message)
