"""The parts of a worker, composed by hand: fetch, run, settle."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, nullcontext

import pytest
from msgspec.structs import replace

from reprieve import Policy, Reprieve
from reprieve.admin.cancel import cancel
from reprieve.admin.lookup import get_job
from reprieve.core import change
from reprieve.core.change import Request
from reprieve.core.job import CancelRequest
from reprieve.core.move import Return
from reprieve.core.outcome import Interrupted
from reprieve.stores.forwarding import ForwardingStore
from reprieve.stores.protocol import Annotation, Filter, Heartbeat, Order, Page, Store
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


class SlowToFind(ForwardingStore):
    """A store whose reply to a search comes late."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.has_read, self.may_reply = asyncio.Event(), asyncio.Event()

    def _call(self, operation: str) -> AbstractContextManager[object]:
        return nullcontext()

    async def find(self, wanted: Filter, now: int, cursor: str = "", limit: int = 100, order: Order = "oldest") -> Page:
        page = await super().find(wanted, now, cursor, limit, order)
        self.has_read.set()
        await self.may_reply.wait()
        return page


@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_what_was_read_of_an_earlier_attempt_does_not_end_the_next_one(
    app: Reprieve, *, is_cancelled: bool
) -> None:
    @app.task()
    async def wait() -> None:
        await asyncio.Event().wait()

    job_id = (await wait.aenqueue()).id
    slow = SlowToFind(app.store)
    with app.override(store=slow):
        parts, _ = parts_of(app)
        (first,) = (await parts.claims.claim(["default"], 1, [])).jobs
        attempt = parts.attempts.start(first, lambda _, __: None)
        if is_cancelled:
            request = CancelRequest(by="ana", reason="typo")
            await slow.annotate([Annotation(job_id=job_id, now=app.clock.now(), cancel=request)])
        else:
            await slow.apply([change.settle(first, Return(), app.clock.now())], app.clock.now())
        rounds = asyncio.Queue[None]()

        async def watch() -> AsyncIterator[None]:
            async for _ in parts.cancel_requests.watch(["default"]):
                rounds.put_nowait(None)
                yield

        async with asyncio.timeout(30), supervised_loops({"watching": watch}):
            await slow.has_read.wait()
            # While the reply is on its way, the attempt ends, and the next one of the same job begins here.
            attempt.stop("stopped")
            while parts.attempts.running:  # noqa: ASYNC110 - no event tells of it
                await asyncio.sleep(0)
            second = parts.attempts.start(replace(first, attempt=2, version=first.version + 2), lambda _, __: None)
            slow.may_reply.set()
            await rounds.get()
            assert second.reason is None
        second.stop("stopped")
    parts.attempts.close()


def test_the_table_keeps_the_last_attempts_that_have_ended() -> None:
    table = InFlightTable(SLOTS)
    ids = [f"0199c82c-c000-7abc-8def-{number:012x}" for number in range(3_000)]
    running = table.begin(ids[0], 7, 1.0)
    for number, job_id in enumerate(ids[1:], 1):
        table.end(table.begin(job_id, number, 1.0))
    assert [(one.job_id, one.attempt) for one in table.attempts()] == [(ids[0], 7)]
    # As many as a process holds at most that are not settled yet, and some more.
    assert table.ended() == {(job_id, number) for number, job_id in enumerate(ids)} & table.ended()
    assert table.ended() > {(job_id, number) for number, job_id in enumerate(ids) if number >= 2_500}
    table.abandon(running, 2.0)
    assert (ids[0], 7) in table.ended()
    table.close()


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
