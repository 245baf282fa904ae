"""Events: what happened, in the order in which it happened."""

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from reprieve.core.events import Event
from reprieve.core.notice import Notice
from reprieve.core.record import Record

MAX_EVENTS_PER_PAGE = 10_000
"""Events that one page has at most."""

MAX_EXAMINED_EVENTS = 1_000
"""Events that one call looks at to find those that a query names."""


Told: TypeAlias = Event | Notice
"""What the stream has: events of jobs, and notices of what happened to something else."""


class EventQuery(Record):
    """Which events to read, in which order; a field that is None or empty matches every event."""

    after: int = 0
    """Only events after this position in the stream."""
    before: int | None = None
    """Only events before this position."""
    newest_first: bool = False
    limit: int = 1_000
    job_id: str = ""
    queue: str = ""
    tenant: str | None = None
    task: str = ""
    names: frozenset[str] = frozenset()
    """The public names of events and notices, such as `JobDied` and `GateHeld`."""
    only: Literal["all", "jobs", "notices"] = "all"

    @property
    def is_selective(self) -> bool:
        """Whether it names events by more than their position and job, so that some may have to be passed over."""
        return bool(self.queue or self.tenant is not None or self.task or self.names)


class EventPage(Record):
    """Some of the events and notices of a query, each with its position, in the order that was asked for."""

    events: tuple[tuple[int, Told], ...]
    position: int
    """How far the page goes: the next one is read after this position, or before it if the newest come first."""
    has_more: bool
    """Whether there may be more events now. A page may be short or empty and still have more."""
    newest: int
    """The position of the newest event. All that is told from now on has a larger one; 0: nothing was told yet."""
    pruned_to: int = 0
    """Up to which position events may have been deleted; 0: none was."""
    missed: bool = False
    """Whether events after the position `after` may have been deleted before they were read. False where no reader goes
    on from a position: for the events of one job, and backwards without `after`."""


class EventStore(Protocol):
    """Reads events, and writes notices."""

    async def events(self, after: int = 0, limit: int = 1_000, job_id: str = "") -> list[tuple[int, Event]]:
        """Return the events of jobs in the order in which they happened, each with its position in the stream.

        This is the plain form of `read_events`, for callers that read all of them from the oldest on. An empty list
        means that there are no more.
        """
        ...

    async def read_events(self, query: EventQuery) -> EventPage:
        """Return a page of events, which says how far it goes.

        It looks at no more than `MAX_EXAMINED_EVENTS` events that the query does not match. An event that is stored
        later has a larger position than every event that was returned before. A position after the newest event raises
        `InvalidCursor`, unless the events of one job are read: it is that of another store, or of one that was
        restored.
        """
        ...

    async def tell(self, notices: Sequence[Notice]) -> None:
        """Add notices to the stream, for what no other write of the store tells.

        What opens, ends or expires a session tells it itself. A call that is repeated after a lost reply may tell its
        notices twice.
        """
        ...
