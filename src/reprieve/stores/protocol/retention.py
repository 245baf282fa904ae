"""Retention: how long what has ended is kept, and what a prune has deleted."""

from typing import Protocol

from msgspec.structs import astuple

from reprieve.core.duration import milliseconds
from reprieve.core.fairness.settings import DEFAULTS
from reprieve.core.job import Job
from reprieve.core.record import Record
from reprieve.core.series import MAX_KEPT_SECONDS, Step

NAMES_INTERVAL_SECONDS = 600.0
"""Seconds from one search for names without jobs to the next: a lane that is empty for a moment is deleted at most once
in this time."""

IDLE_SECONDS = float(DEFAULTS.activity_window_seconds)
"""Seconds after its last lease for which a tenant's virtual time matters, if it is ahead of that of its queue."""


class Retention(Record):
    """How long ended jobs and their records are kept, in seconds."""

    now: int
    succeeded: int = 1_000
    """How many succeeded jobs of a queue are kept at most."""
    succeeded_for: float = 86_400.0
    cancelled_for: float = 7 * 86_400.0
    events_for: float = 7 * 86_400.0
    """How long events are kept: more than 0."""
    events: int = 100_000
    """How many events a partition of a store in memory keeps at most, however recent: one at least. Only Redis counts
    them."""
    failures: int = 2_000
    """How many groups of failures are kept at most; those seen last stay."""
    failures_for: float = 30 * 86_400.0
    """How long after it was last seen a group of failures is kept, whether or not dead jobs belong to it."""
    audit_for: float = 400 * 86_400.0
    """How long entries of the audit log are kept; more than 0."""
    series_minutes_for: float = MAX_KEPT_SECONDS["minute"]
    """How long series are kept in minutes; this and the next two may be shorter than by default, and not longer."""
    series_ten_minutes_for: float = MAX_KEPT_SECONDS["ten_minutes"]
    series_hours_for: float = MAX_KEPT_SECONDS["hour"]
    archived: tuple[Job, ...] = ()
    """Dead jobs that were archived; each is deleted if its stored version is still the archived one."""

    def series_for(self) -> dict[Step, float]:
        """Return for how many seconds series are kept, by their steps."""
        return {
            "minute": self.series_minutes_for,
            "ten_minutes": self.series_ten_minutes_for,
            "hour": self.series_hours_for,
        }

    def series_before(self) -> dict[Step, int]:
        """Return before which instant a bucket of each step must begin to be deleted."""
        return {step: self.now - milliseconds(kept) for step, kept in self.series_for().items()}


class Pruned(Record):
    """How many records of each kind were deleted."""

    succeeded: int = 0
    cancelled: int = 0
    dead: int = 0
    events: int = 0
    keys: int = 0
    results: int = 0
    failures: int = 0
    audit: int = 0
    entries: int = 0
    """Entries that have expired."""
    series: int = 0
    """Lines of series."""
    causes: int = 0
    """Counts of causes by the hour."""
    names: int = 0
    """Lanes, tenants, limiters and queues without jobs."""
    has_more: bool = False
    """Whether names are left to check, or numbers to add to series, although this call may have deleted nothing."""

    @property
    def is_all(self) -> bool:
        """Whether nothing was deleted and nothing is left to check, so that nothing is left to delete."""
        return not any(astuple(self))


def names_interval(pruned: Pruned) -> int:
    """Return the milliseconds between two searches for names without jobs, given what the prune has deleted besides.

    As long as jobs are deleted, their lanes may be next: then the search is put off, for as long again.
    """
    return milliseconds(NAMES_INTERVAL_SECONDS * (1 if pruned.is_all else 2))


class RetentionStore(Protocol):
    """Deletes what need not be kept any more."""

    async def prune(self, retention: Retention) -> Pruned:
        """Delete what ended long enough ago, or a part of it; call again until the result `is_all`.

        It also adds what was counted since the last prune to the series, in the same write that forgets it.

        Dead jobs are deleted only when the retention names them as archived. At most every
        `NAMES_INTERVAL_SECONDS`, names without jobs are deleted as well: lanes, and tenants, limiters and queues that
        have no limit, weight or pause of their own and have been idle for `IDLE_SECONDS`. They begin anew with their
        next job, except that what the rate of a default has granted counts for its window.
        """
        ...
