"""Finding: which jobs there are, and how many."""

from typing import Literal, Protocol, TypeAlias

from reprieve.core.job import Death, Job
from reprieve.core.record import Record
from reprieve.core.status import Status

MAX_FILTER_NAMES = 50
"""Queues, tenants, tasks, dependencies, codes or fingerprints that one filter may name."""

MAX_TALLIED = 500
"""Lanes, and jobs, that a tally looks at by default where no counter tells."""

MAX_NAMES = 100
"""Names that one call suggests at most."""

NameSubject: TypeAlias = Literal["queue", "tenant", "task", "dependency", "group", "code"]
"""What has names that are suggested; a code is that of a failure."""

Order: TypeAlias = Literal["oldest", "newest", "due", "longest"]
"""How jobs are sorted: by the time that counts for their status (`stores/finding_table.py`), the earliest or the latest
first. `due` and `longest` are the oldest first of jobs that wait, and of jobs that run."""


class Range(Record):
    """Whole numbers from `since` on, and before `until`; None: without a bound."""

    since: int | None = None
    until: int | None = None

    def has(self, value: int | None) -> bool:
        """Return whether a value is in the range; None, which is no value, never is."""
        return (
            value is not None
            and (self.since is None or value >= self.since)
            and (self.until is None or value < self.until)
        )


class Filter(Record):
    """Which jobs to find; a field that is None or empty matches every job. Of several names any one has to match."""

    ids: tuple[str, ...] | None = None
    id_parts: tuple[str, ...] = ()
    """Lower-case hex digits without dashes: matches ids that begin or end with any of them."""
    queues: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    """An empty name stands for jobs without a tenant; the same holds for dependencies."""
    tasks: tuple[str, ...] = ()
    dependencies: tuple[str, ...] = ()
    group: str | None = None
    key: str = ""
    priority: int | None = None
    statuses: frozenset[Status] = frozenset()
    death: Death | None = None
    codes: tuple[str, ...] = ()
    fingerprints: tuple[str, ...] = ()
    session: str = ""
    attempts: Range | None = None
    created: Range | None = None
    """When the job was enqueued, in milliseconds; so are the other times."""
    due: Range | None = None
    ended: Range | None = None
    """Only jobs that have ended, in this time."""
    text: str = ""
    """Part of the reason of the last failure, in any case. It has no index: a page looks at so many jobs only."""
    stuck_after: float | None = None
    """Seconds after which a running job counts as stuck; None: the default, or what `open_store` was given."""


class Page(Record):
    """Some of the jobs that a filter matches; an empty cursor means that there are no more.

    Jobs come in groups: those that run, then those that are ready, that wait for a time, that are dead or cancelled,
    that have succeeded; each group in the order that was asked for. A job that does not change is found exactly once.
    One that changes while pages are read may be found again in a later group, or not at all.
    """

    jobs: tuple[Job, ...]
    statuses: tuple[Status, ...]
    """The status of each job, which depends on the gates that are held."""
    cursor: str = ""
    examined: int = 0
    """How many jobs were looked at to find these."""
    reached_at: int | None = None
    """How far the look got, if there may be more: the time of the last job that was looked at, as the order has it."""


Tally: TypeAlias = Literal["status", "queue", "tenant", "task", "dependency", "death", "code", "fingerprint"]


class Tallied(Record):
    """How many jobs there are, by name."""

    counts: dict[str, int]
    is_exact: bool = True
    """Whether everything was counted; else there are at least so many, as far as the store has looked."""
    left_out: int = 0
    """Names that have fewer jobs than those in `counts`, and were left out."""


class SearchStore(Protocol):
    """Finds and counts jobs."""

    async def find(self, wanted: Filter, now: int, cursor: str = "", limit: int = 100, order: Order = "oldest") -> Page:
        """Return a page of jobs. A page may be short or empty and still have a cursor.

        A cursor belongs to its filter, its order and the release that made it; else `InvalidCursor` is raised. A filter
        that no job can match, because it contradicts itself, raises a `ValidationError`.
        """
        ...

    async def tally(
        self, by: Tally, wanted: Filter, now: int, top: int | None = None, at_most: int = MAX_TALLIED
    ) -> Tallied:
        """Count jobs by one of their fields, of the `top` names with the most jobs.

        Counters are kept by status of the whole store, and of each queue, task and dependency; a tenant has those of
        its lanes. For what they cannot tell, a store looks at some `at_most` lanes and as many jobs, and says so.
        """
        ...

    async def names(self, subject: NameSubject, prefix: str = "", limit: int = 20) -> list[str]:
        """Return names that begin with a prefix, in order, as suggestions.

        All names of waiting, dead and cancelled jobs are there, and the codes of dead jobs and of failures that jobs
        survived in the last day; names of jobs that run, have succeeded or were deleted may be.
        """
        ...
