"""The driver: calls a store from synchronous code, and may lose a reply or a write."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

from reprieve.errors import StoreError
from reprieve.stores.capabilities import FaultPoint, Faulty
from reprieve.stores.protocol import Store

T = TypeVar("T")
OpenStore: TypeAlias = Callable[[], Awaitable[Store]]


class Driver:
    """One open store on an event loop of its own."""

    def __init__(self, open_store: OpenStore) -> None:
        """Open the store."""
        self._loop = asyncio.new_event_loop()
        try:
            self.store = self._loop.run_until_complete(_opened(open_store))
        except BaseException:
            self._loop.close()
            raise
        self.fault: FaultPoint | None = None
        """How the next write fails."""

    @property
    def can_fail(self) -> bool:
        """Whether the store can be told to fail."""
        return isinstance(self.store, Faulty)

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Make one call."""
        return self._loop.run_until_complete(call)

    def write(self, call: Callable[[], Coroutine[Any, Any, T]]) -> tuple[T, bool]:
        """Make a call that writes; return also whether it repeats a call whose reply was lost."""
        fault, self.fault = self.fault, None
        if fault is not None and isinstance(self.store, Faulty):
            self.store.inject(fault)
            try:
                result = self.run(call())
            except StoreError:
                pass
            else:
                message = f"a write that was to fail {fault} its commit returned {result!r}"
                raise AssertionError(message)
        return self.run(call()), fault == "after"

    def close(self) -> None:
        """Close the store and the loop."""
        try:
            self.run(self.store.close())
        finally:
            self._loop.close()


async def _opened(open_store: OpenStore) -> Store:
    return await open_store()
