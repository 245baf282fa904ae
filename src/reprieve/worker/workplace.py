"""A workplace: all that a worker needs of an app."""

from typing import Protocol

from reprieve.clock import Clock
from reprieve.config import Settings
from reprieve.registry import Registry
from reprieve.stores.protocol import Store
from reprieve.worker.middleware import Middleware


class Workplace(Protocol):
    """What a worker works with: an app."""

    settings: Settings
    registry: Registry
    middleware: list[Middleware]

    @property
    def clock(self) -> Clock:
        """The clock that was handed in, or that of the store."""
        ...

    @property
    def store(self) -> Store:
        """The store, opened when it is first needed."""
        ...
