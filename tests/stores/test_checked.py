"""What every store gets from `checked`, shown on stores that do nothing of it themselves."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import closing, nullcontext
from pathlib import Path

import pytest
from msgspec.structs import replace

from reprieve.core.ids import make_id
from reprieve.core.job import Job
from reprieve.errors import (
    InvalidId,
    InvalidName,
    PayloadTooLarge,
    StoreClosed,
    StoreUnreachable,
    ValidationError,
)
from reprieve.stores.capabilities import (
    AsyncTransactional,
    EnqueueRules,
    Faulty,
    Immediate,
    RelayTarget,
    StatementProvider,
    Transactional,
)
from reprieve.stores.checked import CheckedStore, checked
from reprieve.stores.forwarding import ForwardingStore
from reprieve.stores.open import open_store
from reprieve.stores.paginate import all_entries, all_limit_states
from reprieve.stores.postgres import PostgresStore
from reprieve.stores.protocol import (
    MAX_PAYLOAD_BYTES,
    Annotation,
    Claim,
    EventQuery,
    Filter,
    LimitUpdate,
    Store,
    Subject,
)
from reprieve.stores.redis import RedisStore
from reprieve.stores.sqlite import SqliteStore
from reprieve.testing import FaultyStore
from reprieve.testing.conformance.stage import (
    CANCEL_REQUEST,
    PROGRAM,
    START,
    Worker,
    new_job,
    new_jobs,
    set_entry,
    succeed,
)

CAPABILITIES: tuple[type, ...] = (Immediate, Transactional, AsyncTransactional, StatementProvider, RelayTarget, Faulty)


class OwnStore(ForwardingStore):
    """A store of another package, which checks and combines nothing itself."""

    def __init__(self) -> None:
        super().__init__(SqliteStore(None))
        self.batches: list[int] = []
        self.has_begun = asyncio.Event()
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.closed: int = 0
        self.error: Exception | None = None

    def _call(self, operation: str) -> nullcontext[None]:
        return nullcontext()

    async def enqueue(self, jobs: Sequence[Job], now: int) -> list[str]:
        self.batches.append(len(jobs))
        self.has_begun.set()
        await self.may_go_on.wait()
        if self.error is not None:
            raise self.error
        return await super().enqueue(jobs, now)

    async def close(self) -> None:
        self.closed += 1
        await super().close()


class TwoCalls(OwnStore):
    """Carries out two enqueues at a time."""

    enqueue_rules = EnqueueRules(max_concurrent_calls=2)


@pytest.fixture
def own() -> OwnStore:
    return OwnStore()


@pytest.fixture
async def store(own: OwnStore) -> AsyncIterator[CheckedStore]:
    store = checked(own)
    yield store
    own.may_go_on.set()
    await store.close()


async def stored(store: Store) -> set[str]:
    return {job.id for job in (await store.find(Filter(), START)).jobs}


# arguments


@pytest.mark.parametrize("field", ["queue", "task", "tenant", "dependency", "group", "key"])
@pytest.mark.parametrize("name", ["a\nb", "a\0b", "\x1b[2J", "a\u2028b", "x" * 256], ids=ascii)
async def test_name_that_cannot_be_printed_or_is_too_long_is_refused(
    store: CheckedStore, field: str, name: str
) -> None:
    with pytest.raises(InvalidName, match=rf"^{field} must be [01]–255 printable characters, got "):
        await store.enqueue([new_job(store), replace(new_job(store), **{field: name})], START)
    assert await stored(store) == set()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"queue": ""}, "queue must be 1–255 printable characters, got ''"),
        ({"task": ""}, "task must be 1–255 printable characters, got ''"),
        ({"priority": 0}, "priority must be a whole number from 1 to 9, got 0"),
        ({"priority": 10}, "priority must be a whole number from 1 to 9, got 10"),
    ],
    ids=str,
)
async def test_job_without_queue_task_or_priority_is_refused(
    store: CheckedStore, fields: dict[str, object], message: str
) -> None:
    with pytest.raises(ValidationError, match=f"^{message}$"):
        await store.enqueue([replace(new_job(store), **fields)], START)


async def test_largest_payload_is_stored_and_a_byte_more_is_refused(store: CheckedStore) -> None:
    largest = new_job(store, payload=b"x" * MAX_PAYLOAD_BYTES)
    larger = new_job(store, payload=b"x" * (MAX_PAYLOAD_BYTES + 1))
    with pytest.raises(PayloadTooLarge, match="262,145 bytes, and the store takes 262,144"):
        await store.enqueue([largest, larger], START)
    assert await stored(store) == set()
    await store.enqueue([largest], START)
    assert (await store.find(Filter(), START)).jobs == (largest,)


async def test_largest_payload_is_a_setting_of_open_store() -> None:
    store = open_store("sqlite://:memory:", largest_payload=10)
    with pytest.raises(PayloadTooLarge, match="11 bytes, and the store takes 10"):
        await store.enqueue([new_job(store, payload=b"x" * 11)], START)
    await store.close()


async def test_result_and_progress_are_as_large_as_a_payload_at_most(store: CheckedStore) -> None:
    worker = await Worker.open(store)
    await store.enqueue([new_job(store)], START)
    job, larger = await worker.one(), b"x" * (MAX_PAYLOAD_BYTES + 1)
    assert await worker.settle(succeed(job, result=larger, ttl=60.0)) == ["refused"]
    with pytest.raises(PayloadTooLarge, match="the progress has 262,145 bytes"):
        await store.annotate([Annotation(job_id=job.id, now=START, session="worker-1", progress=larger)])
    assert await worker.settle(succeed(job)) == ["applied"]


BAD_IDS = ["x\n", "", "018bcfe5-6800-7000-a7d8-cfec5f801000\n"]
BY_ID: dict[str, Callable[[Store, str], Awaitable[object]]] = {
    "enqueue": lambda store, job_id: store.enqueue([replace(new_job(store), id=job_id)], START),
    "annotate": lambda store, job_id: store.annotate([Annotation(job_id=job_id, now=START, cancel=CANCEL_REQUEST)]),
    "progress": lambda store, job_id: store.progress(job_id),
    "result": lambda store, job_id: store.result(job_id),
    "find": lambda store, job_id: store.find(Filter(ids=(job_id,)), START),
    "events": lambda store, job_id: store.events(job_id=job_id or "-"),
    "read_events": lambda store, job_id: store.read_events(EventQuery(job_id=job_id or "-")),
}


@pytest.mark.parametrize("job_id", BAD_IDS, ids=ascii)
@pytest.mark.parametrize("call", BY_ID)
async def test_text_that_is_no_id_is_refused(store: CheckedStore, call: str, job_id: str) -> None:
    with pytest.raises(InvalidId):
        await BY_ID[call](store, job_id)


async def test_id_is_found_however_it_is_written(store: CheckedStore) -> None:
    job = new_job(store)
    await store.enqueue([job], START)
    assert (await store.find(Filter(ids=(job.id.upper(),)), START)).jobs == (job,)


# Before 2020 and after 2089 a row has no number for it; in capitals it would be stored and never found again.
NO_ROW_IDS = [make_id(0, 1), make_id((1 << 48) - 1, 1), "018BCFE5-6800-7000-A7D8-CFEC5F801000"]


@pytest.mark.parametrize("job_id", [*BAD_IDS, *NO_ROW_IDS], ids=ascii)
async def test_id_that_the_store_cannot_keep_is_refused_however_it_is_enqueued(tmp_path: Path, job_id: str) -> None:
    store = open_store(f"sqlite:///{tmp_path}/jobs.db")
    job = replace(new_job(store), id=job_id)
    assert isinstance(store, Immediate)
    assert isinstance(store, Transactional)
    with pytest.raises(InvalidId):
        await store.enqueue([job], START)
    with pytest.raises(InvalidId):
        store.enqueue_sync([job], START)
    with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as connection:
        connection.execute("begin immediate")
        with pytest.raises(InvalidId):
            store.enqueue_in(connection, [job], START)
        good = new_job(store)
        store.enqueue_in(connection, [good], START)
        connection.execute("commit")
    assert await stored(store) == {good.id}
    await store.close()


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (LimitUpdate(subject="task", name=""), "task must be 1–255 printable characters"),
        (LimitUpdate(subject="task", name="a\nb"), "task must be 1–255 printable characters"),
        (LimitUpdate(subject="group", name="x" * 256), "group must be 1–255 printable characters"),
        (LimitUpdate(subject="tenant", name="ana"), "queue must be 1–255 printable characters, got ''"),
        (LimitUpdate(subject="task", name="send", weight=2.0), "only a tenant has a weight, not task 'send'"),
        (
            LimitUpdate(subject="tenant", name="ana", queue="mail", weight=0.0),
            r"weight of .* must be .*, got 0\.0",
        ),
        (
            LimitUpdate(subject="tenant", name=None, weight=2.0),
            "only a tenant has a weight, not every tenant",
        ),
        (
            LimitUpdate(subject="tenant_dependency", name="ana"),
            "dependency must be 1–255 printable characters, got ''",
        ),
        (
            LimitUpdate(subject="task", name="send", queue="mail"),
            "only a tenant has a queue, not task 'send'",
        ),
        (
            LimitUpdate(subject="queue", name=None, max_running=1 << 70),
            "max_running of every queue must be",
        ),
        (
            LimitUpdate(subject="task", name="send", pauses=("retry",)),
            "only a queue pauses retries and schedules, not task 'send'",
        ),
        (
            LimitUpdate(subject="queue", name="mail", pauses=("all",)),  # type: ignore[arg-type] # what is refused
            "pauses of queue 'mail' must be a tuple of schedule and retry, got",
        ),
        (
            LimitUpdate(subject="lane", name="x"),  # type: ignore[arg-type] # what is refused
            "the subject of limits must be one of queue, tenant, .*, got 'lane'",
        ),
        (
            LimitUpdate(subject="task", name=7),  # type: ignore[arg-type] # what is refused
            "task must be",
        ),
        (
            LimitUpdate(subject="task", name="send", permits=-1),
            "permits of task 'send' must be .* 0 or more, got -1",
        ),
        (
            LimitUpdate(subject="task", name="send", max_running=-1),
            "max_running of task 'send' must be .* 0 or more",
        ),
    ],
    ids=str,
)
async def test_limits_that_cannot_be_kept_are_refused(store: CheckedStore, update: LimitUpdate, message: str) -> None:
    good = LimitUpdate(subject="task", name="good", permits=0)
    with pytest.raises(ValidationError, match=message):
        await store.update_limits([good, update], START, PROGRAM)
    with pytest.raises(ValidationError, match=message):
        await set_entry(store, "leader", 0, b"me", [good, update], START)
    assert await all_limit_states(store, "task") == []
    assert await all_entries(store) == []


@pytest.mark.parametrize("limit", [0, -1])
async def test_page_without_room_for_anything_is_refused(store: CheckedStore, limit: int) -> None:
    with pytest.raises(ValidationError, match=f"limit must be a whole number of 1 or more, got {limit}"):
        await store.find(Filter(), START, limit=limit)
    with pytest.raises(ValidationError, match=f"limit must be a whole number of 1 or more, got {limit}"):
        await store.events(limit=limit)


# closing


async def test_closing_again_does_nothing(store: CheckedStore, own: OwnStore) -> None:
    await store.close()
    await store.close()
    assert own.closed == 1


async def test_closing_waits_for_calls_under_way_and_takes_no_more(store: CheckedStore, own: OwnStore) -> None:
    jobs = new_jobs(store, 3)
    own.may_go_on.clear()
    first = asyncio.create_task(store.enqueue(jobs[:1], START))
    await own.has_begun.wait()
    gathered = asyncio.create_task(store.enqueue(jobs[1:], START))
    await asyncio.sleep(0)
    ending = asyncio.create_task(store.close())
    await asyncio.sleep(0)
    with pytest.raises(StoreClosed, match=r"^the store was closed; open it again$"):
        await store.enqueue(jobs, START)
    assert own.closed == 0
    own.may_go_on.set()
    assert await first + await gathered == [job.id for job in jobs]
    await ending
    assert own.closed == 1


async def test_call_that_does_not_end_keeps_the_store_from_closing_for_a_while_only(
    store: CheckedStore, own: OwnStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reprieve.stores.calls.MAX_CLOSE_WAIT_SECONDS", 0.05)
    own.may_go_on.clear()
    stuck = asyncio.create_task(store.enqueue(new_jobs(store, 1), START))
    await own.has_begun.wait()
    await store.close()
    assert own.closed == 1
    own.may_go_on.set()
    with pytest.raises(StoreClosed):
        await stuck


def test_enqueue_that_ended_with_its_event_loop_does_not_keep_the_store_from_closing() -> None:
    store = checked(SqliteStore(None))

    async def leave_behind() -> set[asyncio.Task[list[str]]]:
        enqueues = {asyncio.create_task(store.enqueue(new_jobs(store, 1), START))}
        await asyncio.sleep(0)
        return enqueues

    asyncio.run(leave_behind())
    assert store._calls.under_way == 0  # noqa: SLF001 - what closing waits for
    asyncio.run(store.close())


async def test_closing_ends_a_wait(store: CheckedStore) -> None:
    waiting = asyncio.create_task(store.wait(("default",), 60.0))
    await asyncio.sleep(0)
    await store.close()
    with pytest.raises(StoreClosed):
        await waiting


@pytest.mark.parametrize("url", ["sqlite://:memory:", "postgresql://localhost:1/none", "redis://localhost:1"])
async def test_closed_store_says_so_in_the_same_words_whichever_it_is(url: str) -> None:
    store = open_store(url)
    job = new_job(store)
    await store.close()
    assert isinstance(store, Immediate)
    for call in (store.enqueue([job], START), store.limit_states("queue"), store.wait(("default",), 0.0)):
        with pytest.raises(StoreClosed, match=r"^the store was closed; open it again$"):
            await call
    with pytest.raises(StoreClosed, match=r"^the store was closed; open it again$"):
        store.enqueue_sync([job], START)


# combined enqueues


async def test_enqueues_that_come_while_one_is_under_way_become_one_call(store: CheckedStore, own: OwnStore) -> None:
    own.may_go_on.clear()
    calls = [asyncio.create_task(store.enqueue(new_jobs(store, 2), START))]
    await own.has_begun.wait()
    calls += [asyncio.create_task(store.enqueue(new_jobs(store, 2), START)) for _ in range(10)]
    await asyncio.sleep(0)
    own.may_go_on.set()
    ids = [job_id for known in await asyncio.gather(*calls) for job_id in known]
    assert own.batches == [2, 20]
    assert len(ids) == 22
    assert set(ids) == await stored(store)


async def test_store_may_ask_for_two_calls_at_a_time() -> None:
    own = TwoCalls()
    store = checked(own)
    await asyncio.gather(*(store.enqueue(new_jobs(store, 1), START) for _ in range(40)))
    assert sorted(own.batches) == [20, 20]
    await store.close()


async def test_error_that_all_would_get_is_not_asked_for_one_by_one(store: CheckedStore, own: OwnStore) -> None:
    own.error = StoreUnreachable("the server is away")
    calls = [store.enqueue(new_jobs(store, 1), START) for _ in range(5)]
    errors = await asyncio.gather(*calls, return_exceptions=True)
    assert all(error is own.error for error in errors)
    assert own.batches == [5]


async def test_enqueue_of_no_jobs_asks_the_store_nothing(store: CheckedStore, own: OwnStore) -> None:
    assert await store.enqueue([], START) == []
    assert own.batches == []


# excluded tasks


async def test_a_claim_that_excludes_too_many_tasks_is_refused(store: CheckedStore) -> None:
    claim = Claim(session="one", number=1, now=START, exclude=tuple(f"task-{number}" for number in range(10_001)))
    with pytest.raises(ValidationError, match="a claim can exclude 10,000 tasks at most, got 10,001"):
        await store.claim(claim)


async def test_a_claim_that_excludes_what_is_no_text_is_refused(store: CheckedStore) -> None:
    claim = Claim(session="one", number=1, now=START, exclude=("new", 7))  # type: ignore[arg-type] # a mistake
    with pytest.raises(ValidationError, match="excluded task must be text, got 7"):
        await store.claim(claim)


# capabilities


@pytest.mark.parametrize(
    "open_inner",
    [
        lambda: SqliteStore(None),
        lambda: PostgresStore("postgresql://localhost:1/none"),
        lambda: RedisStore("redis://localhost:1"),
        OwnStore,
        lambda: FaultyStore(SqliteStore(None)),
    ],
    ids=["sqlite", "postgresql", "redis", "own", "faulty"],
)
async def test_checked_store_has_exactly_the_capabilities_of_the_store_inside(open_inner: Callable[[], Store]) -> None:
    inner = open_inner()
    store = checked(inner)
    found = {capability for capability in CAPABILITIES if isinstance(store, capability)}
    assert found == {capability for capability in CAPABILITIES if isinstance(inner, capability)}
    await store.close()


@pytest.mark.parametrize("subject", ["queue", "tenant"])
async def test_what_needs_no_check_is_passed_on(store: CheckedStore, subject: Subject) -> None:
    await store.enqueue([new_job(store, tenant="ana")], START)
    names = [state.name for state in await all_limit_states(store, subject)]
    assert names == {"queue": ["default"], "tenant": ["ana"]}[subject]
    assert (await store.tally("tenant", Filter(), START)).counts == {"ana": 1}
