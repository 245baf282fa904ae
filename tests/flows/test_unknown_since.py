"""Since when a task is unknown: what workers that check at the same time write, and what their checks cost."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from reprieve import Job, Reprieve
from reprieve.core.audit import Author
from reprieve.registry import Registry
from reprieve.stores.open import open_store
from reprieve.stores.paginate import all_entries
from reprieve.stores.protocol import EntryWrite, EntryWritten, Filter, Heartbeat, Session, Store
from reprieve.testing import FakeClock
from reprieve.testing.fault import FaultyStore
from reprieve.worker import unknown_since
from reprieve.worker.unknown_since import ENTRY_KEY, Since, UnknownTask, change_unknown_since
from reprieve.worker.unknown_tasks import UnknownTasks

HOUR_MS, MINUTE_MS = 3_600_000, 60_000
NOW = 1_700_000_000_000


class Meanwhile(FaultyStore):
    """A store where something happens once between two calls of a worker."""

    after_sessions: Callable[[], Awaitable[object]] | None = None
    before_write: Callable[[], Awaitable[object]] | None = None

    async def sessions(self, now: int) -> list[Session]:
        found = await super().sessions(now)
        happens, self.after_sessions = self.after_sessions, None
        if happens is not None:
            await happens()
        return found

    async def compare_and_set(self, write: EntryWrite, now: int, author: Author) -> EntryWritten:
        happens, self.before_write = self.before_write, None
        if happens is not None:
            await happens()
        return await super().compare_and_set(write, now, author)


@pytest.fixture
async def store() -> AsyncIterator[Meanwhile]:
    store = Meanwhile(open_store("sqlite://:memory:"))
    yield store
    await store.close()


def knowing(*tasks: str) -> Registry:
    app = Reprieve("sqlite://:memory:")
    for task in tasks:
        app.task(name=task)(lambda: None)
    return app.registry


class Fleet:
    """Workers of two releases on one store: the new one has the task `new`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = FakeClock()

    def worker(self, *tasks: str) -> UnknownTasks:
        return UnknownTasks(self.store, self.clock, knowing(*tasks), HOUR_MS / 1_000)

    async def open_session(self, name: str, *tasks: str, lease: float = 30.0) -> None:
        now = self.clock.now()
        await self.store.heartbeat(Heartbeat(session=name, now=now, lease=lease, slots=1, is_new=True, tasks=tasks))

    def pass_time(self, ms: int) -> None:
        self.clock.set(self.clock.now() + ms)

    def job(self, task: str = "new", queue: str = "default", delay_ms: int = 0) -> Job:
        now = self.clock.now()
        return Job(id=self.store.new_id(now, queue), task=task, queue=queue, created_at=now, due_at=now + delay_ms)

    async def enqueue(self, *jobs: Job) -> None:
        await self.store.enqueue(jobs, self.clock.now())

    async def meet(self, worker: UnknownTasks) -> None:
        page = await self.store.find(Filter(statuses=frozenset({"ready"})), self.clock.now())
        worker.remove_from(list(page.jobs))

    async def statuses(self) -> dict[str, int]:
        return (await self.store.tally("status", Filter(), self.clock.now())).counts


@pytest.fixture
def fleet(store: Meanwhile) -> Fleet:
    return Fleet(store)


async def test_a_time_that_is_noted_after_a_worker_with_the_task_began_kills_no_job(
    fleet: Fleet, store: Meanwhile
) -> None:
    old, new = fleet.worker("known"), fleet.worker("known", "new")

    async def new_begins() -> None:
        await fleet.open_session("new", "known", "new", lease=2 * HOUR_MS / 1_000)
        await new.check()

    await fleet.open_session("old", "known")
    await fleet.enqueue(fleet.job())
    await fleet.meet(old)
    store.after_sessions = new_begins
    await old.check()
    assert await store.entry(ENTRY_KEY) is not None, "the old worker has not seen the new one, and is gone now"

    for _ in range(2 * 60 + 1):
        fleet.pass_time(MINUTE_MS)
        await new.check()
    # A rollback, just after the last worker that knew the task is gone.
    rolled_back = fleet.worker("known")
    await fleet.open_session("rolled-back", "known", lease=2 * HOUR_MS / 1_000)
    await fleet.meet(rolled_back)
    await rolled_back.check()
    fleet.pass_time(HOUR_MS - MINUTE_MS)
    await rolled_back.check()
    assert await fleet.statuses() == {"ready": 1}
    fleet.pass_time(MINUTE_MS)
    await rolled_back.check()
    assert await fleet.statuses() == {"dead": 1}


async def test_a_worker_deletes_times_of_its_tasks_again_and_again(store: Meanwhile) -> None:
    app = Reprieve("sqlite://:memory:")
    checks = UnknownTasks(store, app.clock, knowing("new"), unknown_after=0.2).run()
    async with asyncio.timeout(30):
        await anext(checks)
        for _ in range(2):
            await change_unknown_since(store, lambda _: {UnknownTask("default", "new"): 1}, NOW)
            while await all_entries(store):
                await anext(checks)


async def test_two_workers_that_write_at_once_lose_nothing(store: Meanwhile) -> None:
    one, two = UnknownTask("default", "one"), UnknownTask("default", "two")

    async def other_writes() -> None:
        await change_unknown_since(store, lambda since: since | {two: 2}, NOW)

    store.before_write = other_writes
    assert await change_unknown_since(store, lambda since: since | {one: 1}, NOW) == {one: 1, two: 2}
    assert await change_unknown_since(store, dict, NOW) == {one: 1, two: 2}


async def test_a_change_that_other_workers_keep_overtaking_is_left_to_the_next_check(store: Meanwhile) -> None:
    def overtaken(since: Since) -> Since:
        async def other_writes() -> None:
            await change_unknown_since(
                store, lambda since: {UnknownTask("other", "new"): max(since.values(), default=0) + 1}, NOW
            )

        store.before_write = other_writes
        return since | {UnknownTask("default", "new"): 1}

    assert await change_unknown_since(store, overtaken, NOW) == {}
    assert await change_unknown_since(store, dict, NOW) == {UnknownTask("other", "new"): unknown_since.MAX_WRITES}


async def test_the_oldest_times_are_forgotten_when_there_are_too_many(
    store: Meanwhile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unknown_since, "MAX_STORED_TASKS", 3)
    since = {UnknownTask("default", f"task-{at}"): at for at in (5, 1, 4, 2, 3)}
    assert sorted((await change_unknown_since(store, lambda _: since, NOW)).values()) == [3, 4, 5]


async def test_a_check_counts_each_queue_once_and_reads_no_other_entries(fleet: Fleet, store: Meanwhile) -> None:
    worker = fleet.worker("known")
    await fleet.open_session("old", "known")
    jobs = [fleet.job(f"new-{number}", queue) for number in range(40) for queue in ("a", "b")]
    await fleet.enqueue(*jobs)
    worker.remove_from(list(jobs))
    await worker.check()
    assert store.calls["tally"] == 0, "their jobs were met a moment ago"
    assert (store.calls["entries"], store.calls["compare_and_set"]) == (0, 1)

    store.calls.clear()
    fleet.pass_time(MINUTE_MS)
    await worker.check()
    assert (store.calls["tally"], store.calls["sessions"], store.calls["entry"]) == (2, 1, 1)
    assert store.calls["entries"] + store.calls["compare_and_set"] == 0
    assert len(worker.exclude) == 40

    store.calls.clear()
    worker.remove_from([fleet.job("another", "a")])
    await worker.check()
    assert store.calls["tally"] == 0, "the other tasks were checked a moment ago"
    assert len(worker.exclude) == 41


async def test_a_worker_that_has_met_no_unknown_task_reads_one_entry(fleet: Fleet, store: Meanwhile) -> None:
    worker = fleet.worker("known")
    await worker.check()
    await worker.check()
    assert dict(store.calls) == {"entry": 1}


async def test_times_of_a_queue_whose_jobs_are_gone_are_deleted_by_any_worker_that_counts_it(fleet: Fleet) -> None:
    gone = UnknownTask("default", "gone")
    await change_unknown_since(fleet.store, lambda _: {gone: 1}, NOW)
    worker = fleet.worker("known")
    await fleet.open_session("old", "known")
    await fleet.enqueue(fleet.job())
    await fleet.meet(worker)
    for _ in range(2):
        await worker.check()
        fleet.pass_time(MINUTE_MS)
    assert list(await change_unknown_since(fleet.store, dict, NOW)) == [UnknownTask("default", "new")]


async def test_many_jobs_that_are_not_ready_for_long_hide_no_other(fleet: Fleet) -> None:
    worker = fleet.worker("known")
    await fleet.open_session("old", "known", lease=3 * HOUR_MS / 1_000)
    for _ in range(3):
        await fleet.enqueue(*(fleet.job(delay_ms=HOUR_MS // 2) for _ in range(500)))
    await fleet.enqueue(fleet.job())
    await fleet.meet(worker)
    await worker.check()
    fleet.pass_time(HOUR_MS)
    await worker.check()
    assert worker.next_check_at == fleet.clock.now() + 1_000
    fleet.pass_time(1_000)
    await worker.check()
    # A tally looks at so many due jobs only; the others count as scheduled.
    counts = await fleet.statuses()
    assert (counts.pop("dead"), sum(counts.values())) == (1, 1_500)
    assert worker.next_check_at == fleet.clock.now() + MINUTE_MS - 1_000, "every job was looked at"
