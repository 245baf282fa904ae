"""Diagnostics of a Redis: its settings, memory, disk, latency and clock, and the keys under our prefix."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from redis import exceptions as redis_errors

from reprieve.errors import NewerSchema, ReprieveError
from reprieve.stores.diagnostics import (
    Finding,
    Level,
    Migration,
    SchemaVersion,
    local_clock,
    measure_skew,
    records_finding,
)
from reprieve.stores.redis.address import Address
from reprieve.stores.redis.error_mapping import DRIVER_ERRORS, map_error
from reprieve.stores.redis.memory_check import FULL_SHARE, WARN_SHARE
from reprieve.stores.redis.records import packed_of
from reprieve.stores.redis.server_checks import MIN_VERSION, Server, client_of, server_of, version_of
from reprieve.stores.redis.tags import tag_of
from reprieve.stores.redis.topology import SCHEMA_VERSION

MAX_SKEW_MS = 1_000
"""How far our clock may be from the server's."""

SLOW_SECONDS, TOO_SLOW_SECONDS = 0.005, 0.05
"""Round trips that slow a worker down, and with which it hardly works."""

KEY_TYPES = {
    "jobs": "hash",
    "lanes": "hash",
    "tenants": "hash",
    "limiters": "hash",
    "queues": "hash",
    "sessions": "hash",
    "meta": "hash",
    "events": "stream",
}
"""Types of some of our keys."""


class RedisDiagnostics:
    """Examines one server, a pair with Sentinels, or a Cluster."""

    def __init__(self, address: Address) -> None:
        """Take the address."""
        self._address = address
        self._tag = tag_of(address.prefix, 0)

    def examine(self, now: int) -> Iterator[Finding]:
        """Yield findings about the servers, their settings, memory and disk, and our keys."""
        local = local_clock(now)
        try:
            client = self._address.connect()
            try:
                for name, info, config in self._servers(client):
                    server = server_of(info, config.get("appendfsync"))
                    yield from _examine(server, info, config, name, client_of(self._address))
                if self._address.mode == "cluster":
                    yield _slots(client)
                yield _latency(client)
                yield _clock(client, local)
                yield self._keys(client)
                yield self._schema(client)
                yield records_finding(self._records(client))
            finally:
                client.close()
        except (*DRIVER_ERRORS, ReprieveError) as error:
            seen, _, fix = str(map_error(error, self._address.shown)).partition("; ")
            yield Finding(name="server", level="bad", seen=seen, fix=fix or "start it, and check its address")

    def _servers(self, client: Any) -> Iterator[tuple[str, dict[str, Any], dict[str, str]]]:  # noqa: ANN401 - of three kinds
        if self._address.mode != "cluster":
            yield "", client.info(), _config(client)
            return
        for node in client.get_primaries():
            yield f" of {node.name}", client.info(target_nodes=node), _config(client, target_nodes=node)

    def _keys(self, client: Any) -> Finding:  # noqa: ANN401 - of three kinds
        for name, kind in KEY_TYPES.items():
            found = client.type(f"{self._tag}:{name}").decode()
            if found not in ("none", kind):
                seen = f"the key {self._tag}:{name} is a {found}, and ours is a {kind}"
                fix = "remove it, or choose another prefix with ?prefix=name"
                return Finding(name="keys", level="bad", seen=seen, fix=fix)
        jobs = client.hlen(f"{self._tag}:jobs")
        return Finding(name="keys", level="ok", seen=f"{jobs:,} jobs under the prefix {self._address.prefix}")

    def _records(self, client: Any) -> Iterator[bytes]:  # noqa: ANN401 - of three kinds
        partitions = int(client.hget(f"{self._tag}:meta", "partitions") or 1)
        for number in range(partitions):
            for _, data in client.hscan_iter(f"{tag_of(self._address.prefix, number)}:jobs", count=1_000):
                yield packed_of(data)

    def _schema(self, client: Any) -> Finding:  # noqa: ANN401 - of three kinds
        stored = int(client.hget(f"{self._tag}:meta", "schema_version") or 0)
        if stored > SCHEMA_VERSION:
            seen = f"schema version {stored}, of a newer release; this one knows {SCHEMA_VERSION}"
            return Finding(name="schema", level="bad", seen=seen, fix="update reprieve")
        return Finding(
            name="schema", level="ok", seen=f"schema version {stored}" if stored else "no schema version yet"
        )

    def schema_version(self) -> SchemaVersion:
        """Return the schema version of the store."""
        client = self._address.connect()
        try:
            stored = int(client.hget(f"{self._tag}:meta", "schema_version") or 0)
        except DRIVER_ERRORS as error:
            raise map_error(error, self._address.shown) from error
        finally:
            client.close()
        return SchemaVersion(stored=stored, known=SCHEMA_VERSION)

    def migrate(self) -> SchemaVersion:
        """Write the schema version; there is only one so far."""
        version = self.schema_version()
        if version.stored > version.known:
            message = (
                f"the store has schema version {version.stored}, of a newer release; this one knows {version.known}"
            )
            raise NewerSchema(message)
        client = self._address.connect()
        try:
            client.hset(f"{self._tag}:meta", "schema_version", SCHEMA_VERSION)
        except DRIVER_ERRORS as error:
            raise map_error(error, self._address.shown) from error
        finally:
            client.close()
        return SchemaVersion(stored=SCHEMA_VERSION, known=SCHEMA_VERSION)

    def migrations(self) -> list[Migration]:
        """Return no migrations: keys are made when they are needed."""
        return []


def _config(client: Any, **where: Any) -> dict[str, str]:  # noqa: ANN401 - of three kinds
    try:
        found = client.config_get("*", **where)
    except redis_errors.ResponseError:
        return {}
    if isinstance(found, dict) and "appendfsync" not in found:
        found = next(iter(found.values()), {})
    return {str(name): str(value) for name, value in found.items()}


def _examine(
    server: Server, info: dict[str, Any], config: dict[str, str], where: str, client: str
) -> Iterator[Finding]:
    is_old = version_of(server.version) < MIN_VERSION
    kind = "Valkey " + str(info["valkey_version"]) if "valkey_version" in info else "Redis " + server.version
    yield _finding("version" + where, "bad" if is_old else "ok", kind, "update it: scripts need 6.2" if is_old else "")
    if server.role != "master":
        yield _finding("role" + where, "bad", "a replica, which takes no writes", "name its primary, or its Sentinels")
    if server.is_aof:
        yield _finding("aof" + where, "ok", "appendonly yes")
    else:
        yield _finding(
            "aof" + where,
            "bad",
            "appendonly no: a restart forgets every job",
            f"run {client} config set appendonly yes, then {client} config rewrite",
        )
    yield _fsync(server, where)
    is_kept = server.policy == "noeviction"
    yield _finding(
        "eviction" + where,
        "ok" if is_kept else "bad",
        f"maxmemory-policy {server.policy}",
        "" if is_kept else "set noeviction, or jobs are thrown away when memory is short",
    )
    yield _memory(server, where)
    yield from _troubles(info, config, where)


def _fsync(server: Server, where: str) -> Finding:
    match server.fsync:
        case "always":
            return _finding("fsync" + where, "ok", "appendfsync always: nothing acknowledged is lost")
        case "everysec":
            return _finding("fsync" + where, "ok", "appendfsync everysec: a crash may lose the last two seconds")
        case None:
            return _finding("fsync" + where, "warn", "the user may not read it", "let the user run CONFIG GET")
        case other:
            return _finding("fsync" + where, "bad", f"appendfsync {other}", "set everysec, or always")


def _memory(server: Server, where: str) -> Finding:
    if not server.maxmemory:
        seen = f"{server.used >> 20:,} MiB used, without a limit"
        return _finding("memory" + where, "warn", seen, "set maxmemory, or the system ends the server when it is short")
    seen = f"{server.fullness:.0%} of {server.maxmemory >> 20:,} MiB used"
    level: Level = "bad" if server.fullness >= FULL_SHARE else "warn" if server.fullness >= WARN_SHARE else "ok"
    fix = "" if level == "ok" else f"raise maxmemory, or drain it: above {FULL_SHARE:.0%} no job is taken"
    return _finding("memory" + where, level, seen, fix)


def _troubles(info: dict[str, Any], config: dict[str, str], where: str) -> Iterator[Finding]:
    failed = [name for name in ("aof_last_write_status", "aof_last_bgrewrite_status") if info.get(name, "ok") != "ok"]
    if info.get("rdb_last_bgsave_status", "ok") != "ok" and config.get("stop-writes-on-bgsave-error", "yes") == "yes":
        failed.append("rdb_last_bgsave_status")
    if failed:
        seen = f"the server could not write to its disk ({', '.join(failed)})"
        yield _finding("disk" + where, "bad", seen, "look at its log, and at the room on its disk")
    else:
        yield _finding("disk" + where, "ok", "everything was written")
    rejected = int(info.get("rejected_connections", 0))
    if rejected:
        yield _finding(
            "clients" + where,
            "warn",
            f"{rejected:,} connections were refused",
            "raise maxclients, or use fewer workers",
        )


def _slots(client: Any) -> Finding:  # noqa: ANN401 - of a Cluster
    moved: set[int] = set()
    for node in client.get_primaries():
        # Each node knows its own slots only.
        for known in client.execute_command("CLUSTER NODES", target_nodes=node).values():
            moved |= {int(slot["slot"]) for slot in known["migrations"]}
    if not moved:
        return _finding("slots", "ok", "none is being moved")
    seen = f"{', '.join(map(str, sorted(moved)))} {'is' if len(moved) == 1 else 'are'} being moved"
    return _finding("slots", "warn", seen, "let the move end: calls to a partition in such a slot wait for it")


def _latency(client: Any) -> Finding:  # noqa: ANN401 - of three kinds
    trips = []
    for _ in range(20):
        began = time.perf_counter()
        client.ping()
        trips.append(time.perf_counter() - began)
    trip = sorted(trips)[len(trips) // 2]
    level: Level = "bad" if trip >= TOO_SLOW_SECONDS else "warn" if trip >= SLOW_SECONDS else "ok"
    fix = "" if level == "ok" else "bring workers and server closer together"
    return _finding("latency", level, f"{trip * 1_000:.2f} ms there and back", fix)


def _clock(client: Any, local: Callable[[], float]) -> Finding:  # noqa: ANN401 - of three kinds
    def ask() -> float:
        found = client.time()
        seconds, microseconds = next(iter(found.values())) if isinstance(found, dict) else found
        return float(seconds * 1_000 + microseconds / 1_000)

    apart = round(measure_skew(ask, local))
    if abs(apart) < MAX_SKEW_MS:
        return _finding("server time", "ok", f"{apart} ms from ours")
    return _finding(
        "server time",
        "warn",
        f"{apart:,} ms from ours",
        "set the clocks of all machines by NTP: jobs go by the server's, but your code and your logs do not",
    )


def _finding(name: str, level: Level, seen: str, fix: str = "") -> Finding:
    return Finding(name=name, level=level, seen=seen, fix=fix)
