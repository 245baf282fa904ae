"""Draining: everything that waits is run, by a real worker that never waits."""

import asyncio
import os
import sys
import threading
from collections.abc import Awaitable, Callable

import pytest

from reprieve import Cancel, Fail, Policy, Reprieve, Retry, Snooze, current_job
from reprieve.backoff import Exponential
from reprieve.context import Running
from reprieve.errors import EndlessDrain, PayloadTooLarge, ReprieveError
from reprieve.stores.protocol import Claim, Filter, Heartbeat, LimitUpdate
from reprieve.testing import FakeClock, adrain, drain
from reprieve.testing.conformance.stage import PROGRAM
from reprieve.testing.fault import Fault, FaultyStore

REFUSED = ConnectionError("refused")
HOPELESS = Fail("hopeless")
SOON = Policy(max_attempts=4, backoff=Exponential("60s", factor=2))


def test_an_empty_store_is_drained_at_once(app: Reprieve) -> None:
    drained = drain(app)
    assert (drained.ran, drained.waiting) == (0, 0)


def test_functions_and_coroutines_are_run(app: Reprieve) -> None:
    seen: list[str] = []

    @app.task
    def plain(word: str) -> None:
        seen.append(word)

    @app.task
    async def loops(word: str) -> None:
        await asyncio.sleep(0)
        seen.append(word)

    plain.enqueue("a")
    loops.enqueue("b")
    assert drain(app).succeeded == 2
    assert sorted(seen) == ["a", "b"]


def test_the_clock_jumps_from_retry_to_retry(app: Reprieve, clock: FakeClock) -> None:
    moments: list[int] = []
    start = clock.now()

    @app.task(policy=SOON)
    def fail() -> None:
        moments.append((clock.now() - start) // 1_000)
        raise REFUSED

    job = fail.enqueue()
    drained = drain(app)
    assert moments == [0, 60, 180, 420]
    assert (drained.ran, drained.retried, drained.dead) == (4, 3, 1)
    assert [attempt.ending for attempt in drained.attempts] == ["retried", "retried", "retried", "dead"]
    assert drained.attempts[-1].reason == "refused"
    assert isinstance(drained.attempts[-1].error, ConnectionError)
    assert job.fetch().death == "exhausted"


def test_a_schedule_is_jumped_to(app: Reprieve, clock: FakeClock) -> None:
    start = clock.now()

    @app.task
    def later() -> int:
        return clock.now()

    later.using(delay="3d").enqueue()
    assert drain(app).succeeded == 1
    assert clock.now() - start == 3 * 86_400_000


def test_the_machines_clock_is_not_waited_for() -> None:
    with Reprieve("sqlite://:memory:") as app:

        @app.task
        def work() -> None:
            pass

        work.enqueue()
        work.using(delay="1h").enqueue()
        drained = drain(app)
        assert (drained.succeeded, drained.waiting) == (1, 1)


def test_a_drain_goes_no_further_than_it_is_told(app: Reprieve, clock: FakeClock) -> None:
    @app.task
    def work() -> None:
        pass

    start = clock.now()
    for delay in ("1m", "10m", "11m"):
        work.using(delay=delay).enqueue()
    drained = drain(app, within="10m")
    assert (drained.succeeded, drained.waiting) == (2, 1)
    assert clock.now() - start == 600_000


def test_another_clock_can_be_handed_in(app: Reprieve, clock: FakeClock) -> None:
    @app.task
    def work() -> int:
        return app.clock.now()

    work.using(delay="1h").enqueue()
    other = FakeClock(clock.now())
    assert drain(app, other).succeeded == 1
    assert other.now() - clock.now() == 3_600_000
    assert app.clock is clock


def test_what_a_task_may_say_is_told_apart(app: Reprieve) -> None:
    @app.task(policy=SOON)
    def say(word: str) -> object:
        match word if current_job().attempt == 1 else "done":
            case "snooze":
                raise Snooze(60)
            case "retry":
                raise Retry(after="1s")
            case "fail":
                raise HOPELESS
            case "cancel":
                return Cancel("nothing left to do")
            case _:
                return None

    for word in ("snooze", "retry", "fail", "cancel", "done"):
        say.enqueue(word)
    drained = drain(app)
    assert (drained.snoozed, drained.retried, drained.dead, drained.cancelled) == (1, 1, 1, 1)
    assert (drained.succeeded, drained.ran, drained.parked, drained.waiting) == (3, 7, 0, 0)


def test_jobs_that_tasks_enqueue_are_run_also_in_queues_of_their_own(app: Reprieve) -> None:
    @app.task
    def second() -> None:
        pass

    @app.task
    def first() -> None:
        second.using(queue="never heard of").enqueue()

    @app.task
    async def third() -> None:
        second.enqueue()
        await second.using(queue="another").aenqueue()

    first.enqueue()
    third.enqueue()
    assert drain(app).succeeded == 5


async def test_coroutines_can_drain_in_their_own_loop(app: Reprieve) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    @app.task
    async def work() -> None:
        loops.append(asyncio.get_running_loop())

    await work.aenqueue()
    assert (await adrain(app)).succeeded == 1
    assert loops == [asyncio.get_running_loop()]
    with pytest.raises(ReprieveError, match="await adrain"):
        drain(app)


def test_a_job_that_always_comes_back_is_named(app: Reprieve) -> None:
    @app.task(name="poll")
    def poll() -> None:
        raise Snooze(60)

    job = poll.enqueue()
    with pytest.raises(EndlessDrain, match=rf"20 attempts .* job {job.id} of poll was tried 20 times and was snoozed"):
        drain(app, at_most=20)
    assert job.fetch().state == "waiting"
    assert drain(app, within="5m").snoozed == 6


def test_an_endless_drain_has_no_other_error_behind_it(app: Reprieve) -> None:
    @app.task
    def again() -> None:
        raise Snooze(1)

    again.enqueue()
    with pytest.raises(EndlessDrain) as endless:
        drain(app, at_most=3)
    assert endless.value.__context__ is None


def test_a_drain_that_raises_ends_at_the_first_failure(app: Reprieve) -> None:
    @app.task
    def pick(number: int) -> int:
        return [1, 2][number]

    pick.enqueue(0)
    broken = pick.enqueue(9)
    with pytest.raises(IndexError, match="list index out of range") as raised:
        drain(app, raises=True)
    assert any(entry.name == "pick" for entry in raised.traceback)
    assert raised.value.__context__ is None
    assert (broken.fetch().attempt, broken.fetch().waiting_for) == (1, "retry")


def test_a_drain_that_raises_lets_pass_what_is_no_failure(app: Reprieve) -> None:
    @app.task
    def later() -> None:
        if current_job().attempt == 1:
            raise Snooze(1)

    later.enqueue()
    assert drain(app, raises=True).succeeded == 1


def test_a_task_that_always_enqueues_another_job_is_named(app: Reprieve) -> None:
    @app.task(name="breed")
    def breed() -> None:
        breed.enqueue()

    breed.enqueue()
    with pytest.raises(EndlessDrain, match="20 of them were different jobs of breed"):
        drain(app, at_most=20)


def test_as_many_attempts_as_allowed_are_no_endless_drain(app: Reprieve) -> None:
    @app.task
    def work(number: int) -> None:
        pass

    app.enqueue_many(work.call(number) for number in range(20))
    assert drain(app, at_most=20).succeeded == 20


def test_tenants_take_turns_as_with_any_worker(app: Reprieve) -> None:
    served: list[str] = []

    @app.task
    def work() -> None:
        served.append(current_job().tenant)

    for tenant in ("ana", "bea"):
        app.enqueue_many(work.using(tenant=tenant).call() for _ in range(10))
    drain(app)
    assert served != sorted(served)
    assert "ana, ana, ana, ana" not in ", ".join(served[:-3])


def test_one_job_runs_at_a_time(app: Reprieve) -> None:
    under_way, most = 0, 0
    lock = threading.Lock()

    @app.task
    async def work() -> None:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        await asyncio.sleep(0)
        with lock:
            under_way -= 1

    app.enqueue_many(work.call() for _ in range(10))
    drain(app)
    assert most == 1


def test_a_task_that_takes_too_long_is_stopped_as_by_a_worker(app: Reprieve) -> None:
    @app.task(timeout="50ms", policy=Policy(max_attempts=2))
    async def hang() -> None:
        await asyncio.Event().wait()

    job = hang.enqueue()
    drained = drain(app)
    assert (drained.retried, drained.dead) == (1, 1)
    assert drained.attempts[0].reason == "timed out after 0.05 s"
    assert job.fetch().death == "exhausted"


def test_a_function_that_outlasts_its_timeout_is_left_behind(app: Reprieve) -> None:
    released = threading.Event()

    @app.task(timeout="50ms", policy=Policy(max_attempts=2))
    def hang() -> None:
        released.wait(30)

    hang.enqueue()
    try:
        assert drain(app).dead == 1
    finally:
        released.set()


def test_a_task_for_a_process_of_its_own_runs_in_this_one(app: Reprieve) -> None:
    @app.task(executor="process", result_ttl="1h")
    def where() -> int:
        return os.getpid()

    job = where.enqueue()
    assert drain(app).succeeded == 1
    assert job.result() == os.getpid()


def test_progress_and_cancel_requests_reach_the_store(app: Reprieve) -> None:
    @app.task
    async def work() -> None:
        await app.job(current_job().id).acancel(by="ana", reason="changed my mind")
        await asyncio.Event().wait()

    job = work.enqueue()
    assert drain(app).cancelled == 1
    assert job.fetch().state == "cancelled"


async def test_progress_that_the_store_did_not_take_is_written_later(app: Reprieve) -> None:
    store = FaultyStore(app.store, Fault(operation="annotate", number=1, when="before"))

    @app.task
    async def work() -> None:
        current_job().progress(0.5)
        async with asyncio.timeout(10):
            while await app.job(current_job().id).aprogress() is None:
                await app.store.wait((), 0.1)

    with app.override(store=store):
        await work.aenqueue()
        drained = await adrain(app)
    assert store.has_failed
    assert (drained.ran, drained.succeeded) == (1, 1)


def test_progress_over_the_limit_is_refused_in_the_task(app: Reprieve) -> None:
    seen: list[object] = []

    @app.task
    async def work() -> None:
        with pytest.raises(PayloadTooLarge, match=r"has 300,002 bytes, and the store takes 262,144"):
            current_job().progress("x" * 300_000)
        current_job().progress("less")
        async with asyncio.timeout(10):
            while not seen:
                await app.store.wait((), 0.1)
                seen.extend(filter(None, [await app.job(current_job().id).aprogress()]))

    work.enqueue()
    assert drain(app).succeeded == 1
    assert seen == ["less"]


def test_middleware_goes_around_every_attempt(app: Reprieve) -> None:
    seen: list[str] = []

    async def note(running: Running, proceed: Callable[[], Awaitable[object]]) -> object:
        seen.append(running.id)
        return await proceed()

    @app.task
    def work() -> None:
        pass

    app.middleware.append(note)
    job = work.enqueue()
    drain(app)
    assert seen == [job.id]
    assert app.middleware == [note]


def test_an_outage_is_sat_out_on_the_gate(app: Reprieve, clock: FakeClock) -> None:
    back_at = clock.now() + 600_000
    calls = 0

    @app.task(dependency="ses", policy=Policy(max_attempts=3))
    def send(number: int) -> None:
        nonlocal calls
        calls += 1
        if clock.now() < back_at:
            raise REFUSED

    app.enqueue_many(send.call(number) for number in range(100))
    drained = drain(app)
    assert (drained.succeeded, drained.dead, drained.waiting) == (100, 0, 0)
    assert drained.parked > 0
    assert calls < 250


def test_a_drain_knows_the_gates_of_the_drain_before(app: Reprieve, clock: FakeClock) -> None:
    is_down = True

    @app.task(dependency="ses", policy=Policy(max_attempts=3))
    def send(number: int) -> None:
        if is_down:
            raise REFUSED

    app.enqueue_many(send.call(number) for number in range(40))
    assert drain(app, within="30s").waiting == 40
    is_down = False
    assert drain(app).succeeded == 40


def test_a_job_that_a_person_holds_back_is_left_waiting(app: Reprieve, clock: FakeClock) -> None:
    @app.task(dependency="ses")
    def send() -> None:
        pass

    send.enqueue()
    asyncio.run(
        app.store.update_limits([LimitUpdate(subject="dependency", name="ses", permits=0)], clock.now(), PROGRAM)
    )
    drained = drain(app)
    assert (drained.ran, drained.waiting) == (0, 1)


def test_jobs_of_a_worker_that_died_are_taken_back_when_its_time_is_up(app: Reprieve, clock: FakeClock) -> None:
    @app.task
    def work() -> None:
        pass

    async def crash() -> None:
        now = clock.now()
        await app.store.heartbeat(Heartbeat(session="gone", now=now, lease=15, slots=1, is_new=True))
        await app.store.claim(Claim(session="gone", number=1, now=now, queues=("default",), limit=1))

    job = work.enqueue()
    asyncio.run(crash())
    assert drain(app).ran == 0
    clock.advance("16s")
    assert drain(app).succeeded == 1
    assert job.fetch().crashes == 1


def test_what_a_test_says_inside_of_a_task_fails_the_test(app: Reprieve) -> None:
    @app.task
    def work() -> None:
        pytest.fail("not so")

    work.enqueue()
    with pytest.raises(pytest.fail.Exception, match="not so"):
        drain(app)


def test_a_drain_leaves_no_session_behind(app: Reprieve, clock: FakeClock) -> None:
    @app.task
    def work() -> None:
        pass

    work.enqueue()
    drain(app)
    assert asyncio.run(app.store.find(Filter(statuses=frozenset({"running"})), clock.now())).jobs == ()


def test_a_drain_tells_what_happened(app: Reprieve) -> None:
    @app.task(name="send", policy=Policy(max_attempts=1))
    def send() -> None:
        raise REFUSED

    job = send.enqueue()
    assert repr(drain(app)) == f"<1 ran, 0 still waiting\n  <send {job.id} dead after attempt 1: refused>>"


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_task_that_exits_fails_and_ends_nothing_else(app: Reprieve, kind: str) -> None:
    @app.task(name="plain", policy=Policy(max_attempts=1))
    def plain() -> None:
        sys.exit(2)

    @app.task(name="async", policy=Policy(max_attempts=1))
    async def coroutine() -> None:
        sys.exit(2)

    (plain if kind == "plain" else coroutine).enqueue()
    assert drain(app).dead == 1


def test_a_task_of_a_process_of_its_own_ends_at_its_timeout(app: Reprieve) -> None:
    @app.task(executor="process", timeout="50ms", policy=Policy(max_attempts=1))
    async def wait() -> None:
        await asyncio.Event().wait()

    wait.enqueue()
    (attempt,) = drain(app).attempts
    assert (attempt.ending, attempt.job.cause and attempt.job.cause.code) == ("dead", "timeout")


def test_time_that_passes_in_a_drain_ends_jobs_past_their_deadline(app: Reprieve, clock: FakeClock) -> None:
    @app.task
    def plain() -> None: ...

    paused = LimitUpdate(subject="task", name=plain.name, permits=0)
    asyncio.run(app.store.update_limits([paused], clock.now(), PROGRAM))
    job, other = plain.using(deadline="1h").enqueue(), plain.using(deadline="1d").enqueue()
    assert drain(app, within="30m").waiting == 2
    drain(app, within="31m")
    page = asyncio.run(app.store.find(Filter(ids=(job.id, other.id)), clock.now()))
    assert {found.id: (found.state, found.death) for found in page.jobs} == {
        job.id: ("dead", "expired"),
        other.id: ("waiting", None),
    }
