"""Series: how often what happened, in steps of time."""

from typing import Protocol

from reprieve.core.record import Record
from reprieve.core.series import Measure, SeriesPoint, SeriesSubject, Step

MAX_SERIES_NAMES = 20
"""Names that one call reads."""

MAX_SERIES_BUCKETS = 1_500
"""Buckets of time that one call reads: a day of minutes, or ten days of ten minutes."""

MAX_SERIES_POINTS = 6_000
"""Buckets times names that one call reads."""

MAX_NAME_BUCKETS = 24
"""Buckets of time that `series_names` looks at: minutes, ten minutes, or the last hours."""


class SeriesRequest(Record):
    """Which series to read: of which names, from when to when, and in which steps."""

    subject: SeriesSubject
    names: tuple[str, ...] = ()
    """At most `MAX_SERIES_NAMES`; empty: those with the most jobs. The only name of the subject `all` is empty."""
    since_at: int
    """Reads the buckets that this instant and the last one before `until_at` are in, and all between."""
    until_at: int
    step: Step = "minute"
    """Minutes are kept for a day, ten minutes for 14 days, hours for 400 days, or shorter: see `Retention`."""
    measures: tuple[Measure, ...] = ()
    """Empty: all of them."""


class Series(Record):
    """What happened to the jobs of one name. Buckets in which nothing happened have no point."""

    name: str
    points: tuple[SeriesPoint, ...] = ()


class SeriesName(Record):
    """A name that has a line, and how much happened: enqueues, starts, and all that followed."""

    name: str
    events: int


class SeriesStore(Protocol):
    """Reads series. `prune` adds to them what was counted since the last prune."""

    async def series(self, request: SeriesRequest, now: int) -> list[Series]:
        """Return the series of names, in the order of the names.

        In each bucket of time 50 tenants, and 200 queues, tasks and dependencies, have lines of their own; the numbers
        of all others are those of the name `core.series.OTHERS`.
        """
        ...

    async def series_names(
        self, subject: SeriesSubject, since_at: int, until_at: int, now: int, limit: int = 50
    ) -> list[SeriesName]:
        """Return names that have lines, those with the most jobs first. Of a long time the last 24 hours count."""
        ...
