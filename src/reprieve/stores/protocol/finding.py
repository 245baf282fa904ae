"""Finding: which jobs there are, and how many."""

from typing import Literal, Protocol, TypeAlias

from reprieve.core.job import Death, Job
from reprieve.core.record import Record
from reprieve.core.status import Status


class Filter(Record):
    """Which jobs to find; a field that is None or empty matches every job."""

    ids: tuple[str, ...] | None = None
    id_parts: tuple[str, ...] = ()
    """Lower-case hex digits without dashes: matches ids that begin or end with any of them."""
    queue: str = ""
    tenant: str | None = None
    task: str = ""
    dependency: str | None = None
    key: str = ""
    statuses: frozenset[Status] = frozenset()
    death: Death | None = None
    code: str = ""
    fingerprint: str = ""
    session: str = ""
    finished_since: int | None = None
    """Only jobs that ended at this instant or later; earlier succeeded jobs are not read."""
    newest_first: bool = False
    """Return the jobs that were enqueued or ended last first, where the store keeps that order."""
    stuck_after: float | None = None
    """Seconds after which a running job counts as stuck; None: the default, or what `open_store` was given."""


class Page(Record):
    """Some of the jobs that a filter matches, in the store's order; an empty cursor means that there are no more."""

    jobs: tuple[Job, ...]
    statuses: tuple[Status, ...]
    """The status of each job, which depends on the gates that are held."""
    cursor: str = ""


Tally: TypeAlias = Literal["status", "queue", "tenant", "task", "dependency", "death", "code", "fingerprint"]


class SearchStore(Protocol):
    """Finds and counts jobs."""

    async def find(self, wanted: Filter, now: int, cursor: str = "", limit: int = 100) -> Page:
        """Return a page of jobs. A page may be short or empty and still have a cursor."""
        ...

    async def tally(self, by: Tally, wanted: Filter, now: int) -> dict[str, int]:
        """Count jobs by one of their fields. Waiting and running jobs have counters, so they are not scanned."""
        ...
