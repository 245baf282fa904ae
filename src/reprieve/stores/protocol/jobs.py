"""Jobs as they are written: enqueue, claim, settle, apply, annotate and expire."""

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from reprieve.core.audit import AuditEntry
from reprieve.core.change import Change
from reprieve.core.job import CancelRequest, Job
from reprieve.core.record import Record
from reprieve.core.series import SeriesDelta

MAX_PAYLOAD_BYTES = 256 * 1024
"""Largest payload, result or progress that a store accepts by default."""

KEY_RETENTION_SECONDS = 86_400.0
"""How long after its enqueue a key is kept, even if its job is deleted earlier."""

MAX_EXCLUDED_TASKS = 10_000
"""Tasks that a claim may exclude at most."""

ChangeResult: TypeAlias = Literal["applied", "already", "refused", "missing"]
"""What happened to a change: applied now; already applied by an earlier call; refused, because the stored job has
another version, lease or state, or because the change cannot be stored; or missing, because no such job is stored."""


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
    series: tuple[SeriesDelta, ...] = ()
    """What the session has counted since it last said so: starts, successes, waits and run times. A claim with any is
    remembered, so that a repeat does not count them again. A dead session counts only with changes."""
    starts: tuple[Job, ...] = ()
    """Jobs that earlier claims of the session have leased, as they were returned, whose starts are to be events. They
    are told before the changes, once, also if the claim is repeated; those of a dead session are not: its jobs may have
    moved on."""


class Claimed(Record):
    """The result of a claim.

    The jobs are leased: running, with the version, attempt, session and `leased_at` that `change.lease` sets.
    """

    results: tuple[ChangeResult, ...]
    jobs: tuple[Job, ...]
    next_at: int | None
    """When to claim again; an instant that has passed means at once. None: block until notified.

    A claim that met jobs of excluded tasks, and was not filled, is to be repeated within a second."""


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
    request_id: str = ""
    """Of a cancel request: what its audit entry says of the request and the operation that it is part of."""
    operation: str = ""


def cancel_requested(annotation: Annotation, request: CancelRequest, *, tenant: str, queue: str) -> AuditEntry:
    """Return the audit entry of a cancel request to a running job: the attempt that it ends leaves no other."""
    return AuditEntry(
        at=annotation.now,
        actor=request.by,
        action="cancel",
        kind="job",
        name=annotation.job_id,
        tenant=tenant,
        queue=queue,
        reason=request.reason,
        before={"state": "running"},
        after={"state": "running", "is_cancel_requested": True},
        request_id=annotation.request_id,
        operation=annotation.operation,
    )


class Expired(Record):
    """The jobs that one call of `expire` has ended."""

    jobs: tuple[Job, ...] = ()
    has_more: bool = False
    """Whether something is still due, although this call may have ended no job."""


class JobStore(Protocol):
    """Writes jobs, and reads what belongs to one job alone."""

    async def enqueue(self, jobs: Sequence[Job], now: int) -> list[str]:
        """Store new jobs; return the id of each.

        A job whose (task, tenant, key) belongs to another job is not stored: its id is that of the other job. A key
        belongs to its job for `key_ttl` seconds from the enqueue, and for as long as the job waits, runs, or is kept as
        dead or cancelled. A job whose id is stored already stays as it is.

        The enqueue of a job that tells all is an event: told in the same write, or, where an enqueue takes no turn in
        the order of events, before anything else happens to the job.
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

    async def result(self, job_id: str) -> bytes | None:
        """Return the result of a succeeded job, while it is kept."""
        ...
