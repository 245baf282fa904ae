"""A store that fails when it is told to: before a call is done, or after, when only the reply is lost."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from reprieve.core.record import Record
from reprieve.errors import StoreError
from reprieve.stores.capabilities import FaultPoint
from reprieve.stores.forwarding import ForwardingStore
from reprieve.stores.open import open_store
from reprieve.stores.protocol import Store

MEMORY = "sqlite://:memory:"


class Fault(Record):
    """One failure: of which operation, at which of its calls, and before or after the call is carried out."""

    operation: str
    number: int
    when: FaultPoint

    def __str__(self) -> str:
        """Name the point."""
        return f"{self.operation} {self.number}, {self.when} it was done"


Scenario: TypeAlias = Callable[[Store], Awaitable[object]]
"""What a test does with a store."""


async def crash_points(scenario: Scenario, *, url: str = MEMORY) -> "AsyncIterator[FaultyStore]":
    """Return a fresh store for every call that a scenario makes, failing there: before the call is done, and after.

    The scenario first runs once on a store that does not fail, to count its calls. Each store is closed before the
    next one is opened.
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


class FaultyStore(ForwardingStore):
    """A store in front of another, which loses one call, or the reply to it."""

    def __init__(self, store: Store, fault: Fault | None = None) -> None:
        """Take the real store and the fault; None only counts the calls."""
        super().__init__(store)
        self.fault = fault
        self.calls: Counter[str] = Counter()
        """How often each operation was called."""
        self.has_failed = False
        """Whether the fault has happened."""

    @property
    def behind(self) -> Store:
        """The real store, which never fails."""
        return self.inner

    @contextmanager
    def _call(self, operation: str) -> Iterator[None]:
        self.calls[operation] += 1
        fault = self.fault
        is_due = fault is not None and (fault.operation, fault.number) == (operation, self.calls[operation])
        self.has_failed = self.has_failed or is_due
        if is_due and fault is not None and fault.when == "before":
            raise _error(fault)
        yield
        if is_due and fault is not None:
            raise _error(fault)


def _error(fault: Fault) -> StoreError:
    return StoreError(f"the store failed at {fault}, as it was told to")
