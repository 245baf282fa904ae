"""Failed writes: whichever statement fails, the call fails whole, and repeated it does what it should have done."""

import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from shutil import copy
from typing import Any, ClassVar, Literal

import pytest
from msgspec.structs import replace

from reprieve.core import change
from reprieve.core.change import Request
from reprieve.core.ids import make_id
from reprieve.core.job import CancelRequest, Cause, Job, Wait
from reprieve.core.move import Cancel, Dead, Park, Retry, Return, Succeed
from reprieve.core.status import Status
from reprieve.errors import StoreFull
from reprieve.stores.paginate import all_limit_states
from reprieve.stores.protocol import (
    Annotation,
    ChangeResult,
    Claim,
    Claimed,
    Filter,
    Heartbeat,
    LimitUpdate,
    Pruned,
    Retention,
)
from reprieve.stores.sqlite import SqliteStore
from reprieve.testing.conformance.stage import PROGRAM, set_entry
from tests.stores.sqlite.recount import complaints, content

START = 1_700_000_000_000
SECOND, DAY = 1_000, 86_400_000
CAUSE = Cause(reason="450 mailbox busy", code="450", kind="transient", fingerprint="busy")
ANA = Request(by="ana", reason="the provider is back", force=True)
CANCEL_REQUEST = CancelRequest(by="ana", reason="sent twice")


class FrailConnection(sqlite3.Connection):
    """A connection of which one statement fails before it is run, or one commit after it: its reply is lost."""

    countdown: ClassVar[int] = 0
    """Statements until one fails; 0 never."""
    moment: ClassVar[Literal["before", "after"]] = "before"
    failed: ClassVar[str] = ""

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:  # noqa: ANN401 - whatever a statement takes
        fails = self._counts(sql)
        if fails and self.moment == "before":
            raise broken(sql)
        cursor = super().execute(sql, *parameters)
        if fails:
            raise broken(sql)
        return cursor

    @classmethod
    def _counts(cls, sql: str) -> bool:
        """Count a statement. A listener's pragma is no part of the call; a rollback comes of a failure only."""
        is_meant = sql == "commit" if cls.moment == "after" else not sql.startswith(("pragma", "rollback"))
        if not cls.countdown or not is_meant:
            return False
        cls.countdown -= 1
        if cls.countdown == 0:
            cls.failed = sql
        return cls.countdown == 0


def broken(sql: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(f"disk I/O error in {sql[:60]!r}")
    error.sqlite_errorname = "SQLITE_IOERR_WRITE"
    return error


@pytest.fixture(autouse=True)
def _frail(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **options: connect(*args, **options, factory=FrailConnection))
    yield
    FrailConnection.countdown = 0


Answers = dict[str, Any]
Step = Callable[[SqliteStore, Answers], Awaitable[Any]]


def job(number: int, **fields: Any) -> Job:  # noqa: ANN401 - whatever a job is made of
    """Make a job whose id is the same in every run."""
    waiting_for: Wait = "schedule" if fields.get("due_at", START) > START else "turn"
    facts: dict[str, Any] = {"task": "send", "created_at": START, "due_at": START, "max_attempts": 10} | fields
    return Job(id=make_id(START, number), waiting_for=waiting_for, **facts)


JOBS = (
    job(1, tenant="a", dependency="ses"),
    job(2, tenant="a", dependency="ses", key="order-2"),
    job(3, tenant="b", group="night"),
    job(4, tenant="b", priority=1),
    job(5, tenant="c", dependency="ses", deadline_at=START + 20 * SECOND),
    job(6, tenant="c", due_at=START + 5 * SECOND),
    job(7, tenant="a", dependency="smtp"),
    job(8, tenant="d", task="report", deadline_at=START + 20 * SECOND),
    job(11, tenant="e", due_at=START + 25 * SECOND, deadline_at=START + 26 * SECOND),
)


async def open_one(store: SqliteStore, so_far: Answers) -> object:
    return await store.heartbeat(Heartbeat(session="one", now=START, lease=60, slots=10, is_new=True))


async def open_another(store: SqliteStore, so_far: Answers) -> object:
    return await store.heartbeat(Heartbeat(session="two", now=START, lease=60, slots=10, is_new=True))


async def set_limits(store: SqliteStore, so_far: Answers) -> None:
    ses = LimitUpdate(subject="dependency", name="ses", permits=2)
    await store.update_limits(
        [ses, LimitUpdate(subject="tenant", name="b", queue="default", weight=3.0, max_running=2)], START, PROGRAM
    )


async def enqueue(store: SqliteStore, so_far: Answers) -> object:
    return await store.enqueue(JOBS, START)


async def enqueue_a_key_again(store: SqliteStore, so_far: Answers) -> object:
    return await store.enqueue([job(9, tenant="a", key="order-2"), JOBS[0], job(10, tenant="f", key="order-10")], START)


async def claim(store: SqliteStore, so_far: Answers) -> object:
    return await store.claim(Claim(session="one", number=1, now=START, queues=("default",), limit=5))


async def annotate(store: SqliteStore, so_far: Answers) -> object:
    first, second, *_ = so_far["claim"].jobs
    annotations = [Annotation(job_id=job.id, now=START, cancel=CANCEL_REQUEST) for job in (first, second)]
    return await store.annotate(
        [*annotations, Annotation(job_id=second.id, now=START, session="one", progress=b"half")]
    )


async def settle_and_claim(store: SqliteStore, so_far: Answers) -> Claimed:
    one, two, three, four, five = so_far["claim"].jobs
    now = START + SECOND
    changes = (
        replace(change.settle(one, Succeed(), now), result=b"sent", result_ttl=60.0),
        change.settle(two, Retry(due_at=now + SECOND, cause=CAUSE, delay=1.0, max_attempts=10), now),
        change.settle(three, Park(gate="ses", due_at=now + SECOND, cause=CAUSE), now),
        change.settle(four, Dead(death="permanent", cause=CAUSE, charged=True), now),
        change.settle(five, Cancel(reason="asked to stop"), now),
    )
    return await store.claim(
        Claim(session="one", number=2, now=now, queues=("default", "other"), limit=2, changes=changes)
    )


async def give_back(store: SqliteStore, so_far: Answers) -> object:
    now = START + SECOND
    return await store.apply([change.settle(job, Return(), now) for job in so_far["settle_and_claim"].jobs], now)


async def claim_what_is_due(store: SqliteStore, so_far: Answers) -> object:
    return await store.claim(Claim(session="two", number=1, now=START + 10 * SECOND, queues=("default",), limit=10))


async def end_a_session(store: SqliteStore, so_far: Answers) -> object:
    return await store.heartbeat(Heartbeat(session="two", now=START + 11 * SECOND, lease=0, slots=10))


async def recover(store: SqliteStore, so_far: Answers) -> list[Job]:
    return await store.recover(START + 12 * SECOND)


async def take_back(store: SqliteStore, so_far: Answers) -> object:
    now = START + 12 * SECOND
    return await store.apply([change.settle(lost, Return(crashed=True), now) for lost in so_far["recover"]], now)


async def close_the_dead(store: SqliteStore, so_far: Answers) -> object:
    return await store.recover(START + 13 * SECOND)


async def hold_by_entry(store: SqliteStore, so_far: Answers) -> object:
    return await set_entry(
        store, "limiter/ses", 0, b"held", [LimitUpdate(subject="dependency", name="ses", permits=0)], START
    )


async def claim_past_a_deadline(store: SqliteStore, so_far: Answers) -> object:
    return await store.claim(Claim(session="one", number=3, now=START + 30 * SECOND, queues=("default",), limit=10))


async def find_dead(store: SqliteStore, so_far: Answers) -> object:
    return (await store.find(Filter(statuses=frozenset({"dead"})), START + 31 * SECOND)).jobs


async def find_waiting(store: SqliteStore, so_far: Answers) -> object:
    statuses = frozenset[Status]({"ready", "parked", "retrying"})
    return (await store.find(Filter(statuses=statuses), START + 31 * SECOND)).jobs


async def retry_and_cancel(store: SqliteStore, so_far: Answers) -> list[ChangeResult]:
    now = START + 31 * SECOND
    retried = [change.retry(job, replace(ANA, delay=float(n)), now, 60.0) for n, job in enumerate(so_far["find_dead"])]
    return await store.apply([*retried, *(change.cancel(job, ANA, now) for job in so_far["find_waiting"][:1])], now)


async def open_the_limiter(store: SqliteStore, so_far: Answers) -> None:
    await store.update_limits(
        [LimitUpdate(subject="dependency", name="ses", permits=None)], START + 32 * SECOND, PROGRAM
    )


async def settle_the_rest(store: SqliteStore, so_far: Answers) -> object:
    now = START + 40 * SECOND
    leased = so_far["claim_past_a_deadline"].jobs
    changes = tuple(change.settle(job, Dead(death="manual", cause=CAUSE), now) for job in leased)
    return await store.claim(Claim(session="one", number=4, now=now, queues=("default",), limit=1, changes=changes))


async def find_archived(store: SqliteStore, so_far: Answers) -> object:
    return (await store.find(Filter(statuses=frozenset({"dead"})), START + 41 * SECOND)).jobs


async def prune(store: SqliteStore, so_far: Answers) -> object:
    archived = so_far["find_archived"][:1]
    return await store.prune(Retention(now=START + 30 * DAY, succeeded=0, archived=archived))


async def look(store: SqliteStore, so_far: Answers) -> object:
    jobs = await store.find(Filter(), START + 41 * SECOND, limit=1_000)
    return (
        jobs,
        await store.tally("status", Filter(), START),
        await store.events(),
        await all_limit_states(store, "tenant"),
    )


SCENARIO: tuple[Step, ...] = (
    open_one,
    open_another,
    set_limits,
    enqueue,
    enqueue_a_key_again,
    claim,
    annotate,
    settle_and_claim,
    give_back,
    claim_what_is_due,
    end_a_session,
    recover,
    take_back,
    close_the_dead,
    hold_by_entry,
    claim_past_a_deadline,
    find_dead,
    find_waiting,
    retry_and_cancel,
    open_the_limiter,
    settle_the_rest,
    find_archived,
    prune,
    look,
)

AFTER_A_LOST_REPLY: dict[str, Callable[[Any], Any]] = {
    "give_back": lambda answers: ["already"] * len(answers),
    "take_back": lambda answers: ["already"] * len(answers),
    "hold_by_entry": lambda entry: None,
    "retry_and_cancel": lambda answers: ["already"] * len(answers),
    "prune": lambda pruned: Pruned(),
}
"""What a call is answered with when it was done already, where that differs."""

TOLD_AGAIN = {"set_limits": 3, "open_the_limiter": 1}
"""Notices that a repeated call tells the stream of events again."""


async def play(path: Path, countdown: int = 0) -> Answers:
    """Play the scenario; a call that fails is made again. Return what every call was answered with in the end."""
    with closing(sqlite3.connect(path)) as keeper:
        # The last process to close the file flushes it to the disk, which is not tested here.
        keeper.execute("pragma synchronous = off")
        keeper.execute("select count(*) from reprieve_job as job").fetchone()
        store = SqliteStore(path, durability="fast")
        FrailConnection.countdown, FrailConnection.failed = countdown, ""
        so_far: Answers = {}
        try:
            for step in SCENARIO:
                so_far[step.__name__] = await carry_out(step, store, so_far)
        finally:
            FrailConnection.countdown = 0
            await store.close()
        return so_far


async def carry_out(step: Step, store: SqliteStore, so_far: Answers) -> object:
    was_failed = FrailConnection.failed
    try:
        return await step(store, so_far)
    except StoreFull:
        assert FrailConnection.failed != was_failed
        so_far["failed"] = step.__name__
        return await step(store, so_far)


def expected(clean: Answers, failed: str) -> Answers:
    """Return what a run with one failure must be answered with."""
    if FrailConnection.moment == "after" and failed in AFTER_A_LOST_REPLY:
        clean = clean | {failed: AFTER_A_LOST_REPLY[failed](clean[failed])}
    if FrailConnection.moment == "after" and failed in TOLD_AGAIN:
        pruned: Any = clean["prune"]
        clean = clean | {"prune": replace(pruned, events=pruned.events + TOLD_AGAIN[failed])}
    return clean | {"failed": failed}


def lasting(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return a file's rows; a repeated call uses up numbers of sessions and events, and stamps are random."""
    used_up = ("reprieve_session", "reprieve_lease", "reprieve_counter", "sqlite_sequence")
    numbered = used_up if FrailConnection.moment == "after" else ()
    found = {table: rows for table, rows in content(path).items() if table not in numbered}
    return found | {"reprieve_entry_change": [row[:-1] for row in found["reprieve_entry_change"]]}


async def fail_everywhere(folder: Path) -> int:
    """Play the scenario with one failure, at each place in turn; answer how many places there are."""
    await SqliteStore(folder / "new.db").close()
    clean = await play(Path(copy(folder / "new.db", folder / "clean.db")))
    assert is_varied(clean)
    rows = lasting(folder / "clean.db")
    for number in count(1):
        path = Path(copy(folder / "new.db", folder / f"{number}.db"))
        answers = await play(path, number)
        if "failed" not in answers:
            return number - 1
        what = f"statement {number}, {FrailConnection.failed!r} of {answers['failed']}"
        assert answers == expected(clean, answers["failed"]), what
        assert complaints(path) == [], what
        assert lasting(path) == rows, what
    raise AssertionError


async def test_call_that_failed_at_any_statement_can_be_repeated(tmp_path: Path) -> None:
    assert await fail_everywhere(tmp_path) > 300


async def test_call_whose_reply_was_lost_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FrailConnection, "moment", "after")
    assert await fail_everywhere(tmp_path) >= len(SCENARIO)


async def test_call_that_failed_has_changed_nothing(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    store = SqliteStore(path, durability="fast")
    so_far: Answers = {}
    try:
        for step in SCENARIO:
            before = content(path)
            for number in count(1):
                FrailConnection.countdown = number
                try:
                    so_far[step.__name__] = await step(store, so_far)
                except StoreFull:
                    assert content(path) == before, f"statement {number} of {step.__name__}: {FrailConnection.failed!r}"
                else:
                    break
            FrailConnection.countdown = 0
            assert complaints(path) == []
    finally:
        FrailConnection.countdown = 0
        await store.close()


def is_varied(answers: Answers) -> bool:
    """Whether the scenario still does what it is there for."""
    jobs = answers["look"][0].jobs
    return (
        len(answers["give_back"]) > 0
        and len(answers["recover"]) > 1
        and len(answers["retry_and_cancel"]) > 1
        and {"expired", "manual"} <= {job.death for job in answers["find_archived"]}
        and {job.state for job in jobs} == {"waiting", "dead"}
        and all((answers["prune"].succeeded, answers["prune"].cancelled, answers["prune"].dead, answers["prune"].keys))
    )
