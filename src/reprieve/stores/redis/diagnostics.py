"""Diagnostics of a Redis: its settings, memory, disk, latency and clock, and the keys under our prefix."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import structs
from redis import exceptions as redis_errors

from reprieve.errors import NewerSchema, ReprieveError
from reprieve.stores.compatibility import Compatibility, require_usable
from reprieve.stores.diagnostics import (
    Finding,
    Level,
    Migration,
    SchemaVersion,
    error_finding,
    local_clock,
    measure_skew,
    records_finding,
    schema_finding,
)
from reprieve.stores.redis.address import Address
from reprieve.stores.redis.error_mapping import DRIVER_ERRORS, map_error
from reprieve.stores.redis.records import packed_of
from reprieve.stores.redis.server_findings import examine_server, finding
from reprieve.stores.redis.tags import tag_of
from reprieve.stores.redis.topology import COMPATIBILITY, SCHEMA_VERSION

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
                    yield from examine_server(info, config, self._address, name)
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
        try:
            version = self._version(client)
        except NewerSchema as error:
            return error_finding("schema", error)
        return schema_finding(version) if version.stored else Finding(name="schema", level="ok", seen="none yet")

    def _version(self, client: Any) -> SchemaVersion:  # noqa: ANN401 - of three kinds
        """Return the schema version; raise `NewerSchema` if this release cannot use the store."""
        fields = ("schema_version", "oldest_schema", "oldest_release", "migrated_by")
        stored, oldest, *releases = client.hmget(f"{self._tag}:meta", fields)
        if stored is None:
            return SchemaVersion(stored=0, known=SCHEMA_VERSION)
        oldest_release, migrated_by = (release.decode() if release else "?" for release in releases)
        made_by = Compatibility(
            oldest_schema=int(oldest or stored), oldest_release=oldest_release, migrated_by=migrated_by
        )
        require_usable(made_by, SCHEMA_VERSION)
        return SchemaVersion(stored=int(stored), known=SCHEMA_VERSION, compatibility=made_by)

    def schema_version(self) -> SchemaVersion:
        """Return the schema version of the store."""
        client = self._address.connect()
        try:
            return self._version(client)
        except DRIVER_ERRORS as error:
            raise map_error(error, self._address.shown) from error
        finally:
            client.close()

    def migrate(self) -> SchemaVersion:
        """Write the schema version; there is only one so far."""
        version = self.schema_version()
        if version.stored:
            return version
        client = self._address.connect()
        try:
            client.hset(f"{self._tag}:meta", mapping={"schema_version": SCHEMA_VERSION} | structs.asdict(COMPATIBILITY))
        except DRIVER_ERRORS as error:
            raise map_error(error, self._address.shown) from error
        finally:
            client.close()
        return SchemaVersion(stored=SCHEMA_VERSION, known=SCHEMA_VERSION, compatibility=COMPATIBILITY)

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


def _slots(client: Any) -> Finding:  # noqa: ANN401 - of a Cluster
    moved: set[int] = set()
    for node in client.get_primaries():
        # Each node knows its own slots only.
        for known in client.execute_command("CLUSTER NODES", target_nodes=node).values():
            moved |= {int(slot["slot"]) for slot in known["migrations"]}
    if not moved:
        return finding("slots", "ok", "none is being moved")
    seen = f"{', '.join(map(str, sorted(moved)))} {'is' if len(moved) == 1 else 'are'} being moved"
    return finding("slots", "warn", seen, "let the move end: calls to a partition in such a slot wait for it")


def _latency(client: Any) -> Finding:  # noqa: ANN401 - of three kinds
    trips = []
    for _ in range(20):
        began = time.perf_counter()
        client.ping()
        trips.append(time.perf_counter() - began)
    trip = sorted(trips)[len(trips) // 2]
    level: Level = "bad" if trip >= TOO_SLOW_SECONDS else "warn" if trip >= SLOW_SECONDS else "ok"
    fix = "" if level == "ok" else "bring workers and server closer together"
    return finding("latency", level, f"{trip * 1_000:.2f} ms there and back", fix)


def _clock(client: Any, local: Callable[[], float]) -> Finding:  # noqa: ANN401 - of three kinds
    def ask() -> float:
        found = client.time()
        seconds, microseconds = next(iter(found.values())) if isinstance(found, dict) else found
        return float(seconds * 1_000 + microseconds / 1_000)

    apart = round(measure_skew(ask, local))
    if abs(apart) < MAX_SKEW_MS:
        return finding("server time", "ok", f"{apart} ms from ours")
    return finding(
        "server time",
        "warn",
        f"{apart:,} ms from ours",
        "set the clocks of all machines by NTP: jobs go by the server's, but your code and your logs do not",
    )
