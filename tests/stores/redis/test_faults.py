"""Servers that cannot, will not, or must not: each is told clearly, or gone through; no job is lost or doubled."""

import asyncio
import contextlib
import re
import traceback
from collections.abc import Iterator

import pytest
from redis._parsers import _RESP2Parser

from reprieve import Reprieve
from reprieve.errors import (
    ForeignStore,
    InvalidUrl,
    NewerSchema,
    ReprieveError,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreRefused,
    StoreUnreachable,
    UnsafeStore,
)
from reprieve.stores.open import open_store
from reprieve.stores.protocol import Filter
from reprieve.stores.redis import RedisStore
from reprieve.stores.redis.address import address_of
from reprieve.stores.redis.connections import RETRY_SECONDS
from reprieve.stores.redis.error_mapping import DRIVER_ERRORS, closed_as_broken, map_error
from reprieve.stores.redis.node import Node
from reprieve.stores.redis.sentinels import ask
from reprieve.stores.redis.server_checks import require_safe, server_of
from reprieve.testing.conformance.stage import START, Worker, enqueue, enqueued, find_all, new_job, new_jobs, succeed
from tests.servers import redis as servers
from tests.stores.redis.recount import complaints

TAG = "{reprieve:0}"


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Server]:
    with servers.own() as server:
        yield server


@pytest.fixture(autouse=True)
def empty(request: pytest.FixtureRequest) -> None:
    if "server" in request.fixturenames:
        with request.getfixturevalue("server").client() as client:
            client.flushall()


async def fails(url: str, kind: type[ReprieveError], *words: str) -> None:
    """Expect that the first enqueue fails so, and says these words."""
    store = RedisStore(url)
    try:
        with pytest.raises(kind) as raised:
            await enqueue(store, new_job(store))
    finally:
        await store.close()
    for word in words:
        assert word in str(raised.value)


async def fill(store: RedisStore, batch: int) -> None:
    """Enqueue until the store refuses."""
    while True:
        await store.enqueue(new_jobs(store, batch, payload=b"x" * 500), START)


@pytest.mark.parametrize(
    "url",
    [
        "redis://",
        "redis://host:port",
        "redis://a,b/0",
        "redis://host/zero",
        "redis+sentinel://host",
        "redis+cluster://",
        "redis://host/0?colour=red",
        "redis://host/0?partitions=0",
        "redis://host/0?prefix=a%00b",
        "redis://host/0?prefix=",
        "redis://host/0?prefix=%7D",
        "redis://host/0?prefix=a%7Bb",
        "redis://host/0?sentinel_password=x",
    ],
)
def test_url_that_names_no_server_is_refused(url: str) -> None:
    with pytest.raises(InvalidUrl):
        open_store(url)


@pytest.mark.parametrize(
    "url",
    [
        "redis://ana:secret@host/zero",
        "redis://ana:/secret@host",
        "redis://:#secret@host",
        "redis://ana:pass/secret@host/0",
        "redis://ana:[secret@host/0",
        "redis+sentinel://host?sentinel_password=secret",
        "redis://ana:secret@host/0?prefix=",
    ],
)
def test_password_is_not_shown(url: str) -> None:
    with pytest.raises(InvalidUrl) as raised:
        open_store(url)
    assert "secret" not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize(("scheme", "first"), [("redis+sentinel", b"*"), ("rediss+sentinel", b"\x16")])
async def test_sentinels_are_spoken_to_as_the_url_says(scheme: str, first: bytes) -> None:
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.put_nowait(await reader.read(200))
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        url = f"{scheme}://127.0.0.1:{port}/jobs?sentinel_username=ana&sentinel_password=secret"
        sentinel = Node(address_of(url).client_for_sentinel("127.0.0.1", port), "sentinel")
        assert await ask([sentinel], "jobs") == []
        said = await heard.get()
        assert said[:1] == first
        assert first != b"*" or (b"AUTH" in said and b"secret" in said)
        await sentinel.close()


async def test_wrong_password_is_told() -> None:
    with servers.own(requirepass="open sesame".replace(" ", "-")) as server:
        await fails(server.url, StoreRefused, "password")
        await fails(server.url.replace("//", "//:wrong@"), StoreRefused, "password")
        store = RedisStore(server.url.replace("//", "//:open-sesame@"))
        await enqueued(store)
        await store.close()


async def test_user_without_rights_is_told(server: servers.Server) -> None:
    with server.client() as client:
        client.acl_setuser("bea", enabled=True, nopass=True, categories=["+@all"], keys=["elsewhere*"])
    await fails(server.url.replace("//", "//bea:x@"), StoreRefused, "redis.acl")


@pytest.mark.parametrize(
    "settings",
    [
        {"appendonly": "no"},
        {"maxmemory_policy": "allkeys-lru"},
        {"appendfsync": "no"},
        {"appendonly": "no", "maxmemory_policy": "volatile-ttl", "appendfsync": "no"},
    ],
    ids="+".join,
)
async def test_server_that_would_lose_jobs_is_refused_with_the_commands_that_cure_it(settings: dict[str, str]) -> None:
    with servers.own(**settings) as server:
        fast = RedisStore(server.url, durability="fast")
        await enqueued(fast)
        await fast.close()
        store = RedisStore(server.url)
        with pytest.raises(UnsafeStore, match="or set REPRIEVE_DURABILITY=fast, if jobs may be lost") as refused:
            await enqueued(store)
        async with Reprieve(server.url) as app:
            with pytest.raises(UnsafeStore):
                await app.aopen()
        commands = re.findall(rf"redis-cli -h 127.0.0.1 -p {server.port} config set (\S+) (\S+)", str(refused.value))
        assert {name.replace("-", "_") for name, _ in commands} == settings.keys()
        with server.client() as client:
            for name, value in commands:
                client.config_set(name, value)
        await enqueued(store)
        await store.close()


@pytest.mark.parametrize(
    ("url", "command"),
    [
        ("redis://localhost", "run redis-cli config set"),
        ("redis://localhost:7000", "run redis-cli -h localhost -p 7000 config set"),
        ("rediss://ana:secret@cache/0", "run redis-cli --user ana --askpass --tls -h cache -p 6379 config set"),
        ("redis+cluster://one:7000,two:7000", "run redis-cli --cluster call one:7000 config set"),
        ("redis+sentinel://one/jobs", "run redis-cli -h HOST -p PORT config set"),
    ],
)
def test_commands_are_those_for_the_server_that_the_url_names(url: str, command: str) -> None:
    server = server_of({"redis_version": "7.2.0", "aof_enabled": 0, "cluster_enabled": int("cluster" in url)})
    with pytest.raises(UnsafeStore) as refused:
        require_safe(server, address_of(url), "full")
    assert command in str(refused.value)
    assert "secret" not in str(refused.value)


async def test_strict_durability_wants_a_server_that_flushes_first() -> None:
    with servers.own() as server:
        store = RedisStore(server.url, durability="strict")
        with pytest.raises(UnsafeStore, match="config set appendfsync always"):
            await enqueued(store)
        with server.client() as client:
            client.config_set("appendfsync", "always")
        await enqueued(store)
        await store.close()


async def test_replica_is_told(server: servers.Server) -> None:
    with servers.own(replicaof=f"127.0.0.1 {server.port}") as replica:
        await fails(replica.url, StoreReadOnly, "replica")


async def test_server_that_takes_no_writes_for_a_while_is_told_and_gone_on_with(server: servers.Server) -> None:
    store = RedisStore(server.url)
    job = await enqueued(store)
    with server.client() as client:
        client.config_set("min-replicas-to-write", "1")
        with pytest.raises(StoreError, match="replicas"):
            await enqueued(store)
        client.config_set("min-replicas-to-write", "0")
    assert [found.id for found in await find_all(store, Filter())] == [job.id]
    await enqueued(store)
    await store.close()


async def test_server_that_cannot_save_is_told_and_gone_on_with() -> None:
    with servers.own(save="3600 100000") as server, server.client() as client:
        store = RedisStore(server.url)
        job = await enqueued(store)
        # A folder in the place of the file that it would save to.
        (server.folder / "dump.rdb").mkdir()
        (server.folder / "dump.rdb" / "in the way").touch()
        client.bgsave()
        await asyncio.to_thread(server.wait_for_save)
        assert client.info("persistence")["rdb_last_bgsave_status"] == "err"
        with pytest.raises(StoreReadOnly, match="disk"):
            await enqueued(store)
        client.config_set("stop-writes-on-bgsave-error", "no")
        await enqueued(store)
        worker = await Worker.open(store)
        taken = await worker.take(10)
        assert taken[0].id == job.id
        assert len(taken) == 2
        await store.close()


async def test_flushed_scripts_are_loaded_again(server: servers.Server) -> None:
    store = RedisStore(server.url)
    worker = await Worker.open(store)
    with server.client() as client:
        for _ in range(3):
            client.script_flush()
            await enqueued(store)
            client.script_flush()
            leased = await worker.one()
            client.script_flush()
            assert await worker.settle(succeed(leased)) == ["applied"]
        assert complaints(client, TAG) == []
    await store.close()


@pytest.mark.parametrize(
    "suffix", [":jobs", ":lanes", ":tenants", ":queues", ":unique_keys", ":fresh:default\0\0send\0\0\0005"]
)
async def test_key_of_another_kind_is_told_and_nothing_is_half_done(suffix: str, server: servers.Server) -> None:
    with server.client() as client:
        client.set(TAG + suffix, "another's")
        store = RedisStore(server.url)
        with pytest.raises(ForeignStore, match="prefix"):
            await enqueue(store, new_job(store, key="k"), new_job(store))
        client.delete(TAG + suffix)
        assert complaints(client, TAG) == []
        job = await enqueued(store, key="k")
        worker = await Worker.open(store)
        assert [leased.id for leased in await worker.take(10)] == [job.id]
        await store.close()


@pytest.mark.faults
async def test_server_that_stays_away_is_told_once_for_all_who_wait() -> None:
    with servers.own() as server:
        store = RedisStore(server.url)
        await enqueued(store)
        server.kill()
        began = asyncio.get_running_loop().time()
        answers = await asyncio.gather(*(enqueue(store, new_job(store)) for _ in range(20)), return_exceptions=True)
        assert {type(answer) for answer in answers} == {StoreUnreachable}
        assert asyncio.get_running_loop().time() - began < 2.5 * RETRY_SECONDS
        await store.close()


async def test_connection_that_was_closed_under_a_writer_counts_as_broken() -> None:
    # From Python 3.12 on, asyncio says of it that None cannot be called; before it says nothing.
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.close()
        with contextlib.suppress(*DRIVER_ERRORS), closed_as_broken():
            writer.writelines([b"PING\r\n"])
        await writer.wait_closed()
        with contextlib.suppress(*DRIVER_ERRORS), closed_as_broken():
            writer.writelines([b"PING\r\n"])


async def test_layout_of_a_newer_release_is_refused(server: servers.Server) -> None:
    with server.client() as client:
        made_by = {"schema_version": 99, "oldest_schema": 99, "oldest_release": "9.8", "migrated_by": "9.9"}
        client.hset(f"{TAG}:meta", mapping=made_by)
    await fails(server.url, NewerSchema, "migrated by Reprieve 9.9, which releases from 9.8 on can use")


async def test_full_server_takes_no_job_and_gives_up_all_it_has() -> None:
    with servers.own(maxmemory="12mb") as server, server.client() as client:
        store = RedisStore(server.url)
        worker = await Worker.open(store)
        with pytest.raises(StoreFull, match="%"):
            await fill(store, 250)
        stored = client.hlen(f"{TAG}:jobs")
        used = client.info("memory")["used_memory"] / (12 << 20)
        assert 0.85 < used < 1.0
        # Even when there is no room at all, what is there can be worked off.
        client.config_set("maxmemory", "4mb")
        done = 0
        claimed = await worker.ask(100)
        while claimed.jobs:
            done += len(claimed.jobs)
            claimed = await worker.ask(100, changes=[succeed(job) for job in claimed.jobs])
        assert done == stored
        assert complaints(client, TAG) == []
        client.config_set("maxmemory", "64mb")
        await enqueued(store)
        await store.close()


async def test_server_that_runs_full_at_once_refuses_whole_calls() -> None:
    with servers.own() as server, server.client() as client:
        store = RedisStore(server.url)
        await enqueued(store)
        client.config_set("maxmemory", client.info("memory")["used_memory"] + 300_000)
        store._memory._checked_at = asyncio.get_running_loop().time() + 3_600  # noqa: SLF001 - it looks the other way
        store._memory._fullness = 0.0  # noqa: SLF001 - as above
        with pytest.raises(StoreFull):
            await fill(store, 200)
        assert complaints(client, TAG) == []
        await store.close()


def met(line: str) -> ReprieveError:
    """Return our error for what a server says."""
    return map_error(_RESP2Parser.parse_error(line))  # type: ignore[no-untyped-call]  # the driver's


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'.", StoreFull),
        ("ERR Error running script (call to f_0a): @user_script:9: @user_script: 9: -OOM command not", StoreFull),
        ("WRONGTYPE Operation against a key", ForeignStore),
        ("ERR Error running script (call to f_0a): @user_script:9: WRONGTYPE Operation against a key", ForeignStore),
        ("MOVED 3999 127.0.0.1:6381", ForeignStore),
        ("CROSSSLOT Keys in request don't hash to the same slot", ForeignStore),
        ("NOAUTH Authentication required.", StoreRefused),
        ("NOPERM this user has no permissions", StoreRefused),
        ("DENIED Redis is running in protected mode", StoreRefused),
        ("MISCONF Redis is configured to save", StoreReadOnly),
    ],
)
def test_error_is_told_by_its_first_word(line: str, kind: type[ReprieveError]) -> None:
    assert type(met(line)) is kind


@pytest.mark.parametrize(
    "line", ["ERR key BUSY was MOVED", "ERR access to 'OOM' is DENIED", "BUSYGROUP Consumer Group name already exists"]
)
def test_word_elsewhere_in_an_error_means_nothing(line: str) -> None:
    assert type(met(line)) is StoreError
    assert str(met(line)).startswith("Redis failed")


def test_full_server_does_not_promise_that_nothing_was_stored() -> None:
    assert "same ids" in str(met("OOM command not allowed"))
