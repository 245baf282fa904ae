"""Findings about one server: its version, settings, memory, disk and replicas."""

from collections.abc import Iterator
from typing import Any

from reprieve.stores.diagnostics import Finding, Level
from reprieve.stores.redis.address import Address
from reprieve.stores.redis.memory_check import FULL_SHARE, WARN_SHARE
from reprieve.stores.redis.server_checks import (
    MAX_LAG_SECONDS,
    MIN_VERSION,
    Server,
    client_of,
    server_of,
    unguarded_settings,
    version_of,
)

DEFAULT_REWRITE_PERCENTAGE, MAX_REWRITE_PERCENTAGE = 100, 1_000
"""By how much the append-only file grows before it is rewritten, by default and at most."""

MAX_REWRITE_BYTES = 1 << 30
"""The size below which the append-only file may be left as it is."""

MAX_NODE_TIMEOUT_MS = 5_000
"""How long a primary of a Cluster that is cut off should take writes at most."""


def examine_server(info: dict[str, Any], config: dict[str, str], address: Address, where: str) -> Iterator[Finding]:
    """Yield findings about a server; `where` says which it is, if there are several."""
    server, client = server_of(info, config), client_of(address)
    is_old = version_of(server.version) < MIN_VERSION
    kind = "Valkey " + str(info["valkey_version"]) if "valkey_version" in info else "Redis " + server.version
    yield finding("version" + where, "bad" if is_old else "ok", kind, "update it: scripts need 6.2" if is_old else "")
    if server.role != "master":
        yield finding("role" + where, "bad", "a replica, which takes no writes", "name its primary, or its Sentinels")
    if server.is_aof:
        yield finding("aof" + where, "ok", "appendonly yes")
    else:
        yield finding(
            "aof" + where,
            "bad",
            "appendonly no: a restart forgets every job",
            f"run {client} config set appendonly yes, then {client} config rewrite",
        )
    yield _fsync(server, where)
    is_kept = server.policy == "noeviction"
    yield finding(
        "eviction" + where,
        "ok" if is_kept else "bad",
        f"maxmemory-policy {server.policy}",
        "" if is_kept else "set noeviction, or jobs are thrown away when memory is short",
    )
    yield from _rewrites(config, where)
    yield _memory(server, where)
    yield from _replication(server, info, config, address, where)
    yield from _troubles(info, config, where)


def _fsync(server: Server, where: str) -> Finding:
    match server.fsync:
        case "always":
            return finding("fsync" + where, "ok", "appendfsync always: nothing acknowledged is lost")
        case "everysec":
            return finding("fsync" + where, "ok", "appendfsync everysec: a crash may lose the last two seconds")
        case None:
            return finding("fsync" + where, "warn", "the user may not read it", "let the user run CONFIG GET")
        case other:
            return finding("fsync" + where, "bad", f"appendfsync {other}", "set everysec, or always")


def _memory(server: Server, where: str) -> Finding:
    if not server.maxmemory:
        seen = f"{server.used >> 20:,} MiB used, without a limit"
        return finding("memory" + where, "warn", seen, "set maxmemory, or the system ends the server when it is short")
    seen = f"{server.fullness:.0%} of {server.maxmemory >> 20:,} MiB used"
    level: Level = "bad" if server.fullness >= FULL_SHARE else "warn" if server.fullness >= WARN_SHARE else "ok"
    fix = "" if level == "ok" else f"raise maxmemory, or drain it: above {FULL_SHARE:.0%} no job is taken"
    return finding("memory" + where, level, seen, fix)


def _troubles(info: dict[str, Any], config: dict[str, str], where: str) -> Iterator[Finding]:
    failed = [name for name in ("aof_last_write_status", "aof_last_bgrewrite_status") if info.get(name, "ok") != "ok"]
    if info.get("rdb_last_bgsave_status", "ok") != "ok" and config.get("stop-writes-on-bgsave-error", "yes") == "yes":
        failed.append("rdb_last_bgsave_status")
    if failed:
        seen = f"the server could not write to its disk ({', '.join(failed)})"
        yield finding("disk" + where, "bad", seen, "look at its log, and at the room on its disk")
    else:
        yield finding("disk" + where, "ok", "everything was written")
    rejected = int(info.get("rejected_connections", 0))
    if rejected:
        yield finding(
            "clients" + where,
            "warn",
            f"{rejected:,} connections were refused",
            "raise maxclients, or use fewer workers",
        )


def _rewrites(config: dict[str, str], where: str) -> Iterator[Finding]:
    """Check that the append-only file is rewritten, and so that a restart reads it quickly."""
    if config.get("aof-use-rdb-preamble", "yes") != "yes":
        seen = "aof-use-rdb-preamble no: a restart carries out every command of the append-only file again"
        yield finding("aof preamble" + where, "warn", seen, "set aof-use-rdb-preamble yes")
    percentage = int(config.get("auto-aof-rewrite-percentage", DEFAULT_REWRITE_PERCENTAGE))
    min_bytes = int(config.get("auto-aof-rewrite-min-size", MAX_REWRITE_BYTES))
    if percentage == 0:
        seen = "auto-aof-rewrite-percentage 0: the append-only file grows until the disk is full"
        yield finding("aof rewrite" + where, "bad", seen, "set it to 100")
    elif percentage > MAX_REWRITE_PERCENTAGE or min_bytes > MAX_REWRITE_BYTES:
        seen = f"it is rewritten when it has grown by {percentage:,} % and has {min_bytes >> 20:,} MiB"
        fix = "set auto-aof-rewrite-percentage 100 and auto-aof-rewrite-min-size 64mb, or a restart takes long"
        yield finding("aof rewrite" + where, "warn", seen, fix)
    else:
        yield finding("aof rewrite" + where, "ok", f"when it has grown by {percentage} %")


def _replication(
    server: Server, info: dict[str, Any], config: dict[str, str], address: Address, where: str
) -> Iterator[Finding]:
    """Check how long a primary takes writes after it was cut off from its replicas, one of which is promoted."""
    replicas = int(info.get("connected_slaves", 0))
    is_guarded = server.min_replicas > 0 and 0 < server.max_lag_seconds <= MAX_LAG_SECONDS
    set_to = f"min-replicas-to-write {server.min_replicas}, min-replicas-max-lag {server.max_lag_seconds}"
    if address.mode == "sentinel" and not is_guarded:
        level: Level = "bad" if unguarded_settings(server, address) else "warn"
        seen = f"{set_to}: a primary that is cut off takes jobs, and they are lost"
        fix = f"run {client_of(address)} config set min-replicas-to-write 1 on every server, and have two replicas"
        yield finding("replicas" + where, level, seen, fix)
    elif address.mode == "sentinel" and replicas <= server.min_replicas:
        seen = f"{replicas} replicas, and {set_to}: without one of them the primary takes no jobs"
        yield finding("replicas" + where, "warn", seen, f"add a replica, so that there are {server.min_replicas + 1}")
    elif address.mode == "sentinel":
        yield finding("replicas" + where, "ok", f"{replicas} replicas, and {set_to}")
    timeout_ms = int(config.get("cluster-node-timeout", 0))
    if address.mode == "cluster" and replicas and timeout_ms > MAX_NODE_TIMEOUT_MS and not is_guarded:
        seen = f"cluster-node-timeout {timeout_ms}: so long a primary that is cut off takes jobs, and they are lost"
        yield finding("node timeout" + where, "warn", seen, "set it to 2000, or min-replicas-to-write to 1")


def finding(name: str, level: Level, seen: str, fix: str = "") -> Finding:
    """Return a finding."""
    return Finding(name=name, level=level, seen=seen, fix=fix)
