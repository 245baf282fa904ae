"""What a worker does about tasks that it does not know, step by step on a clock that jumps."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from structlog.testing import capture_logs

from reprieve import Job, Reprieve, clock
from reprieve.config import Settings
from reprieve.stores.paginate import all_entries
from reprieve.stores.protocol import Claim, Filter, Heartbeat
from reprieve.testing import FakeClock, drain
from reprieve.testing.conformance.stage import set_entry
from reprieve.testing.fault import FaultyStore
from reprieve.worker.unknown_since import ENTRY_KEY
from reprieve.worker.unknown_tasks import UnknownTasks
from reprieve.worker.worker import Worker

HOUR, MINUTE = 3_600.0, 60.0


class Scene:
    """An app that lacks a task, and a worker's view of it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.app = Reprieve("sqlite://:memory:", clock=self.clock)

        @self.app.task(name="known")
        async def known() -> None: ...

        self.unknown = UnknownTasks(self.app.store, self.clock, self.app.registry, HOUR)
        self.newer = Reprieve(settings=Settings())

    async def enqueue(self, count: int = 1, task: str = "new", queue: str = "default") -> list[str]:
        """Enqueue jobs of a task that is in another app only."""
        found = next((one for one in self.newer.registry if one.name == task), None)
        if found is None:
            self.newer.task(name=task)(lambda: None)
        jobs = [self.job(task, queue) for _ in range(count)]
        return await self.app.store.enqueue(jobs, self.clock.now())

    def job(self, task: str, queue: str) -> Job:
        now = self.clock.now()
        return Job(id=self.app.store.new_id(now, queue), task=task, queue=queue, created_at=now, due_at=now)

    def newer_worker(self) -> UnknownTasks:
        """Return what a worker that knows the new tasks does about unknown ones."""
        return UnknownTasks(self.app.store, self.clock, self.newer.registry, HOUR)

    async def open_session(self, name: str, *tasks: str, lease: float = 10 * 86_400) -> None:
        heartbeat = Heartbeat(
            session=name, now=self.clock.now(), lease=lease, slots=1, is_new=True, host="host-1", tasks=tasks
        )
        assert await self.app.store.heartbeat(heartbeat)

    async def meet(self) -> list[Job]:
        """Let the worker meet the waiting jobs."""
        page = await self.app.store.find(Filter(statuses=frozenset({"ready"})), self.clock.now())
        return self.unknown.remove_from(list(page.jobs))

    async def states(self) -> list[tuple[str, str | None]]:
        page = await self.app.store.find(Filter(), self.clock.now())
        return sorted((job.state, job.death) for job in page.jobs)

    async def check_for(self, seconds: float) -> None:
        """Let time pass, with a check whenever one is due."""
        until = self.clock.now() + int(seconds * 1_000)
        while self.unknown.next_check_at is not None and self.unknown.next_check_at <= until:
            self.clock.set(max(self.clock.now(), self.unknown.next_check_at))
            await self.unknown.check()
        self.clock.set(until)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    await scene.open_session("me", "known")
    yield scene
    await scene.app.aclose()


async def test_jobs_of_unknown_tasks_are_taken_out_and_their_tasks_excluded(scene: Scene) -> None:
    await scene.enqueue(2)
    (known,) = await scene.enqueue(task="known")
    page = await scene.app.store.find(Filter(), scene.clock.now())
    jobs = list(page.jobs)
    unknown = scene.unknown.remove_from(jobs)
    assert ([job.task for job in unknown], [job.id for job in jobs]) == (["new", "new"], [known])
    assert scene.unknown.exclude == ("new",)


async def test_a_job_dies_when_no_session_has_known_its_task_for_an_hour(scene: Scene) -> None:
    await scene.enqueue()
    await scene.meet()
    await scene.check_for(HOUR - 1)
    assert await scene.states() == [("waiting", None)]
    await scene.check_for(MINUTE)
    assert await scene.states() == [("dead", "unknown_task")]
    await scene.check_for(2 * MINUTE)
    assert (scene.unknown.exclude, scene.unknown.next_check_at) == ((), None), "no job of it is left"
    assert await all_entries(scene.app.store) == []


async def test_a_job_lives_while_a_live_session_knows_its_task(scene: Scene) -> None:
    await scene.enqueue()
    await scene.meet()
    await scene.check_for(HOUR / 2)
    await scene.open_session("newer", "new", lease=HOUR)
    await scene.check_for(HOUR + MINUTE)
    assert await scene.states() == [("waiting", None)]
    # Its lease is over: the hour begins anew.
    await scene.check_for(HOUR - 2 * MINUTE)
    assert await scene.states() == [("waiting", None)]
    await scene.check_for(3 * MINUTE)
    assert await scene.states() == [("dead", "unknown_task")]


async def test_a_session_that_names_no_tasks_may_know_every_task(scene: Scene) -> None:
    await scene.open_session("of-an-older-release")
    await scene.enqueue()
    await scene.meet()
    await scene.check_for(3 * HOUR)
    assert await scene.states() == [("waiting", None)]


async def test_a_job_that_comes_late_waits_an_hour_of_its_own(scene: Scene) -> None:
    await scene.enqueue()
    await scene.meet()
    await scene.check_for(HOUR - MINUTE)
    await scene.enqueue()
    await scene.check_for(5 * MINUTE)
    assert await scene.states() == [("dead", "unknown_task"), ("waiting", None)]
    await scene.check_for(HOUR)
    assert await scene.states() == [("dead", "unknown_task")] * 2


async def test_a_worker_that_starts_and_knows_the_task_begins_the_hour_anew(scene: Scene) -> None:
    await scene.enqueue()
    await scene.meet()
    await scene.check_for(HOUR - MINUTE)
    await scene.newer_worker().check()
    assert await all_entries(scene.app.store) == []
    await scene.check_for(HOUR / 2)
    assert await scene.states() == [("waiting", None)]


async def test_a_task_that_is_registered_later_is_not_excluded_any_more(scene: Scene) -> None:
    await scene.enqueue()
    await scene.meet()
    await scene.unknown.check()
    assert scene.unknown.exclude == ("new",)
    for declaration in scene.newer.registry:
        scene.app.registry.add(declaration)
    await scene.check_for(MINUTE)
    assert [*scene.unknown.exclude, *await all_entries(scene.app.store)] == []


async def test_tasks_of_two_queues_are_told_apart(scene: Scene) -> None:
    await scene.enqueue(queue="a")
    await scene.meet()
    await scene.check_for(HOUR / 2)
    await scene.enqueue(queue="b")
    await scene.meet()
    await scene.check_for(HOUR / 2 + 2 * MINUTE)
    dead = await scene.app.store.find(Filter(queues=("a",)), scene.clock.now())
    waiting = await scene.app.store.find(Filter(queues=("b",)), scene.clock.now())
    assert [job.state for page in (dead, waiting) for job in page.jobs] == ["dead", "waiting"]
    assert scene.unknown.exclude == ("new",)


async def test_one_check_ends_a_bounded_number_of_jobs_and_goes_on_a_second_later(scene: Scene) -> None:
    for _ in range(3):
        await scene.enqueue(500)
    await scene.meet()
    await scene.unknown.check()
    scene.clock.set(scene.clock.now() + int(HOUR * 1_000))
    await scene.unknown.check()
    statuses = (await scene.app.store.tally("status", Filter(), scene.clock.now())).counts
    assert statuses == {"dead": 1_000, "ready": 500}
    assert scene.unknown.next_check_at == scene.clock.now() + 1_000
    await scene.check_for(1.0)
    assert (await scene.app.store.tally("status", Filter(), scene.clock.now())).counts == {"dead": 1_500}


async def test_an_entry_that_cannot_be_read_stops_nothing(scene: Scene) -> None:
    await set_entry(scene.app.store, ENTRY_KEY, 0, b"no JSON")
    await scene.unknown.check()
    await scene.enqueue()
    await scene.meet()
    await scene.check_for(HOUR + 2 * MINUTE)
    assert await scene.states() == [("dead", "unknown_task")]


async def test_the_warning_is_logged_at_once_and_once_a_minute(scene: Scene) -> None:
    await scene.enqueue()
    with capture_logs() as logs:
        await scene.meet()
        for _ in range(3):
            await scene.unknown.check()
        assert [(entry["event"], entry["task"], entry["queue"]) for entry in logs] == [
            ("unknown task", "new", "default")
        ]
        await scene.check_for(3 * MINUTE)
    assert len(logs) == 4


async def test_the_warning_names_sessions_that_know_the_task_and_is_logged_once(scene: Scene) -> None:
    for number in range(7):
        await scene.open_session(f"newer-{number}", "new", "known")
    await scene.enqueue()
    with capture_logs() as logs:
        await scene.meet()
        await scene.unknown.check()
        await scene.check_for(5 * MINUTE)
    (entry,) = logs
    assert (entry["knownBy"][0], len(entry["knownBy"]), entry["sessions"]) == ("newer-0 (host-1)", 5, 7)
    assert entry["reason"].endswith("its jobs wait for a worker that has it")


async def test_the_warning_says_which_task_may_be_meant(scene: Scene) -> None:
    await scene.enqueue(task="jobs.known")
    with capture_logs() as logs:
        await scene.meet()
        await scene.unknown.check()
    (entry,) = logs
    assert "no task is named 'jobs.known' in this worker, but 'known' is" in entry["reason"]


async def test_ten_thousand_unknown_tasks_are_excluded_and_the_oldest_goes_for_the_next(scene: Scene) -> None:
    jobs = [scene.job(f"new-{number}", "default") for number in range(10_001)]
    scene.unknown.remove_from(jobs)
    assert (len(scene.unknown.exclude), scene.unknown.exclude[0], scene.unknown.exclude[-1]) == (
        10_000,
        "new-1",
        "new-10000",
    )


async def test_a_job_that_is_not_given_back_yet_keeps_its_task_excluded(scene: Scene) -> None:
    await scene.enqueue()
    claim = Claim(session="me", number=1, now=scene.clock.now(), queues=("default",), limit=1)
    scene.unknown.remove_from(list((await scene.app.store.claim(claim)).jobs))
    await scene.unknown.check()
    assert scene.unknown.exclude == ("new",)


@pytest.mark.parametrize("unknown", [1, 30])
async def test_a_worker_that_meets_unknown_tasks_does_not_claim_in_a_loop(unknown: int) -> None:
    app = Reprieve("sqlite://:memory:")
    counting = FaultyStore(app.store)
    done: list[int] = []

    @app.task(name="known")
    async def known(number: int) -> None:
        done.append(number)

    with app.override(store=counting):
        now = app.clock.now()
        await counting.heartbeat(Heartbeat(session="one", now=now, lease=600.0, slots=2, is_new=True, tasks=("known",)))
        new = [Job(id=counting.new_id(now, "default"), task="new", created_at=now, due_at=now) for _ in range(unknown)]
        await counting.enqueue(new, now)
        worker = Worker(app, "one", slots=2)
        running = asyncio.create_task(worker.run())
        began = clock.ticks()
        await _until(lambda: worker.parts.unknown_tasks.exclude == ("new",))
        await known.aenqueue(1)
        await _until(lambda: done == [1])
        before, began = counting.calls["claim"], clock.ticks()
        await asyncio.sleep(3.0)
        claims, seconds = counting.calls["claim"] - before, clock.ticks() - began
        assert claims <= 3 * seconds + 5, f"{claims} claims in {seconds:.1f} s"
        await known.aenqueue(2)
        await _until(lambda: done == [1, 2])
        worker.stop()
        await running
        page = await counting.find(Filter(tasks=("new",)), app.clock.now())
        assert {(job.state, job.charged, job.due_at) for job in page.jobs} == {("waiting", 0, now)}
    await app.aclose()


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - what the worker does is seen from outside only
            await asyncio.sleep(0.01)


def test_a_drain_leaves_jobs_of_unknown_tasks_to_other_workers() -> None:
    app = Reprieve("sqlite://:memory:")
    newer = Reprieve(settings=Settings())
    ran: list[str] = []

    @app.task(name="known")
    def known() -> None:
        ran.append("known")

    with newer.override(store=app.store):
        unknown = newer.task(name="new")(lambda: None).enqueue()
    known.enqueue()
    drained = drain(app)
    assert (ran, drained.waiting, len(drained.attempts)) == (["known"], 1, 1)
    assert app.job(unknown.id).fetch().charged == 0
    app.close()


def test_a_drain_on_a_clock_that_jumps_ends_jobs_of_unknown_tasks() -> None:
    app = Reprieve("sqlite://:memory:", clock=FakeClock())
    newer = Reprieve(settings=Settings(), clock=app.clock)
    app.task(name="known")(lambda: None)
    with newer.override(store=app.store):
        unknown = newer.task(name="new")(lambda: None).enqueue()
    drained = drain(app)
    assert (drained.waiting, app.job(unknown.id).fetch().death) == (0, "unknown_task")
    app.close()


def test_a_drain_does_not_wait_for_a_task_that_another_session_knows() -> None:
    app = Reprieve("sqlite://:memory:", clock=FakeClock())
    newer = Reprieve(settings=Settings(), clock=app.clock)
    app.task(name="known")(lambda: None)
    heartbeat = Heartbeat(
        session="other", now=app.clock.now(), lease=86_400.0 * 3_650, slots=1, is_new=True, tasks=("new",)
    )
    asyncio.run(app.store.heartbeat(heartbeat))
    with newer.override(store=app.store):
        newer.task(name="new")(lambda: None).enqueue()
    assert drain(app).waiting == 1
    app.close()
