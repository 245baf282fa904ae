"""Helpers of the checks: jobs, a worker that counts its calls, and changes of jobs."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Self

from msgspec.structs import replace

from reprieve.core import change
from reprieve.core.audit import Automatic
from reprieve.core.change import Change, Request
from reprieve.core.headers import Headers
from reprieve.core.job import CancelRequest, Cause, Death, Job
from reprieve.core.move import Cancel, Dead, Move, Park, Retry, Snooze, Succeed
from reprieve.stores.protocol import (
    ChangeResult,
    Claim,
    Claimed,
    Entry,
    EntryWrite,
    Filter,
    Heartbeat,
    LimitUpdate,
    Order,
    Store,
)
from reprieve.testing.conformance.expect import expect_equal

START = 1_700_000_000_000
"""The time at which every check begins."""

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000

HEADERS = Headers(
    traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    tracestate="vendor=1",
    tags=("nightly", "größe"),
    parent="0199c82c-c000-7abc-8def-2f6e11c40ae2",
    linked="0199c82c-c000-7abc-8def-2f6e11c40ae3",
    operation="import-7",
    credits=3,
    sla_at=1_800_000_000_000,
    region="eu-west-1",
    user="ana",
    own={"origin": "import"},
)
"""Headers with every field set."""

CAUSE = Cause(reason="450 mailbox busy", code="450", kind="transient", fingerprint="busy")

OPERATOR = Request(by="ana", reason="the provider is back", force=True)
ANOTHER = Request(by="bea", reason="the customer called", force=True)
PROGRAM = Automatic(by="checks")
CANCEL_REQUEST = CancelRequest(by="ana", reason="the customer left")


def new_job(store: Store, at: int = START, **fields: Any) -> Job:  # noqa: ANN401 - the fields of a job
    """Return a job that waits for its turn, or for its time when `due_at` is later than `at`."""
    waiting_for = "schedule" if fields.get("due_at", at) > at else "turn"
    queue = fields.get("queue", "default")
    facts: dict[str, Any] = {
        "task": "send",
        "created_at": at,
        "due_at": at,
        "waiting_for": waiting_for,
        "max_attempts": 10,
    } | fields
    return Job(id=store.new_id(at, queue), **facts)


def new_jobs(store: Store, count: int, at: int = START, **fields: Any) -> list[Job]:  # noqa: ANN401 - as above
    """Return `count` jobs with the same fields."""
    return [new_job(store, at, **fields) for _ in range(count)]


async def enqueue(store: Store, *jobs: Job, at: int = START) -> list[str]:
    """Enqueue jobs in one call."""
    return await store.enqueue(jobs, at)


async def enqueued(store: Store, at: int = START, **fields: Any) -> Job:  # noqa: ANN401 - as above
    """Enqueue a new job; return it."""
    job = new_job(store, at, **fields)
    await store.enqueue([job], at)
    return job


class Worker:
    """A session that counts its calls as a worker does."""

    def __init__(self, store: Store, session: str, queues: Sequence[str] = ("default",)) -> None:
        """Create the worker; `open` sends its first heartbeat."""
        self.store = store
        self.session = session
        self.queues = tuple(queues)
        self.exclude: tuple[str, ...] = ()
        """Tasks that its claims exclude."""
        self.number = 0

    @classmethod
    async def open(
        cls,
        store: Store,
        session: str = "worker-1",
        *,
        at: int = START,
        **fields: Any,  # noqa: ANN401 - the fields of a heartbeat
    ) -> Self:
        """Open a session; by default its lease outlasts every check, and its slots every claim."""
        worker = cls(store, session)
        await worker.heartbeat(at, is_new=True, **fields)
        return worker

    async def heartbeat(self, at: int = START, **fields: Any) -> bool:  # noqa: ANN401 - the fields of a heartbeat
        """Send one heartbeat."""
        facts: dict[str, Any] = {"lease": 30 * 86_400, "slots": 1_000} | fields
        return await self.store.heartbeat(Heartbeat(session=self.session, now=at, **facts))

    async def ask(
        self, limit: int = 1, at: int = START, changes: Iterable[Change] = (), queues: Sequence[str] | None = None
    ) -> Claimed:
        """Claim with the next number."""
        self.number += 1
        return await self.again(limit, at, changes, queues)

    async def again(
        self, limit: int = 1, at: int = START, changes: Iterable[Change] = (), queues: Sequence[str] | None = None
    ) -> Claimed:
        """Repeat the claim with the same number, as after a lost reply."""
        return await self.store.claim(
            Claim(
                session=self.session,
                number=self.number,
                now=at,
                queues=self.queues if queues is None else tuple(queues),
                limit=limit,
                changes=tuple(changes),
                exclude=self.exclude,
            )
        )

    async def take(self, limit: int = 1, at: int = START, queues: Sequence[str] | None = None) -> list[Job]:
        """Claim; return only the jobs."""
        return list((await self.ask(limit, at, queues=queues)).jobs)

    async def exactly(self, count: int, at: int = START) -> list[Job]:
        """Claim; expect exactly `count` jobs."""
        jobs = await self.take(count, at)
        expect_equal(len(jobs), count, f"jobs leased to {self.session}")
        return jobs

    async def one(self, limit: int = 1, at: int = START, queues: Sequence[str] | None = None) -> Job:
        """Claim; expect a single job."""
        jobs = await self.take(limit, at, queues)
        expect_equal(len(jobs), 1, f"jobs leased to {self.session}")
        return jobs[0]

    async def settle(self, *changes: Change, at: int = START) -> list[ChangeResult]:
        """Settle without claiming."""
        return list((await self.ask(0, at, changes)).results)


async def get(store: Store, job: Job, at: int = START) -> Job | None:
    """Return the job as the store has it now."""
    page = await store.find(Filter(ids=(job.id,)), at)
    return page.jobs[0] if page.jobs else None


async def find_all(
    store: Store, wanted: Filter, at: int = START, limit: int = 100, order: Order = "oldest"
) -> list[Job]:
    """Return the jobs of all pages of a search."""
    found: list[Job] = []
    cursor = ""
    for _ in range(1_000):
        page = await store.find(wanted, at, cursor, limit, order)
        found.extend(page.jobs)
        cursor = page.cursor
        if not cursor:
            return found
    message = "a search had no end after 1,000 pages"
    raise AssertionError(message)


async def update_limits(store: Store, *updates: LimitUpdate, at: int = START) -> None:
    """Update limits in one call."""
    await store.update_limits(updates, at, PROGRAM)


async def set_entry(
    store: Store, key: str, version: int, value: bytes | None, updates: Sequence[LimitUpdate] = (), at: int = START
) -> Entry | None:
    """Set or delete an entry; return it, or None if it has another version."""
    write = EntryWrite(key=key, version=version, value=value, updates=tuple(updates))
    return (await store.compare_and_set(write, at, PROGRAM)).entry


def succeed(job: Job, at: int = START, result: bytes | None = None, ttl: float = 0.0) -> Change:
    """Return the change of an attempt that succeeds."""
    return replace(change.settle(job, Succeed(), at), result=result, result_ttl=ttl)


def fail(job: Job, at: int = START, due_at: int | None = None, cause: Cause = CAUSE) -> Change:
    """Return the change of an attempt that fails and is retried, by default in ten seconds."""
    due_at = at + 10 * SECOND if due_at is None else due_at
    return change.settle(job, Retry(due_at=due_at, cause=cause, delay=10.0, max_attempts=10), at)


def kill(job: Job, at: int = START, death: Death = "permanent", cause: Cause = CAUSE) -> Change:
    """Let a job die."""
    return change.make(job, Dead(death=death, cause=cause, charged=True), at)


def park(job: Job, at: int = START, due_at: int | None = None) -> Change:
    """Let a job wait for its dependency, by default for a second."""
    due_at = at + SECOND if due_at is None else due_at
    return change.settle(job, Park(gate=job.dependency or "ses", due_at=due_at, cause=CAUSE), at)


def snooze(job: Job, at: int = START, due_at: int | None = None) -> Change:
    """Let a task ask to be called again, by default in a second."""
    return change.settle(job, Snooze(due_at=at + SECOND if due_at is None else due_at), at)


def stop(job: Job, at: int = START) -> Change:
    """Let an attempt end as cancelled."""
    return change.settle(job, Cancel(reason="asked to stop"), at)


def make(job: Job, move: Move, at: int = START) -> Change:
    """Carry out any move."""
    return change.make(job, move, at)


def count_by(jobs: Iterable[Job], field: str) -> Counter[str]:
    """Count jobs by one of their fields."""
    return Counter(getattr(job, field) for job in jobs)


def longest_run(names: Sequence[str], name: str) -> int:
    """Return how often a name stands in a row at the most."""
    longest = current = 0
    for other in names:
        current = current + 1 if other == name else 0
        longest = max(longest, current)
    return longest
