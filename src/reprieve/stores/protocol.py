"""The store protocol: what every store promises, in the fewest operations that the product needs.

Every write is atomic: it is stored as a whole, with its events, or not at all. `now` is an instant in the store's time
base and comes from the caller. The core decides what happens to a job; a store only chooses jobs and writes changes.

After a lost reply the caller repeats the call. The store recognises an enqueue by the ids of its jobs, a claim by its
number and an apply by its events. A repeat changes nothing and returns what the first call would have returned.
"""

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import UNSET, UnsetType
from msgspec.structs import astuple

from reprieve.clock import Clock
from reprieve.core.change import Change
from reprieve.core.duration import milliseconds
from reprieve.core.events import Event
from reprieve.core.fairness.settings import DEFAULTS
from reprieve.core.job import CancelRequest, Death, Job
from reprieve.core.rate import Rate
from reprieve.core.record import Record
from reprieve.core.status import Status

MAX_SESSION_QUEUES, MAX_SESSION_TASKS = 1_000, 20_000
"""Names of queues and of tasks that one session may have."""

MAX_PAYLOAD_BYTES = 256 * 1024
"""Largest payload, result or progress that a store accepts by default."""

MAX_FAILURE_BYTES = 16 * 1024
"""Largest traceback of a group of failures."""

KEY_RETENTION_SECONDS = 86_400.0
"""How long after its enqueue a key is kept, even if its job is deleted earlier."""

MAX_EXCLUDED_TASKS = 10_000
"""Tasks that a claim may exclude at most."""

NAMES_INTERVAL_SECONDS = 600.0
"""Seconds from one search for names without jobs to the next: a lane that is empty for a moment is deleted at most once
in this time."""

IDLE_SECONDS = float(DEFAULTS.activity_window_seconds)
"""Seconds after its last lease for which a tenant's virtual time matters, if it is ahead of that of its queue."""

ChangeResult: TypeAlias = Literal["applied", "already", "refused", "missing"]
"""What happened to a change: applied now; already applied by an earlier call; refused, because the stored job has
another version, lease or state, or because the change cannot be stored; or missing, because no such job is stored."""

Pause: TypeAlias = Literal["schedule", "retry"]

Subject: TypeAlias = Literal["queue", "tenant", "task", "dependency", "group", "tenant_dependency"]
"""What has limits. A tenant has limits in each of its queues; a `tenant_dependency` is the calls of one tenant to one
dependency, in all queues."""


class Claim(Record):
    """A session settles the jobs it finished and asks for more, in one step.

    `number` counts the session's calls from 1. A repeated number changes nothing and returns the same as before; a
    number below the last one is refused as a whole (`StaleCall`). A store need not remember a call that changed
    nothing and leased nothing: remembering it would be a write, and a write wakes other workers.
    """

    session: str
    number: int
    now: int
    queues: tuple[str, ...] = ()
    """Served in this order: the next queue gets what the queues before it leave of the limit."""
    limit: int = 0
    """How many jobs to lease at most; a store may lease fewer at a time. 0: only settle."""
    changes: tuple[Change, ...] = ()
    exclude: tuple[str, ...] = ()
    """Tasks that the session cannot run: their jobs stay where they are, for other sessions. At most
    `MAX_EXCLUDED_TASKS`."""


class Claimed(Record):
    """The result of a claim.

    The jobs are leased: running, with the version, attempt, session and `leased_at` that `change.lease` sets.
    """

    results: tuple[ChangeResult, ...]
    jobs: tuple[Job, ...]
    next_at: int | None
    """When to claim again; an instant that has passed means at once. None: block until notified.

    A claim that met jobs of excluded tasks, and was not filled, is to be repeated within a second."""


class Heartbeat(Record):
    """Opens a session, or extends its lease by so many seconds from `now`.

    `recover` may expire a session whose lease has run out. Until then the session is alive and may extend its lease.
    """

    session: str
    now: int
    lease: float
    slots: int
    """How many jobs the session runs at once; fairness shares out the slots of all sessions."""
    prefetch: int = 0
    """How many jobs it fetches ahead, beyond its slots."""
    running: int = 0
    """How many jobs it runs now; the others that it holds are fetched ahead."""
    queues: tuple[str, ...] = ()
    """The queues that it serves, at most `MAX_SESSION_QUEUES`; empty: all."""
    is_new: bool = False
    """True opens the session. Otherwise a session that the store does not know counts as dead."""
    host: str = ""
    """This and the fields below say who opens the session. They are stored once, when it is opened."""
    pid: int = 0
    version: str = ""
    """The version of Reprieve."""
    tasks: tuple[str, ...] = ()
    """The names of the tasks that it can run, at most `MAX_SESSION_TASKS`."""


class Session(Record):
    """A session as its opening and its last heartbeat describe it; a field that neither gave is empty or 0."""

    id: str
    host: str = ""
    pid: int = 0
    version: str = ""
    queues: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    slots: int = 0
    prefetch: int = 0
    running: int = 0
    since: int = 0
    """When it was opened."""
    heartbeat_at: int = 0
    """When its last heartbeat was sent."""


class Annotation(Record):
    """A cancel request for a running job, or progress from the session that runs it.

    An annotation does not change the job's version, so the worker's own result still applies. Both are deleted when
    the attempt ends, but a cancel request is not lost: if a change, by a worker or by recovery, makes the job wait
    again, the same write also applies the cancel that `change.give_up` makes.
    """

    job_id: str
    now: int
    cancel: CancelRequest | None = None
    """The first request stays; later ones change nothing."""
    session: str = ""
    progress: bytes | None = None


class LimitUpdate(Record):
    """New limits of one subject, which every later claim respects.

    A field that is UNSET stays as it is. New limits also apply to jobs that wait already. A name that the store does
    not know yet has its limits once it appears.

    A name of None sets the default of all names of the subject, also of those that appear later: of tenants in a queue
    or, without one, in all queues; of a dependency's tenants or, without one, of all tenants and dependencies. A limit
    that a name has itself comes before the default, field by field. Weights have no default.
    """

    subject: Subject
    name: str | None
    queue: str = ""
    """The queue of a tenant; empty for other subjects."""
    dependency: str = ""
    """The dependency of a tenant_dependency; empty for other subjects."""
    permits: int | Literal["default"] | UnsetType | None = UNSET
    """How many jobs a gate lets run: 0 holds it, a number is a step of its ramp, None opens it whatever the default is,
    "default" removes the name's own value, as with the fields below."""
    max_running: int | Literal["default"] | UnsetType | None = UNSET
    rate: Rate | Literal["default"] | UnsetType | None = UNSET
    weight: float | UnsetType = UNSET
    """The weight of a tenant."""
    pauses: tuple[Pause, ...] | Literal["default"] | UnsetType = UNSET
    """Of a queue: the waits that do not end while they are paused."""


class LimitState(Record):
    """The limits and the use of one subject."""

    subject: Subject
    name: str
    queue: str = ""
    dependency: str = ""
    own: tuple[str, ...] = ()
    """Which of permits, max_running, rate and pauses are its own; the others are those of the default."""
    ready: int = 0
    """Jobs that could run now. A job whose time has just come counts from the next claim on."""
    oldest_at: int | None = None
    """Since when the oldest of them is ready: none is ready for longer. Jobs with an SLA do not count: their lanes are
    in the order of SLAs, so that the oldest is not known."""
    running: int = 0
    permits: int | None = None
    max_running: int | None = None
    rate: Rate | None = None
    weight: float = 1.0
    pauses: tuple[Pause, ...] = ()
    served: int = 0
    served_at: int | None = None
    streak: int = 0
    rounds: int = 0


class LimitPage(Record):
    """Some of the limit states of a subject; an empty cursor means that there are no more."""

    states: tuple[LimitState, ...]
    cursor: str = ""


class Entry(Record):
    """A small named value with a version, for what all processes must agree on.

    Version 0 means that there is no entry. The versions of a key only grow, also after its entry was deleted, so a
    version never names two values.
    """

    key: str
    version: int
    value: bytes


class EntryDeletion(Record):
    """An entry that was deleted, and the number of that change: later versions of its key are larger."""

    key: str
    version: int


class EntryChanges(Record):
    """What has happened to entries since a cursor. A key that changed several times is there once, as it is now."""

    entries: tuple[Entry, ...]
    deleted: tuple[EntryDeletion, ...] = ()
    version: int
    """The number of the newest change: no entry had a larger version when the read began."""
    cursor: str
    """Where to go on. An entry that changed while it was read may be there again next time."""
    is_whole: bool = False
    """Whether these are all entries, because the store does not know what changed: the cursor is empty or old, or the
    store was restored from a backup. Then other entries are gone, and versions may be smaller than before."""


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


class FailureGroup(Record):
    """What the failures with one fingerprint look like, kept once for all the jobs that failed so."""

    fingerprint: str
    template: str
    """The message of the failures, with its variable parts masked."""
    type: str = ""
    """The exception's class with its module."""
    traceback: str = ""
    """The full traceback of the first failure."""
    first_seen_at: int
    last_seen_at: int


class Retention(Record):
    """How long ended jobs and their records are kept, in seconds."""

    now: int
    succeeded: int = 1_000
    """How many succeeded jobs of a queue are kept at most."""
    succeeded_for: float = 86_400.0
    cancelled_for: float = 7 * 86_400.0
    events_for: float = 7 * 86_400.0
    failures: int = 2_000
    """How many groups of failures are kept at most; those seen last stay."""
    failures_for: float = 30 * 86_400.0
    """How long after it was last seen a group of failures is kept, whether or not dead jobs belong to it."""
    archived: tuple[Job, ...] = ()
    """Dead jobs that were archived; each is deleted if its stored version is still the archived one."""


class Pruned(Record):
    """How many records of each kind were deleted."""

    succeeded: int = 0
    cancelled: int = 0
    dead: int = 0
    events: int = 0
    keys: int = 0
    results: int = 0
    failures: int = 0
    names: int = 0
    """Lanes, tenants, limiters and queues without jobs."""
    has_more: bool = False
    """Whether names are left to check, although this call may have deleted nothing."""

    @property
    def is_all(self) -> bool:
        """Whether nothing was deleted and nothing is left to check, so that nothing is left to delete."""
        return not any(astuple(self))


class Expired(Record):
    """The jobs that one call of `expire` has ended."""

    jobs: tuple[Job, ...] = ()
    has_more: bool = False
    """Whether something is still due, although this call may have ended no job."""


def names_interval(pruned: Pruned) -> int:
    """Return the milliseconds between two searches for names without jobs, given what the prune has deleted besides.

    As long as jobs are deleted, their lanes may be next: then the search is put off, for as long again.
    """
    return milliseconds(NAMES_INTERVAL_SECONDS * (1 if pruned.is_all else 2))


class Store(Protocol):
    """A store, as `open_store` opens it: arguments are checked, and a closed store raises `StoreClosed`.

    A store raises `StoreError`s. A write that raised one may or may not be stored, and can be repeated. What each
    store must do itself, and what `checked` adds to it, is in `docs/extend/stores.md`.
    """

    @property
    def clock(self) -> Clock:
        """The clock that all processes of this store share: `now` should be its time."""
        ...

    def new_id(self, now: int, queue: str) -> str:
        """Make the id of a new job, without asking a server. The id names the partition of the job."""
        ...

    async def enqueue(self, jobs: Sequence[Job], now: int) -> list[str]:
        """Store new jobs; return the id of each.

        A job whose (task, tenant, key) belongs to another job is not stored: its id is that of the other job. A key
        belongs to its job for `key_ttl` seconds from the enqueue, and for as long as the job waits, runs, or is kept as
        dead or cancelled. A job whose id is stored already stays as it is.
        """
        ...

    async def claim(self, claim: Claim) -> Claimed:
        """Apply the changes, then choose and lease jobs, fairly, within every gate, limit, rate and pause.

        A job with a cancel request is cancelled instead of waiting again; see `Annotation`. Due jobs are leased
        whether or not they were promoted before. A job past its deadline is not leased but becomes dead.

        A dead session is leased nothing: its changes are applied or refused by their versions as usual, and a claim
        without changes raises `SessionDead`. A session that the store does not know raises it in any case, because
        the jobs that it held were taken back.
        """
        ...

    async def apply(self, changes: Sequence[Change], now: int) -> list[ChangeResult]:
        """Apply changes that no session makes: retry, cancel, recover, expire, revive. Return a result for each.

        Each change is whole. Many changes may be several writes, so that no claim waits for all of them.
        A job with a cancel request is cancelled instead of waiting again; see `Annotation`.
        """
        ...

    async def heartbeat(self, heartbeat: Heartbeat) -> bool:
        """Open a session or extend its lease; return whether it is alive.

        A dead session must stop its jobs, which other sessions may run by now. A lease of 0 ends the session, so that
        its jobs can be recovered at once.
        """
        ...

    async def sessions(self, now: int) -> list[Session]:
        """Return the sessions whose lease lasts at `now`, by id. A session that has ended is not among them."""
        ...

    async def recover(self, now: int, limit: int = 100) -> list[Job]:
        """Expire sessions past their lease; return the jobs they hold.

        The jobs stay leased until a change takes them back: a result that arrives before still counts.
        """
        ...

    async def expire(self, now: int, limit: int = 100) -> Expired:
        """End waiting jobs past their `expires_at`, at most so many; return them as `change.expire` leaves them.

        A call does no more than others can wait for. While it says that there is more, it is repeated soon; when it
        says that there is no more, every job that it had to find at this time has ended.

        It finds them wherever they wait: in a paused queue, behind a held gate, at a limit, scheduled or waiting for a
        retry. A job that was only parked for too long ends only if the gate of its dependency is held: otherwise it
        gets its last attempt. A store may find a job up to three seconds late. The cost depends on how many jobs
        expire, not on how many wait.
        """
        ...

    async def annotate(self, annotations: Sequence[Annotation]) -> list[bool]:
        """Request cancels and note progress; return for each whether the job was running (in that session)."""
        ...

    async def progress(self, job_id: str) -> bytes | None:
        """Return the progress of a running job; None if it has noted none."""
        ...

    async def describe_failures(self, groups: Sequence[FailureGroup]) -> None:
        """Keep what groups of failures look like. Of a group that is kept already only `last_seen_at` may grow."""
        ...

    async def failure_groups(self, fingerprints: Sequence[str]) -> list[FailureGroup]:
        """Return the groups of failures with these fingerprints that are kept, in any order."""
        ...

    async def update_limits(self, updates: Sequence[LimitUpdate], now: int) -> None:
        """Change limits, rates, weights and pauses, in one write. Its cost does not depend on how many jobs wait."""
        ...

    async def compare_and_set(
        self, key: str, version: int, value: bytes | None, updates: Sequence[LimitUpdate] = (), now: int = 0
    ) -> Entry | None:
        """Set an entry, or delete it with None, if it has this version, together with limit updates.

        Returns the entry as it is now, or None if it has another version and nothing was changed. A change notifies
        every process that waits, for any queue.
        """
        ...

    async def prune(self, retention: Retention) -> Pruned:
        """Delete what ended long enough ago, or a part of it; call again until the result `is_all`.

        Dead jobs are deleted only when the retention names them as archived. At most every
        `NAMES_INTERVAL_SECONDS`, names without jobs are deleted as well: lanes, and tenants, limiters and queues that
        have no limit, weight or pause of their own and have been idle for `IDLE_SECONDS`. They begin anew with their
        next job, except that what the rate of a default has granted counts for its window.
        """
        ...

    async def find(self, wanted: Filter, now: int, cursor: str = "", limit: int = 100) -> Page:
        """Return a page of jobs. A page may be short or empty and still have a cursor."""
        ...

    async def tally(self, by: Tally, wanted: Filter, now: int) -> dict[str, int]:
        """Count jobs by one of their fields. Waiting and running jobs have counters, so they are not scanned."""
        ...

    async def events(self, after: int = 0, limit: int = 1_000, job_id: str = "") -> list[tuple[int, Event]]:
        """Return events in the order in which they happened, each with its position in the stream."""
        ...

    async def result(self, job_id: str) -> bytes | None:
        """Return the result of a succeeded job, while it is kept."""
        ...

    async def entries(self, prefix: str = "") -> list[Entry]:
        """Return the entries whose key begins with the prefix, by key."""
        ...

    async def entry(self, key: str) -> Entry | None:
        """Return the entry of a key; None if there is none."""
        ...

    async def entries_since(self, cursor: str = "", prefix: str = "") -> EntryChanges:
        """Return the entries under a prefix that were set or deleted since a cursor; an empty cursor reads all.

        Its cost depends on how many changed, not on how many there are.
        """
        ...

    async def limit_states(
        self, subject: Subject, queue: str = "", prefix: str = "", cursor: str = "", limit: int = 100
    ) -> LimitPage:
        """Return a page of the limits and the use of every queue, tenant, task, dependency, group or pair.

        `queue` selects one queue, or its tenants; `prefix` names that begin so. A page may be short or empty and still
        have a cursor. Names that nothing waits, runs or is limited for may be left out.
        """
        ...

    async def limit_defaults(self) -> list[LimitUpdate]:
        """Return the defaults that are set, as updates that would set them again."""
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
