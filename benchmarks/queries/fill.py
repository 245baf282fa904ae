"""Fill a store: jobs in every state, of many tenants, tasks, queues and dependencies, dead of forty causes."""

from collections.abc import Awaitable, Callable

from msgspec.structs import replace
from rich.console import Console
from rich.progress import track

from benchmarks.queries.facts import (
    CAUSES,
    DAY_MS,
    DEPENDENCIES,
    LANES_PER_TENANT,
    QUEUES,
    SHARES,
    TASKS,
    Facts,
    Sizes,
)
from reprieve.core import change
from reprieve.core.change import Change
from reprieve.core.job import Cause, Job
from reprieve.core.move import Cancel, Dead, Park, Retry, Succeed
from reprieve.stores.protocol import Claim, FailureGroup, Heartbeat, LimitUpdate, Store
from reprieve.testing.conformance.stage import PROGRAM, set_entry

CHUNK = 1_000
"""Jobs of one enqueue."""

CLAIMED = 100
"""Jobs of one claim."""

LEASE_SECONDS = 10_000_000.0
SESSIONS = 20
ENTRIES = 1_000
LIMITED_TENANTS = 500
PAYLOAD_BYTES = 200


class Filler:
    """Fills one store, in the time of the day before `now`."""

    def __init__(self, store: Store, url: str, sizes: Sizes, now: int, console: Console) -> None:
        """Take an empty store."""
        self._store = store
        self._sizes = sizes
        self._now = now
        self._console = console
        self._claims = 0
        self._claimed: tuple[Job, ...] = ()
        self._ended: list[str] = []
        self._facts = Facts(url=url, started_at=now - DAY_MS, filled_at=now, tenant="tenant-00007", key="order-7")

    async def fill(self) -> Facts:
        """Fill the store; return what queries can ask for."""
        await self._open_sessions()
        kinds = ("dead", "succeeded", "cancelled", "retrying", "parked")
        settled = [kind for kind in kinds for _ in range(self._sizes.count(SHARES[kind]))]
        await self._in_steps(len(settled), CHUNK, "enqueue", lambda start: self._enqueue(settled, start))
        await self._in_steps(len(settled), CLAIMED, "claim and settle", lambda _: self._settle())
        rest = ["scheduled"] * self._sizes.count(SHARES["scheduled"])
        rest += ["ready"] * (self._sizes.jobs - len(settled) - len(rest))
        await self._in_steps(len(rest), CHUNK, "enqueue", lambda start: self._enqueue(rest, start, len(settled)))
        await self._describe()
        return replace(self._facts, ids=tuple(self._ended[:20]))

    async def _in_steps(self, count: int, step: int, what: str, work: Callable[[int], Awaitable[bool]]) -> None:
        for start in track(range(0, count, step), f"{what} {count:,}", console=self._console, transient=True):
            await work(start)
        # Claims take fewer jobs at a time on some stores, so that some are left.
        while step == CLAIMED and await work(count):
            pass

    async def _open_sessions(self) -> None:
        for number in range(SESSIONS):
            heartbeat = Heartbeat(
                session=f"filler-{number}", now=self._now, lease=LEASE_SECONDS, slots=1_000, queues=QUEUES, is_new=True
            )
            await self._store.heartbeat(heartbeat)

    async def _enqueue(self, kinds: list[str], start: int, offset: int = 0) -> bool:
        now = self._facts.started_at + DAY_MS * (offset + start) // self._sizes.jobs
        numbers = range(start, min(len(kinds), start + CHUNK))
        await self._store.enqueue([self._job(offset + number, kinds[number], now) for number in numbers], now)
        return True

    def _job(self, number: int, kind: str, now: int) -> Job:
        # Seven and the number of tenants have no common divisor, so every tenant has jobs of every kind.
        tenant = number * 7 % self._sizes.tenants
        lane = (number // self._sizes.tenants) % LANES_PER_TENANT
        task = (tenant + 5 * lane) % len(TASKS)
        is_scheduled = kind == "scheduled"
        queue = QUEUES[task % len(QUEUES)]
        return Job(
            id=self._store.new_id(now, queue),
            task=TASKS[task],
            queue=queue,
            tenant=f"tenant-{tenant:05}",
            dependency=DEPENDENCIES[task % len(DEPENDENCIES)],
            key=f"order-{number}" if number % 100 == 7 else "",
            payload=f"{kind} {number} ".encode().ljust(PAYLOAD_BYTES, b"x"),
            max_attempts=5,
            created_at=now,
            due_at=self._now + DAY_MS + number if is_scheduled else now,
            waiting_for="schedule" if is_scheduled else "turn",
        )

    async def _settle(self) -> bool:
        """Settle what was claimed, and claim more; return whether there was anything to do."""
        self._claims += 1
        claim = Claim(
            session="filler-0",
            number=self._claims,
            now=self._now,
            queues=QUEUES,
            limit=CLAIMED,
            changes=tuple(self._settlement(job) for job in self._claimed),
        )
        had_some = bool(self._claimed)
        self._claimed = (await self._store.claim(claim)).jobs
        return had_some or bool(self._claimed)

    def _settlement(self, job: Job) -> Change:
        return change.settle(job, self._move(job), job.created_at + 60_000)

    def _move(self, job: Job) -> Succeed | Dead | Cancel | Retry | Park:
        kind, number = job.payload.split(b" ")[:2]
        cause = _cause(int(number) * 31 % CAUSES)
        later = self._now + DAY_MS + int(number)
        match kind:
            case b"dead":
                self._ended.append(job.id)
                return Dead(death="exhausted" if int(number) % 3 else "permanent", cause=cause, charged=True)
            case b"cancelled":
                return Cancel(by="ana", reason="the order was cancelled")
            case b"parked" if job.dependency:
                return Park(gate=job.dependency, due_at=later, cause=cause, parked_until_at=later + DAY_MS)
            case b"parked" | b"retrying":
                return Retry(due_at=later, cause=cause, delay=3_600.0)
            case _:
                return Succeed()

    async def _describe(self) -> None:
        """Add what is not a job: groups of failures, entries and limits."""
        first, last = self._facts.started_at, self._now
        groups = [
            FailureGroup(fingerprint=name, template="<n> refused", first_seen_at=first, last_seen_at=last)
            for name in self._facts.fingerprints
        ]
        await self._store.describe_failures(groups)
        for number in range(ENTRIES):
            await set_entry(self._store, f"bench/{number:04}", 0, b"value", at=self._now)
        limited = range(min(LIMITED_TENANTS, self._sizes.tenants))
        updates = [_limit(number) for number in limited]
        for start in range(0, len(updates), 100):
            await self._store.update_limits(updates[start : start + 100], self._now, PROGRAM)


def _cause(number: int) -> Cause:
    return Cause(
        reason=f"451 4.7.{number} Service unavailable - try again later (mx{number}.example.net)",
        code=f"code-{number % 20:02}",
        kind="transient",
        fingerprint=f"{number:016x}",
        type="smtplib.SMTPServerDisconnected",
    )


def _limit(number: int) -> LimitUpdate:
    return LimitUpdate(subject="tenant", queue=QUEUES[0], name=f"tenant-{number:05}", max_running=10)
