"""Crashes of the server under load: nothing that was acknowledged is lost, and nothing runs twice."""

import asyncio
import shutil

from reprieve.stores.protocol import Filter
from reprieve.stores.redis import RedisStore
from reprieve.testing.conformance.stage import Worker, enqueue, new_jobs, succeed
from tests.servers import redis as servers
from tests.stores.redis.load import Load
from tests.stores.redis.recount import complaints

CRASHES = 3


async def test_server_that_is_killed_and_started_again_loses_nothing_that_it_flushed() -> None:
    with servers.own(appendfsync="always") as server:
        store = RedisStore(server.url, durability="strict")
        load = Load(store)

        async def crash() -> None:
            for number in range(CRASHES):
                await load.reach(200 * (number + 1))
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)

        await load.run(asyncio.create_task(crash()))
        assert load.refused == 0
        assert load.settled.keys() == load.acknowledged
        assert set(load.runs.values()) == {1}
        assert set(load.settled.values()) == {1}
        assert await store.tally("status", Filter(statuses=frozenset({"ready", "running"})), 0) == {}
        with server.client() as client:
            assert complaints(client, "{reprieve:0}") == []
        await store.close()


async def test_job_whose_settlement_the_server_has_lost_runs_again() -> None:
    with servers.own(appendfsync="always") as server:
        store = RedisStore(server.url)
        await enqueue(store, *new_jobs(store, 3))
        worker = await Worker.open(store)
        kept, *done = await worker.take(3)
        server.kill()
        written, saved = server.folder / "appendonlydir", server.folder / "saved"
        shutil.copytree(written, saved)
        server.start()
        assert await worker.settle(*map(succeed, done)) == ["applied", "applied"]
        server.kill()
        shutil.rmtree(written)
        saved.rename(written)
        server.start()
        await worker.take(3)
        again = await worker.take(3)
        assert {job.id for job in again} == {job.id for job in done}
        assert {(job.attempt, job.charged, job.crashes) for job in again} == {(2, 0, 0)}
        assert await worker.settle(succeed(kept), *map(succeed, again)) == ["applied"] * 3
        with server.client() as client:
            assert complaints(client, "{reprieve:0}") == []
        await store.close()


async def test_failover_is_gone_through() -> None:
    with servers.pair() as pair:
        store = RedisStore(pair.url)
        load = Load(store)

        async def fail_over() -> None:
            await load.reach(300)
            await asyncio.to_thread(pair.primary.kill)
            await asyncio.to_thread(pair.wait_for_failover)
            await load.reach(len(load.settled) + 300)

        await load.run(asyncio.create_task(fail_over()))
        # What the primary had answered and not yet told its replica is lost with it: that is the promise of a failover.
        lost = load.acknowledged - load.settled.keys()
        assert len(lost) <= 50
        with pair.replica.client() as client:
            assert complaints(client, "{reprieve:0}") == []
        await store.close()
