"""The store away: a lock keeps all workers out, and nothing is lost, doubled or refused."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tests.flows.fleet import PATIENCE, Stage, calls, flow
from tests.flows.workload import nap, stay


@asynccontextmanager
async def locked(stage: Stage, seconds: float) -> AsyncGenerator[None]:
    """Lock the store for so many seconds, and until the work of the caller has begun."""
    lock = stage.ground.locked()
    await asyncio.to_thread(lock.__enter__)
    try:
        over = asyncio.get_running_loop().time() + seconds
        yield
        await asyncio.sleep(over - asyncio.get_running_loop().time())
    finally:
        lock.__exit__(None, None, None)


@flow
async def test_a_lock_on_the_store_is_waited_for(stage: Stage) -> None:
    tree = stage.hire(slots=8, lease=15.0, heartbeat=5.0)
    long = await stage.enqueue(*calls(nap, 4, 1.0), *calls(stay, 2, stage.mark("end")))
    await stage.running(*long)
    async with locked(stage, 3.0):
        producers = [asyncio.create_task(stage.enqueue_one(nap.call())) for _ in range(20)]
        await asyncio.sleep(0)
    jobs = [*long, *await asyncio.gather(*producers)]
    stage.release("end")
    after = await stage.succeeded(*jobs)
    assert {(job.attempt, job.charged, job.crashes) for job in after} == {(1, 0, 0)}
    assert len(stage.began()) == len(jobs)
    assert tree.status() is None


@flow
async def test_a_lock_that_outlasts_the_lease_loses_and_doubles_nothing(stage: Stage) -> None:
    trees = [stage.hire(slots=2) for _ in range(2)]
    long = await stage.enqueue(*calls(stay, 4, stage.mark("end")))
    await stage.running(*long)
    await stage.until(lambda: all(tree.children() for tree in trees), "all children run")
    async with locked(stage, stage.terms.lease + 2):
        pass
    more = await stage.enqueue(*calls(nap, 4))
    await stage.let_the_dead_be_buried()
    stage.release("end")
    after = await stage.succeeded(*long, *more, within=stage.terms.lease + PATIENCE)
    assert {(job.charged, job.crashes) for job in after} == {(0, 0)}
    assert len(stage.began()) == len(long) + len(more)
    assert [tree.status() for tree in trees] == [None, None]
