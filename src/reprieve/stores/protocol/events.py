"""Events: what happened, in the order in which it happened."""

from typing import Protocol

from reprieve.core.events import Event


class EventStore(Protocol):
    """Reads events."""

    async def events(self, after: int = 0, limit: int = 1_000, job_id: str = "") -> list[tuple[int, Event]]:
        """Return events in the order in which they happened, each with its position in the stream."""
        ...
