"""Stores that fail when they are told to; and what becomes of a job when a store fails, at every call there is."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from reprieve import Policy, Reprieve, current_job
from reprieve.backoff import fixed
from reprieve.errors import StoreError
from reprieve.producer import repeat_while_unreachable
from reprieve.stores.open import open_store
from reprieve.stores.protocol import Filter, Heartbeat, Store
from reprieve.testing import FakeClock, Fault, FaultyStore, adrain, crash_points
from reprieve.worker.isolation import Processes
from reprieve.worker.worker import Worker

REFUSED = ConnectionError("refused")


async def work(store: Store) -> list[int]:
    """Enqueue, fail, retry and succeed in a real worker; answer the numbers of the attempts."""
    app = Reprieve("sqlite://:memory:")
    attempts: list[int] = []
    is_done = asyncio.Event()

    @app.task(name="flaky", policy=Policy(max_attempts=3, backoff=fixed("1ms")), dependency="shop")
    async def flaky() -> None:
        attempts.append(current_job().attempt)
        if len(attempts) == 1:
            raise REFUSED
        is_done.set()

    with app.override(store=store):
        await flaky.aenqueue()
        heartbeat = Heartbeat(session="worker", now=app.clock.now(), lease=600, slots=5, is_new=True)
        await repeat_while_unreachable(lambda: store.heartbeat(heartbeat))
        worker = Worker(app, "worker", slots=5, isolation=Processes())
        working = asyncio.create_task(worker.run())
        async with asyncio.timeout(30):
            await is_done.wait()
            worker.stop()
            await working
    return attempts


async def drained(store: Store) -> list[int]:
    """Do the same in a drain."""
    app = Reprieve("sqlite://:memory:", clock=FakeClock())
    attempts: list[int] = []

    @app.task(name="flaky", dependency="shop")
    def flaky() -> None:
        attempts.append(current_job().attempt)
        if len(attempts) == 1:
            raise REFUSED

    with app.override(store=store):
        await flaky.aenqueue()
        await adrain(app)
    return attempts


@pytest.mark.parametrize("scenario", [work, drained])
async def test_no_job_is_lost_or_run_twice_whichever_call_fails(
    scenario: Callable[[Store], Awaitable[list[int]]],
) -> None:
    faults: set[str] = set()
    async for store in crash_points(scenario):
        attempts = await scenario(store)
        jobs = (await store.behind.find(Filter(), 0)).jobs
        assert [(job.state, job.attempt) for job in jobs] == [("succeeded", 2)], store.fault
        assert attempts == [1, 2], store.fault
        faults |= {f"{store.fault.operation} {store.fault.when}"} if store.fault and store.has_failed else set()
    assert faults >= {
        f"{operation} {when}" for operation in ("enqueue", "claim", "heartbeat") for when in ("before", "after")
    }


@pytest.mark.parametrize(("when", "count"), [("before", 0), ("after", 1)])
async def test_a_call_fails_before_or_after_it_is_done(when: str, count: int) -> None:
    fault = Fault(operation="enqueue", number=2, when="before" if when == "before" else "after")
    store = FaultyStore(open_store("sqlite://:memory:"), fault)
    app = Reprieve("sqlite://:memory:", clock=FakeClock())

    @app.task
    def task() -> None:
        pass

    with app.override(store=store):
        jobs = [app.producer.job_of(task.call()) for _ in range(2)]
        await store.enqueue(jobs[:1], 0)
        with pytest.raises(StoreError, match=f"the store failed at enqueue 2, {when} it was done"):
            await store.enqueue(jobs[1:], 0)
        assert store.has_failed
        assert len((await store.find(Filter(), 0)).jobs) == 1 + count
        assert len(await store.enqueue(jobs[1:], 0)) == 1
        assert store.calls == {"enqueue": 3, "find": 1}
    await store.close()
