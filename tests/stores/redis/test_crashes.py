"""Crashes of the server under load: nothing that was acknowledged is lost, and nothing runs twice."""

import asyncio
import shutil
import signal
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import redis
import uvloop

from reprieve.clock import ticks
from reprieve.errors import StoreUnreachable, UnsafeStore
from reprieve.stores.protocol import Filter
from reprieve.stores.redis import RedisStore
from reprieve.stores.redis.server_checks import Durability
from reprieve.testing.conformance.stage import START, Worker, enqueue, new_jobs, succeed
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
        assert load.settled.keys() == load.acknowledged.keys()
        assert set(load.runs.values()) == {1}
        assert set(load.settled.values()) == {1}
        assert (await store.tally("status", Filter(statuses=frozenset({"ready", "running"})), 0)).counts == {}
        with server.client() as client:
            assert complaints(client, "{reprieve:0}") == []
        await store.close()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_node_of_a_cluster_that_is_killed_and_started_again_loses_nothing_that_it_flushed(
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    with servers.cluster(appendfsync="always") as cluster:

        async def story() -> None:
            store = RedisStore(f"{cluster.url}?partitions=8", durability="strict")
            load = Load(store)

            async def crash() -> None:
                for number in range(CRASHES):
                    await load.reach(200 * (number + 1))
                    await asyncio.to_thread(cluster.masters[number].kill)
                    await asyncio.to_thread(cluster.masters[number].start)

            await load.run(asyncio.create_task(crash()))
            assert load.refused == 0
            assert load.settled.keys() == load.acknowledged.keys()
            assert set(load.runs.values()) == {1}
            assert set(load.settled.values()) == {1}
            await store.close()

        run(story())


async def test_job_whose_settlement_the_server_has_lost_runs_again() -> None:
    with servers.own(appendfsync="always") as server:
        store = RedisStore(server.url)
        await enqueue(store, *new_jobs(store, 3))
        worker = await Worker.open(store)
        kept, *done = await worker.take(3)
        server.kill()
        # A folder of files since Redis 7.
        (written,) = server.folder.glob("appendonly*")
        saved = server.folder / "saved"
        shutil.copytree(written, saved) if written.is_dir() else shutil.copy(written, saved)
        server.start()
        assert await worker.settle(*map(succeed, done)) == ["applied", "applied"]
        server.kill()
        shutil.rmtree(written) if written.is_dir() else written.unlink()
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


@pytest.mark.parametrize(
    ("durability", "fsync"), [pytest.param("full", "everysec", marks=pytest.mark.faults), ("strict", "always")]
)
async def test_failover_loses_only_what_its_promise_says(durability: Durability, fsync: str) -> None:
    with servers.sentinel_group(appendfsync=fsync) as group:
        store = RedisStore(group.url, durability=durability)
        load = Load(store)
        killed = 0.0

        async def fail_over() -> None:
            nonlocal killed
            await load.reach(300)
            killed = ticks()
            await asyncio.to_thread(group.primary.kill)
            await asyncio.to_thread(group.wait_for_failover)
            await load.reach(len(load.settled) + 300)

        await load.run(asyncio.create_task(fail_over()))
        lost = [at for name, at in load.acknowledged.items() if name not in load.settled]
        twice = [load.ran[name] for name, count in load.runs.items() if count > 1]
        if durability == "strict":
            assert not lost
        else:
            # A replica is less than a second behind, and receives nothing more when its primary is gone.
            assert [at for at in (*lost, *twice) if abs(at - killed) > 1.0] == []
        with group.replicas[0].client() as client:
            assert complaints(client, "{reprieve:0}") == []
        await store.close()


@pytest.fixture
def followed() -> Iterator[tuple[servers.Server, servers.Server]]:
    """Return a server and its replica."""
    with servers.own(appendfsync="always") as primary, servers.own(replicaof=f"127.0.0.1 {primary.port}") as replica:
        replica.wait_for_primary()
        primary.wait_for_replica()
        yield primary, replica


async def test_strict_call_is_answered_when_a_replica_has_heard_it(
    followed: tuple[servers.Server, servers.Server],
) -> None:
    primary, replica = followed
    store = RedisStore(primary.url, durability="strict")
    worker = await Worker.open(store)
    for number in range(20):
        await enqueue(store, *new_jobs(store, 5))
        with replica.client() as client:
            assert client.hlen("{reprieve:0}:jobs") == 5 * (number + 1)
    replica.signal(signal.SIGSTOP)
    unheard = new_jobs(store, 5)
    with pytest.raises(StoreUnreachable, match="replica"):
        await enqueue(store, *unheard)
    replica.signal(signal.SIGCONT)
    assert await enqueue(store, *unheard) == [job.id for job in unheard]
    assert len([*await worker.take(100), *await worker.take(100)]) == 105
    await store.close()


async def test_strict_call_waits_for_no_replica_where_there_is_none(
    followed: tuple[servers.Server, servers.Server],
) -> None:
    primary, replica = followed
    store = RedisStore(primary.url, durability="strict")
    await enqueue(store, *new_jobs(store, 5))
    replica.kill()
    await enqueue(store, *new_jobs(store, 5))
    await enqueue(store, *new_jobs(store, 5))
    # One that comes back is waited for from the first call on.
    replica.start()
    replica.wait_for_primary()
    primary.wait_for_replica()
    await enqueue(store, *new_jobs(store, 5))
    with replica.client() as client:
        assert client.hlen("{reprieve:0}:jobs") == 20
    await store.close()


async def test_strict_call_is_not_answered_by_a_primary_that_its_replicas_have_lost() -> None:
    with servers.sentinel_group(down_after_ms=servers.NO_FAILOVER_MS, appendfsync="always") as group:
        store = RedisStore(group.url, durability="strict")
        await enqueue(store, *new_jobs(store, 5))
        group.replicas[0].kill()
        unheard = new_jobs(store, 5)
        with pytest.raises(StoreUnreachable, match="replica"):
            await enqueue(store, *unheard)
        group.replicas[0].start()
        group.replicas[0].wait_for_primary()
        assert await enqueue(store, *unheard) == [job.id for job in unheard]
        await store.close()


async def test_every_node_of_a_cluster_must_be_safe() -> None:
    with servers.cluster(appendfsync="always") as cluster:
        for node in cluster.masters:
            with node.client() as client:
                client.config_set("appendfsync", "everysec")
            store = RedisStore(cluster.url, durability="strict")
            with pytest.raises(UnsafeStore, match="appendfsync always"):
                await enqueue(store, *new_jobs(store, 1))
            await store.close()
            with node.client() as client:
                client.config_set("appendfsync", "always")


async def test_server_that_comes_back_as_another_is_looked_at_again() -> None:
    with servers.own() as server:
        store = RedisStore(server.url)
        await enqueue(store, *new_jobs(store, 5))
        server.kill()
        server.settings["maxmemory-policy"] = "allkeys-lru"
        starting = asyncio.create_task(asyncio.to_thread(server.start))
        with pytest.raises(UnsafeStore, match="noeviction"):
            await enqueue(store, *new_jobs(store, 5))
        await starting
        with server.client() as client:
            client.config_set("maxmemory-policy", "noeviction")
        await enqueue(store, *new_jobs(store, 5))
        await store.close()


async def test_session_lives_on_while_its_server_is_unsafe() -> None:
    with servers.own(appendfsync="always") as server:
        store = RedisStore(server.url)
        await enqueue(store, *new_jobs(store, 1))
        worker = await Worker.open(store, lease=10.0)
        job = await worker.one()
        server.kill()
        server.settings["maxmemory-policy"] = "allkeys-lru"
        starting = asyncio.create_task(asyncio.to_thread(server.start))
        with pytest.raises(UnsafeStore):
            await worker.ask()
        await starting
        assert await worker.heartbeat(START + 9_000, lease=10.0)
        with pytest.raises(UnsafeStore):
            await worker.settle(succeed(job))
        with server.client() as client:
            client.config_set("maxmemory-policy", "noeviction")
        assert await store.recover(START + 15_000) == []
        assert await worker.settle(succeed(job)) == ["applied"]
        await store.close()


async def test_heir_is_looked_at() -> None:
    with servers.sentinel_group() as group:
        store = RedisStore(group.url)
        await enqueue(store, *new_jobs(store, 5))
        with group.replicas[0].client() as client:
            client.config_set("appendonly", "no")
        group.primary.kill()
        group.wait_for_failover()
        with pytest.raises(UnsafeStore, match="appendonly"):
            await enqueue(store, *new_jobs(store, 5))
        await store.close()


async def test_connection_that_breaks_while_a_server_is_looked_at_is_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with servers.own() as server:
        store = RedisStore(server.url)
        (node,) = await store._connections.current()._servers.primaries()  # noqa: SLF001 - whose connection breaks
        execute = node.execute
        broken: list[Any] = []

        async def break_once(*call: Any) -> Any:  # noqa: ANN401 - as the server answers
            if call[0] == "CONFIG GET" and not broken:
                broken.append(call)
                raise redis.ConnectionError
            return await execute(*call)

        monkeypatch.setattr(node, "execute", break_once)
        await enqueue(store, *new_jobs(store, 1))
        assert broken
        await store.close()
