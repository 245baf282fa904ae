"""How calls find the servers of a Cluster: the map of slots, where it comes from, and what old connections become."""

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from reprieve.errors import StoreError, StoreRefused
from reprieve.stores.redis import RedisStore
from reprieve.stores.redis.cluster import SlotRange, parse_slots
from reprieve.testing.conformance.stage import START, enqueued, new_job
from tests.servers import proxy
from tests.servers import redis as servers

TAG = "{reprieve:0}"


@pytest.fixture
def cluster() -> Iterator[servers.Cluster]:
    with servers.cluster(masters=2) as cluster:
        yield cluster


def test_servers_are_where_they_say_and_those_that_do_not_know_are_where_they_were_asked() -> None:
    reply = [
        [0, 99, [b"10.0.0.1", 7000, b"id"], [b"10.0.0.2", 7001, b"id"]],
        [100, 199, [b"node-1.example", 7002, b"id", [b"ip", b"10.0.0.3"]]],
        [200, 299, [b"", 7003, b"id"], [None, 7004, b"id", []], [b"?", 7005, b"id"]],
    ]
    assert parse_slots(reply, "asked") == [
        SlotRange(first=0, last=99, primary=("10.0.0.1", 7000), replicas=(("10.0.0.2", 7001),)),
        SlotRange(first=100, last=199, primary=("node-1.example", 7002), replicas=()),
        SlotRange(first=200, last=299, primary=("asked", 7003), replicas=(("asked", 7004), ("asked", 7005))),
    ]


async def test_concurrent_calls_ask_for_the_map_once() -> None:
    with servers.cluster(masters=2, slowlog_log_slower_than="0", slowlog_max_len="100000") as cluster:
        for server in cluster.servers:
            with server.client() as client:
                client.slowlog_reset()
        store = RedisStore(f"{cluster.url}?partitions=4")
        await asyncio.gather(*(store.enqueue([new_job(store)], START) for _ in range(20)))
        questions = []
        for server in cluster.servers:
            with server.client() as client:
                questions += [entry for entry in client.slowlog_get(-1) if entry["command"] == b"CLUSTER SLOTS"]
        assert len(questions) == 1
        await store.close()


async def test_announced_port_is_used_and_the_hosts_of_the_url_when_it_is_gone() -> None:
    with servers.cluster(masters=1) as cluster:
        (server,) = cluster.servers
        store = RedisStore(cluster.url)
        with server.client() as client:
            async with proxy.running(server.url) as between:
                client.config_set("cluster-announce-port", between.url.rpartition(":")[2].partition("/")[0])
                await enqueued(store)
                assert between.connections > 0
            client.config_set("cluster-announce-port", server.port)
            await enqueued(store)
        await store.close()


async def test_hosts_of_the_url_that_are_away_are_passed_over(cluster: servers.Cluster) -> None:
    living = cluster.url.removeprefix("redis+cluster://")
    async with proxy.running(cluster.masters[0].url) as between:
        away = between.url.removeprefix("redis://").removesuffix("/0")
    store = RedisStore(f"redis+cluster://{away},{living}")
    await enqueued(store)
    await store.close()


async def test_server_that_has_no_slots_any_more_is_left(cluster: servers.Cluster) -> None:
    number = cluster.place_of(TAG)
    staying, leaving = cluster.masters[number], cluster.masters[1 - number]
    store = RedisStore(f"{cluster.url}?partitions=4")
    await asyncio.gather(*(store.enqueue([new_job(store)], START) for _ in range(8)))
    with staying.client() as one, leaving.client() as other:

        def connections() -> int:
            return len([client for client in other.client_list() if client["flags"] == "N"]) - 1

        assert connections() > 0
        other.flushall()
        here, there = (client.execute_command("CLUSTER", "MYID") for client in (one, other))
        with one.pipeline(transaction=False) as pipeline:
            for slot in range((1 - number) * servers.SLOTS // 2, (2 - number) * servers.SLOTS // 2):
                pipeline.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", there)
                pipeline.execute_command("CLUSTER", "SETSLOT", slot, "NODE", here)
            pipeline.execute()
        await asyncio.gather(*(store.enqueue([new_job(store)], START) for _ in range(8)))
        async with asyncio.timeout(30):
            while connections():  # noqa: ASYNC110 - no event tells of it
                await asyncio.sleep(0.01)
    await store.close()


async def test_primary_that_hands_over_to_its_replica_is_left_at_the_next_check() -> None:
    with servers.cluster(masters=3, replicas=1) as cluster:
        store = RedisStore(f"{cluster.url}?partitions=1")
        await enqueued(store)
        number = cluster.place_of(TAG)
        with cluster.replicas[number][0].client() as client:
            client.execute_command("CLUSTER", "FAILOVER", "TAKEOVER")
        async with asyncio.timeout(60):
            while servers.is_primary(cluster.masters[number]):  # noqa: ASYNC110 - no event tells of it
                await asyncio.sleep(0.01)
        store._connections.topology.forget_checks()  # noqa: SLF001 - as it does after a while
        await enqueued(store)
        await store.close()


async def test_password_of_a_cluster_is_sent_to_every_server() -> None:
    with servers.cluster(masters=2, requirepass="sesame", masterauth="sesame") as cluster:
        store = RedisStore(cluster.url.replace("//", "//:sesame@") + "?partitions=4")
        for _ in range(4):
            await enqueued(store)
        await store.close()
        for user in ("", ":wrong@"):
            store = RedisStore(cluster.url.replace("//", f"//{user}"))
            with pytest.raises(StoreRefused, match="password"):
                await enqueued(store)
            await store.close()


async def test_tls_is_spoken_if_the_url_says_so() -> None:
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.put_nowait(await reader.read(1))
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        store = RedisStore(f"rediss+cluster://127.0.0.1:{port}")
        call = asyncio.create_task(enqueued(store))
        assert await heard.get() == b"\x16", "a handshake"
        await store.close()
        with contextlib.suppress(StoreError):
            await call
