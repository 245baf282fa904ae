"""The parts of a worker, composed by hand: fetch, run, settle."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from reprieve import Policy, Reprieve
from reprieve.admin.cancel import cancel
from reprieve.admin.lookup import get_job
from reprieve.core.change import Request
from reprieve.core.outcome import Interrupted
from reprieve.stores.protocol import Heartbeat
from reprieve.testing import FakeClock
from reprieve.worker.in_flight import InFlightTable
from reprieve.worker.parts import WorkerParts
from reprieve.worker.supervised_loop import supervised_loops

SLOTS = 2


@pytest.fixture
async def app() -> AsyncIterator[Reprieve]:
    app = Reprieve("sqlite://:memory:", clock=FakeClock())
    await app.store.heartbeat(Heartbeat(session="one", now=app.clock.now(), lease=600.0, slots=SLOTS, is_new=True))
    yield app
    await app.aclose()


def parts_of(app: Reprieve) -> tuple[WorkerParts, InFlightTable]:
    in_flight = InFlightTable(SLOTS)
    return WorkerParts.assemble(app, "one", in_flight=in_flight, slots=SLOTS), in_flight


async def test_a_job_is_fetched_run_and_settled(app: Reprieve) -> None:
    @app.task(policy=Policy(max_attempts=1))
    async def greet(name: str) -> None:
        if name == "":
            raise ValueError(name)

    ids = [(await greet.aenqueue(name)).id for name in ("ana", "")]
    parts, in_flight = parts_of(app)
    claimed = await parts.claims.claim(["default"], SLOTS, [])
    ended = [await parts.attempts.run(job) for job in claimed.jobs]
    assert in_flight.attempts() == []
    assert not parts.attempts.running
    await parts.claims.claim([], 0, [parts.settlement.settle(job, outcome) for job, outcome in ended])
    assert [(await get_job(app.store, app.clock, job_id)).state for job_id in ids] == ["succeeded", "dead"]
    parts.attempts.close()


async def test_an_attempt_is_in_flight_until_it_is_stopped(app: Reprieve) -> None:
    has_started = asyncio.Event()

    @app.task()
    async def wait() -> None:
        has_started.set()
        await asyncio.Event().wait()

    job_id = (await wait.aenqueue()).id
    parts, in_flight = parts_of(app)
    (job,) = (await parts.claims.claim(["default"], 1, [])).jobs
    running = asyncio.create_task(parts.attempts.run(job))
    await has_started.wait()
    assert [attempt.job_id for attempt in in_flight.attempts()] == [job_id]
    parts.attempts.stop_all()
    assert await running == (job, Interrupted())
    assert in_flight.attempts() == []
    parts.attempts.close()


async def test_the_watch_ends_an_attempt_with_its_cancel_request(app: Reprieve) -> None:
    has_started = asyncio.Event()

    @app.task()
    async def wait() -> None:
        has_started.set()
        await asyncio.Event().wait()

    job_id = (await wait.aenqueue()).id
    parts, _ = parts_of(app)
    (job,) = (await parts.claims.claim(["default"], 1, [])).jobs
    watch = {"watching": lambda: parts.cancel_requests.watch(["default"])}
    async with supervised_loops(watch), asyncio.timeout(30):
        running = asyncio.create_task(parts.attempts.run(job))
        await has_started.wait()
        await cancel(app.store, app.clock, job_id, Request(by="ana", reason="sent twice"))
        ended, outcome = await running
    await parts.claims.claim([], 0, [parts.settlement.settle(ended, outcome)])
    assert (await get_job(app.store, app.clock, job_id)).state == "cancelled"
    parts.attempts.close()


async def test_a_caller_that_is_cancelled_ends_its_attempt(app: Reprieve) -> None:
    has_started, has_ended = asyncio.Event(), asyncio.Event()

    @app.task()
    async def wait() -> None:
        has_started.set()
        try:
            await asyncio.Event().wait()
        finally:
            has_ended.set()

    await wait.aenqueue()
    parts, _ = parts_of(app)
    (job,) = (await parts.claims.claim(["default"], 1, [])).jobs
    running = asyncio.create_task(parts.attempts.run(job))
    await has_started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    async with asyncio.timeout(30):
        await has_ended.wait()
    parts.attempts.close()


async def test_a_job_whose_deadline_passed_after_its_claim_does_not_start(app: Reprieve) -> None:
    calls: list[str] = []

    @app.task(dependency="ses")
    async def call() -> None:
        calls.append("called")

    job_id = (await call.using(deadline="1s").aenqueue()).id
    parts, in_flight = parts_of(app)
    (job,) = (await parts.claims.claim(["default"], SLOTS, [])).jobs
    assert isinstance(app.clock, FakeClock)
    app.clock.advance("1s")
    ended, outcome = await parts.attempts.run(job)
    assert (calls, outcome, parts.attempts.running, in_flight.attempts()) == ([], Interrupted(), {}, [])
    assert parts.attempts.under_way("ses") == 0
    again = await parts.claims.claim(["default"], SLOTS, [parts.settlement.settle(ended, outcome)])
    assert again.jobs == ()
    dead = await get_job(app.store, app.clock, job_id)
    assert (dead.death, dead.charged) == ("expired", 0)
    parts.attempts.close()
