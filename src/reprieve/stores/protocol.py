"""The store protocol: what every store promises, in the fewest operations that the product needs.

Every write is atomic: all of it is stored, with its events, or none. `now` is an instant in the store's time base and
comes from the caller. A store chooses and moves; why, the core has decided before.

After a lost reply the caller repeats the same call: an enqueue by the ids of its jobs, a claim by its number, an apply
by its events. A repeat changes nothing and answers what the first call would have answered.
"""

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import UNSET, UnsetType

from reprieve.clock import Clock
from reprieve.core.change import Change
from reprieve.core.events import Event
from reprieve.core.job import CancelRequest, Death, Job
from reprieve.core.rate import Rate
from reprieve.core.record import Record
from reprieve.core.status import Status

MAX_PAYLOAD_BYTES = 256 * 1024
"""Bytes of a job's payload that a store accepts unless it is told otherwise."""

MAX_NAME_CHARS = 255
"""Characters of a queue, tenant, task, dependency, group or key."""

KEY_RETENTION_SECONDS = 86_400.0
"""Seconds after its enqueue for which a key is kept when its job is long gone."""

ChangeResult: TypeAlias = Literal["applied", "already", "refused", "missing"]
"""What became of a change: done now; done by an earlier call of the same; refused, since the store holds another
version, lease or state; or there is no such job (any more)."""

Subject: TypeAlias = Literal["queue", "tenant", "task", "dependency", "group"]


class Claim(Record):
    """A session settles what it finished and asks for more, in one step.

    `number` counts the session's calls from 1. Repeated, a number does nothing and answers as before; a number lower
    than the last is refused whole (`StaleCall`). A call that changed and brought nothing need not be remembered: to
    do so a store would have to write, and wake everybody, whenever somebody looks in vain.
    """

    session: str
    number: int
    now: int
    queues: tuple[str, ...] = ()
    """Served in this order: what the first leaves of the limit goes to the next."""
    limit: int = 0
    """At most so many jobs, or fewer if a store leases no more at a time; 0 only settles."""
    changes: tuple[Change, ...] = ()


class Claimed(Record):
    """What a claim brought.

    The jobs are leased: running, with their version, attempt, session and `leased_at` as `change.lease` makes them.
    """

    results: tuple[ChangeResult, ...]
    jobs: tuple[Job, ...]
    next_at: int | None
    """When to look again: at once if it is not later than now, None to wait for the bell."""


class Heartbeat(Record):
    """A session says that it lives, for so many seconds more.

    When its time is up it may be declared dead, by `recover`. Until somebody does, it lives, and may heartbeat again.
    """

    session: str
    now: int
    lease: float
    slots: int
    """How many jobs it runs at once: fairness counts in shares of all slots."""
    is_new: bool = False
    """Opens the session. Any other heartbeat of a session that the store does not know is answered with its death."""


class Annotation(Record):
    """Something that stands beside a job's version, so that it never fences an honest worker.

    A cancel request is taken for a job that runs; progress is taken from the session that runs it. Both are gone when
    the attempt ends, but a request is not lost: a change that lets the job wait again, be it a worker's or recovery's,
    is followed in the same write by the cancel that `change.give_up` makes.
    """

    job_id: str
    now: int
    cancel: CancelRequest | None = None
    """The first request stands: whoever asks again changes nothing."""
    session: str = ""
    progress: bytes | None = None


class LimitUpdate(Record):
    """What the claim honours from now on, for one queue, tenant, task, dependency or group.

    Whatever is UNSET stays as it is. A new limit counts at once, also for what already waits for the old one.
    """

    subject: Subject
    name: str
    queue: str = ""
    """The tenant's queue; empty for everything else."""
    permits: int | UnsetType | None = UNSET
    """How many may be under way: 0 holds, a number is a step of the ramp, None opens."""
    max_running: int | UnsetType | None = UNSET
    rate: Rate | UnsetType | None = UNSET
    weight: float | UnsetType = UNSET
    """A tenant's weight."""
    pauses: tuple[Literal["schedule", "retry"], ...] | UnsetType = UNSET
    """Of a queue: which waits do not end while they are paused."""


class LimitState(Record):
    """What the store knows of one queue, tenant, task, dependency or group."""

    subject: Subject
    name: str
    queue: str = ""
    running: int = 0
    permits: int | None = None
    max_running: int | None = None
    rate: Rate | None = None
    weight: float = 1.0
    pauses: tuple[str, ...] = ()
    served: int = 0
    served_at: int | None = None
    streak: int = 0
    rounds: int = 0


class Entry(Record):
    """A small named value with a version, for whatever the fleet must agree on.

    Version 0 is no entry. The versions of a key only grow, also when its entry was deleted and is made again: whoever
    has seen a version never takes another entry for it.
    """

    key: str
    version: int
    value: bytes


class Filter(Record):
    """Which jobs are meant; what is None or empty does not narrow."""

    ids: tuple[str, ...] | None = None
    id_parts: tuple[str, ...] = ()
    """Hex digits, in lower case and without dashes: ids that begin or end with any of these."""
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
    """Only jobs that ended at this instant or later; succeeded ones are found without a look at those before."""
    newest_first: bool = False
    """Begin with what was enqueued or ended last, where the store keeps such an order; else in the store's own."""


class Page(Record):
    """Some of the jobs that were asked for, in the store's order, and where to go on; an empty cursor is the end."""

    jobs: tuple[Job, ...]
    statuses: tuple[Status, ...]
    """The status of each job, by which the filter chose: only the store knows which gates are held."""
    cursor: str = ""


Tally: TypeAlias = Literal["status", "queue", "tenant", "task", "dependency", "death", "code", "fingerprint"]


class Retention(Record):
    """How long what has ended is kept."""

    now: int
    succeeded: int = 1_000
    """Succeeded jobs of a queue that are kept at the most."""
    succeeded_for: float = 86_400.0
    cancelled_for: float = 7 * 86_400.0
    events_for: float = 7 * 86_400.0
    archived: tuple[Job, ...] = ()
    """Dead jobs that were archived, as they were archived: each goes if it still has that version."""


class Pruned(Record):
    """How much went."""

    succeeded: int = 0
    cancelled: int = 0
    dead: int = 0
    events: int = 0
    keys: int = 0
    results: int = 0

    @property
    def is_all(self) -> bool:
        """Whether nothing went, so that nothing is left to go."""
        return not (self.succeeded or self.cancelled or self.dead or self.events or self.keys or self.results)


class Store(Protocol):
    """A store. Errors are `StoreError`s: what was not acknowledged may or may not be stored, and can be repeated."""

    @property
    def clock(self) -> Clock:
        """The clock that everybody who uses this store goes by: what they hand in as `now` should be its time."""
        ...

    def new_id(self, now: int, queue: str) -> str:
        """Make the id of a new job, in the client: it names the partition that the job will live in."""
        ...

    async def enqueue(self, jobs: Sequence[Job], now: int) -> list[str]:
        """Store new jobs; answer for each the id under which it is known.

        A job whose (task, tenant, key) is taken is not stored: the answer is the id of the job that has it, be it
        waiting, running, dead or recently ended. A job whose id is stored already is left alone. Held lanes stay held.
        """
        ...

    async def claim(self, claim: Claim) -> Claimed:
        """Apply the changes, then choose and lease jobs, fairly, within every gate, limit, rate and pause.

        What was asked to stop is cancelled instead of waiting again; see `Annotation`.

        Due jobs are taken whether or not anybody promoted them. A job past its deadline is not leased but dies. A
        session that is not alive is leased nothing: its changes are still judged by their versions and answered, and
        without any it raises `SessionDead`. So does a session that the store does not know, or no longer, since all
        that it held was taken back: nothing that it settles could count.
        """
        ...

    async def apply(self, changes: Sequence[Change], now: int) -> list[ChangeResult]:
        """Carry out changes that no session makes: retry, cancel, recover, expire, revive. Each stands alone.

        What was asked to stop is cancelled instead of waiting again; see `Annotation`.
        """
        ...

    async def heartbeat(self, heartbeat: Heartbeat) -> bool:
        """Keep a session alive, or open it; answer whether it lives.

        A dead session must stop everything: its jobs belong to others. A lease of 0 ends it: what it still holds is
        for recovery at once.
        """
        ...

    async def recover(self, now: int, limit: int = 100) -> list[Job]:
        """Declare dead every session whose time is up, and answer running jobs that the dead still hold.

        The jobs stay leased until a change takes them back: a result that comes first still counts.
        """
        ...

    async def annotate(self, annotations: Sequence[Annotation]) -> list[bool]:
        """Request a cancel or note progress; answer for each whether the job was running (in that session)."""
        ...

    async def progress(self, job_id: str) -> bytes | None:
        """Return the progress that a running job has noted."""
        ...

    async def update_limits(self, updates: Sequence[LimitUpdate], now: int) -> None:
        """Change gates, limits, weights and pauses, all at once. Holding is O(1); what returns is bounded a claim."""
        ...

    async def compare_and_set(
        self, key: str, version: int, value: bytes | None, updates: Sequence[LimitUpdate] = (), now: int = 0
    ) -> Entry | None:
        """Set an entry (or delete it, with None) if it still has this version, together with updates.

        Returns the entry as it is now, or None when another caller was first and nothing was changed. A change wakes
        everybody who waits, for whatever queue: the fleet is to learn of it at once.
        """
        ...

    async def prune(self, retention: Retention) -> Pruned:
        """Forget what has ended long enough ago, or a part of it: call again while it answers that something went.

        Dead jobs go only when they are named as archived.
        """
        ...

    async def find(self, wanted: Filter, now: int, cursor: str = "", limit: int = 100) -> Page:
        """Return jobs as they are. A page may be short, or empty, and still have a cursor."""
        ...

    async def tally(self, by: Tally, wanted: Filter, now: int) -> dict[str, int]:
        """Count jobs by something. Counts of what waits and runs are kept, so they cost no scan."""
        ...

    async def events(self, after: int = 0, limit: int = 1_000, job_id: str = "") -> list[tuple[int, Event]]:
        """Return events in the order in which they happened, each with its place in the stream."""
        ...

    async def result(self, job_id: str) -> bytes | None:
        """Return what a succeeded job returned, while it is kept."""
        ...

    async def entries(self, prefix: str = "") -> list[Entry]:
        """Return the entries whose key begins so, in order."""
        ...

    async def limit_states(self, subject: Subject, queue: str = "") -> list[LimitState]:
        """Return what is known of every queue, tenant, task, dependency or group."""
        ...

    async def wait(self, queues: Sequence[str], at_most: float, session: str = "") -> bool:
        """Wait for the bell, at most so many seconds: a hint that something may be claimable, never a guarantee.

        For a session, whatever has happened since its last claim counts; without one, only what happens from now on.
        """
        ...

    async def close(self) -> None:
        """Let go of files, threads and connections. What was acknowledged stays."""
        ...


@runtime_checkable
class Immediate(Protocol):
    """A store that can be used without an event loop, where that is quicker than a loop in another thread."""

    def enqueue_here(self, jobs: Sequence[Job], now: int) -> list[str] | None:
        """Store new jobs, as `enqueue` does, and keep the calling thread waiting; None: `enqueue` would be better now.

        What was stored and not answered is recognised when it is enqueued again.
        """
        ...


@runtime_checkable
class Transactional(Protocol):
    """A store that can enqueue inside a transaction of the caller's."""

    def enqueue_in(self, connection: Any, jobs: Sequence[Job], now: int) -> list[str]:  # noqa: ANN401 - the driver's own
        """Store new jobs in the caller's open transaction: both are there after its commit, or neither."""
        ...


@runtime_checkable
class AsyncTransactional(Protocol):
    """A store that can enqueue inside a transaction of the caller's on an asynchronous connection as well."""

    def is_asynchronous(self, connection: Any) -> bool:  # noqa: ANN401 - the driver's own
        """Whether this connection has to be awaited."""
        ...

    async def aenqueue_in(self, connection: Any, jobs: Sequence[Job], now: int) -> list[str]:  # noqa: ANN401 - as above
        """Store new jobs in the caller's open transaction: both are there after its commit, or neither."""
        ...


class OutboxSink(Protocol):
    """Where a relay brings jobs out of an outbox: each is stored once, however often and however late it is brought."""

    async def prepare(self) -> None:
        """Get ready, before jobs are taken out of the outbox: what was taken before cannot land any more."""
        ...

    async def deliver(self, jobs: Sequence[Job], now: int) -> list[str]:
        """Store jobs as `enqueue` does, but for those that have landed before, whatever has become of them.

        They must have been taken since `prepare`; after half a minute they are refused with a `StoreError`.
        """
        ...

    def note_removed(self, ids: Sequence[str]) -> None:
        """Note that the rows of these jobs are gone from the outbox for good: they need not be remembered for long."""
        ...

    async def close(self) -> None:
        """Tell the store what is gone."""
        ...


@runtime_checkable
class RelayTarget(Protocol):
    """A store that outboxes can be relayed to."""

    def outbox_sink(self) -> OutboxSink:
        """Return an outbox sink for one relay."""
        ...
