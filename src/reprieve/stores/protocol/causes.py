"""Causes: dead jobs, and the failures that jobs survived, counted by what they have in common."""

from typing import Final, Literal, Protocol, TypeAlias

from reprieve.core.record import Record

MAX_CAUSES_PER_PAGE: Final = 100
"""Groups that a page may have, and names that a request may have."""

MAX_COUNTED_CAUSES: Final = 10_000
"""Groups that are counted for the total of a page; if there are more, the total says only that."""

DEAD_HOURS: Final = 168
"""Hours for which deaths are counted by the hour, the current one included."""

LIVING_HOURS: Final = 24
"""Hours for which the failures of living jobs are counted, the current one included."""

HOUR_MS: Final = 3_600_000

CauseGrouping: TypeAlias = Literal["fingerprint", "code", "tenant", "task", "death"]
"""What the jobs of a group have in common. `death` is the kind of death, which living jobs do not have."""

CauseOrder: TypeAlias = Literal["count", "last"]


class CauseRequest(Record):
    """Which groups of dead jobs, or of failures that jobs survived, are to be read, and in which order."""

    by: CauseGrouping = "fingerprint"
    of: Literal["dead", "living"] = "dead"
    """`dead`: jobs that are dead now. `living`: failures of the last hours after which the job was to be retried."""
    tenant: str | None = None
    """Only the jobs of this tenant, by fingerprint."""
    fingerprint: str = ""
    """Only the jobs with this fingerprint, by tenant."""
    names: tuple[str, ...] | None = None
    """Only these groups, all of them on one page."""
    order: CauseOrder = "count"
    """The largest groups first, or those whose last job is the newest; of equal ones, the last name first."""
    hours: int = LIVING_HOURS
    """How many hours to return the counts of, the current one included."""
    cursor: str = ""
    limit: int = MAX_CAUSES_PER_PAGE


class CauseGroup(Record):
    """Dead jobs, or failures of living jobs, that have something in common."""

    name: str
    count: int
    first_at: int
    """When the first of these jobs died, or since when the failure is seen without a break of a day."""
    last_at: int
    sample_id: str
    """The job that died, or failed, last."""
    hours: tuple[tuple[int, int], ...] = ()
    """The begin of an hour and the deaths or failures in it, in order; hours without any are left out. Deaths count
    here for as long as the hours are kept, also if the job was retried or deleted since."""


class CausePage(Record):
    """Some groups, in the order that was asked for; an empty cursor means that no more can be read."""

    groups: tuple[CauseGroup, ...] = ()
    cursor: str = ""
    total: int = 0
    """How many groups there are, at least."""
    is_total_exact: bool = True
    is_ordered: bool = True
    """Whether no other group comes before these. In a store of several partitions, very many small groups are not all
    compared."""


class CauseStore(Protocol):
    """Reads the causes of failures."""

    async def causes(self, request: CauseRequest, now: int) -> CausePage:
        """Return a page of groups. Their counts are kept by every write that ends or revives a job, never by a scan.

        A job counts under the code and the fingerprint that it had when it died. The counts of failures that jobs
        survived fall by whole hours, when `prune` is called; before that they may order the groups, but are not
        returned.
        """
        ...
