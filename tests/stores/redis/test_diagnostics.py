"""The doctor on Redis, and the files in deploy/: what they promise is what a server started with them is like."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprieve import clock
from reprieve.errors import StoreReadOnly
from reprieve.stores.open import diagnostics_for
from reprieve.stores.paginate import all_entries, all_limit_states
from reprieve.stores.protocol import Filter, LimitUpdate, Retention
from reprieve.stores.redis import RedisStore
from reprieve.testing.conformance.stage import (
    START,
    Worker,
    enqueued,
    fail,
    find_all,
    set_entry,
    succeed,
    update_limits,
)
from tests.servers import redis as servers
from tests.servers.guard import Guard

DEPLOY = Path(__file__).parents[3] / "deploy"


def findings(url: str) -> dict[str, str]:
    return {finding.name: finding.level for finding in diagnostics_for(url).examine(clock.now())}


@pytest.fixture
def safe() -> Iterator[servers.Server]:
    with servers.own(maxmemory="256mb") as server:
        yield server


def test_server_as_it_should_be_is_well(safe: servers.Server) -> None:
    assert set(findings(safe.url).values()) == {"ok"}


@pytest.mark.parametrize(
    ("settings", "name", "level"),
    [
        ({"appendonly": "no"}, "aof", "bad"),
        ({"appendfsync": "no"}, "fsync", "bad"),
        ({"maxmemory_policy": "volatile-lru"}, "eviction", "bad"),
        ({"maxmemory": "0"}, "memory", "warn"),
        ({"maxmemory": "900kb"}, "memory", "bad"),
        ({"aof_use_rdb_preamble": "no"}, "aof preamble", "warn"),
        ({"auto_aof_rewrite_percentage": "0"}, "aof rewrite", "bad"),
        ({"auto_aof_rewrite_percentage": "5000"}, "aof rewrite", "warn"),
        ({"auto_aof_rewrite_min_size": "2gb"}, "aof rewrite", "warn"),
    ],
)
def test_every_danger_is_found(settings: dict[str, str], name: str, level: str) -> None:
    with servers.own(**{"maxmemory": "256mb"} | settings) as server:
        assert findings(server.url)[name] == level


def test_key_of_another_kind_and_a_newer_layout_are_found(safe: servers.Server) -> None:
    with safe.client() as client:
        client.hset("{reprieve:0}:meta", "schema_version", 99)
        assert findings(safe.url)["schema"] == "bad"
        client.delete("{reprieve:0}:meta")
        client.set("{reprieve:0}:jobs", "another's")
        assert findings(safe.url)["keys"] == "bad"


def test_server_that_is_away_is_told(safe: servers.Server) -> None:
    safe.kill()
    assert findings(safe.url) == {"server": "bad"}


def test_replica_is_found(safe: servers.Server) -> None:
    with servers.own(replicaof=f"127.0.0.1 {safe.port}") as replica:
        assert findings(replica.url)["role"] == "bad"


def test_layout_is_made_and_told(safe: servers.Server) -> None:
    diagnostics = diagnostics_for(safe.url)
    assert (diagnostics.schema_version().stored, diagnostics.schema_version().known) == (0, 1)
    assert diagnostics.migrate().stored == 1
    assert diagnostics.schema_version().stored == 1
    assert diagnostics.migrations() == []


def test_primary_that_takes_writes_without_replicas_is_found() -> None:
    with servers.sentinel_group(replicas=2, down_after_ms=servers.NO_FAILOVER_MS, maxmemory="256mb") as group:
        assert findings(group.url)["replicas"] == "warn"
        url = group.url.removesuffix("?min_replicas=0")
        assert findings(url)["replicas"] == "bad"
        with group.primary.client() as client:
            client.config_set("min-replicas-to-write", 1)
            assert findings(url)["replicas"] == "ok"
            client.config_set("min-replicas-to-write", 2)
            assert findings(url)["replicas"] == "warn"


def test_long_node_timeout_is_found() -> None:
    with servers.cluster(replicas=1, cluster_node_timeout="15000") as cluster:
        name = f"node timeout of 127.0.0.1:{cluster.masters[0].port}"
        assert findings(cluster.url)[name] == "warn"
        with cluster.masters[0].client() as client:
            client.config_set("cluster-node-timeout", 2_000)
        assert name not in findings(cluster.url)


def test_cluster_is_examined_node_by_node() -> None:
    with servers.cluster() as cluster:
        found = findings(cluster.url)
        assert sum(name.startswith("aof of ") for name in found) == 3
        assert "bad" not in found.values()


async def test_configuration_and_user_that_we_ship_do_for_everything(tmp_path: Path) -> None:
    server = servers.Server(tmp_path, {"aclfile": str(tmp_path / "users.acl"), "include": str(DEPLOY / "redis.conf")})
    server.settings = {name: value for name, value in server.settings.items() if name in ("aclfile", "include")}
    shipped = [line for line in (DEPLOY / "redis.acl").read_text().splitlines() if not line.startswith("#")]
    (tmp_path / "users.acl").write_text("\n".join(shipped) + "\n")
    with Guard(tmp_path):
        server.start()
        url = f"redis://reprieve:sesame@127.0.0.1:{server.port}/0"
        locked = RedisStore(url)
        with pytest.raises(StoreReadOnly, match="password"):
            await enqueued(locked)
        await locked.close()
        server.kill()
        hashed = hashlib.sha256(b"sesame").hexdigest()
        users = "\n".join(line.replace("user reprieve off", f"user reprieve on #{hashed}") for line in shipped)
        (tmp_path / "users.acl").write_text(users + "\n")
        server.start()
        assert "bad" not in findings(url).values()
        store = RedisStore(url)
        job = await enqueued(store, key="k")
        worker = await Worker.open(store)
        await worker.settle(fail(await worker.one(), due_at=START))
        again = await worker.one()
        await worker.settle(succeed(again, result=b"1", ttl=60.0))
        assert [found.id for found in await find_all(store, Filter())] == [job.id]
        await update_limits(store, LimitUpdate(subject="task", name="send", permits=0))
        assert (await store.tally("status", Filter(), START)).counts == {"succeeded": 1}
        assert await set_entry(store, "leader", 0, b"me") is not None
        assert len(await all_entries(store)) == len(await all_limit_states(store, "tenant")) == 1
        assert len(await store.events()) == 1
        assert not await store.wait(("default",), 0.01)
        await store.recover(START)
        await store.prune(Retention(now=START))
        await store.close()
        elsewhere = RedisStore(f"{url}?prefix=elsewhere")
        with pytest.raises(StoreReadOnly):
            await enqueued(elsewhere)
        await elsewhere.close()
        server.kill()
