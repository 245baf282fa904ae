"""The worker context: what a worker needs of an app."""

from typing import Protocol

from reprieve.clock import Clock
from reprieve.config import Settings
from reprieve.registry import Registry
from reprieve.stores.protocol import Store
from reprieve.worker.middleware import Middleware


class WorkerContext(Protocol):
    """The settings, tasks, middleware, clock and store of an app."""

    settings: Settings
    registry: Registry
    middleware: list[Middleware]

    @property
    def clock(self) -> Clock:
        """The clock of the app: its own, or the store's."""
        ...

    @property
    def store(self) -> Store:
        """The store; opened at the first use."""
        ...
