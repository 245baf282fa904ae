"""A store: all parts of the protocol together."""

from collections.abc import Sequence
from typing import Protocol

from reprieve.clock import Clock
from reprieve.stores.protocol.audit import AuditStore
from reprieve.stores.protocol.causes import CauseStore
from reprieve.stores.protocol.entries import EntryStore
from reprieve.stores.protocol.events import EventStore
from reprieve.stores.protocol.failures import FailureStore
from reprieve.stores.protocol.finding import SearchStore
from reprieve.stores.protocol.jobs import JobStore
from reprieve.stores.protocol.limits import LimitStore
from reprieve.stores.protocol.retention import RetentionStore
from reprieve.stores.protocol.series import SeriesStore
from reprieve.stores.protocol.sessions import SessionStore


class Store(
    JobStore,
    SessionStore,
    LimitStore,
    EntryStore,
    SearchStore,
    EventStore,
    FailureStore,
    AuditStore,
    SeriesStore,
    CauseStore,
    RetentionStore,
    Protocol,
):
    """A store, as `open_store` opens it: arguments are checked, and a closed store raises `StoreClosed`.

    A store raises `StoreError`s. A write that raised one may or may not be stored, and can be repeated. What each
    store must do itself, and what `checked` adds to it, is in `docs/extend/stores.md`.
    """

    @property
    def clock(self) -> Clock:
        """The clock that all processes of this store share: `now` should be its time."""
        ...

    def new_id(self, now: int, queue: str, beside: str | None = None) -> str:
        """Make the id of a new job, without asking a server. The id names the partition of the job.

        `beside` is the key of an entry whose partition the job is to be in: see `EntryWrite.jobs`.
        """
        ...

    async def wait(self, queues: Sequence[str], at_most: float, session: str = "") -> bool:
        """Wait at most so many seconds for a notification; return whether one came.

        A notification is a hint that a job may be claimable. A session is also notified of what happened since its
        last claim, any other caller only of what happens from now on. Closing the store ends every wait.
        """
        ...

    async def close(self) -> None:
        """Finish the calls under way, then release files, threads and connections."""
        ...
