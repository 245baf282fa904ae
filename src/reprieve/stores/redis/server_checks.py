"""Server checks: what a server must be, and be set to, before jobs are stored on it."""

from collections.abc import Mapping
from shlex import quote
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from reprieve.core.record import Record
from reprieve.errors import ForeignStore, StoreReadOnly, UnsafeStore
from reprieve.stores.redis.address import Address

Durability: TypeAlias = Literal["full", "fast", "strict"]
"""`full`: the server flushes its log every second; `strict`: before it replies; `fast`: any server."""

MIN_VERSION = (6, 2)
"""The first Redis with every command of the scripts. Valkey counts on from Redis 7.2."""

MAX_LAG_SECONDS = 10
"""What `min-replicas-max-lag` may be at most: for so long a primary that is cut off takes jobs that are lost."""

DEFAULT_PORT = 6379
"""The port that redis-cli connects to by default."""


class Server(Record):
    """What INFO and CONFIG say of a server."""

    version: str
    is_cluster: bool
    role: str
    is_aof: bool
    fsync: str | None
    """When it flushes its log; None: the user may not read the setting."""
    policy: str
    used: int
    maxmemory: int
    last_write_ok: bool = True
    min_replicas: int = 0
    """How many replicas must have replied lately for the server to take writes."""
    max_lag_seconds: int = MAX_LAG_SECONDS
    """How long ago that may be at most."""

    @property
    def fullness(self) -> float:
        """The share of maxmemory that is used; 0 without a limit."""
        return self.used / self.maxmemory if self.maxmemory else 0.0


def server_of(info: Mapping[str, Any], config: Mapping[str, str] = MappingProxyType({})) -> Server:
    """Return what INFO says, and CONFIG as far as the user may read it."""
    # INFO has this field only where writes need replicas.
    min_replicas = 1 if "min_slaves_good_slaves" in info else 0
    return Server(
        version=str(info.get("redis_version", "0")),
        is_cluster=info.get("cluster_enabled") == 1,
        role=str(info.get("role", "master")),
        is_aof=info.get("aof_enabled") == 1,
        fsync=config.get("appendfsync"),
        policy=str(info.get("maxmemory_policy", "noeviction")),
        used=used_of(info),
        maxmemory=int(info.get("maxmemory", 0)),
        last_write_ok=info.get("aof_last_write_status", "ok") == "ok",
        min_replicas=int(config.get("min-replicas-to-write", min_replicas)),
        max_lag_seconds=int(config.get("min-replicas-max-lag", MAX_LAG_SECONDS)),
    )


def used_of(info: Mapping[str, Any]) -> int:
    """Return the memory that counts against maxmemory."""
    return int(info.get("used_memory", 0)) - int(info.get("mem_not_counted_for_evict", 0))


def version_of(text: str) -> tuple[int, int]:
    """Return a version as numbers."""
    major, minor, *_ = (*text.split("."), "0", "0")
    return int(major), int(minor)


def require_safe(server: Server, address: Address, durability: Durability) -> None:
    """Raise an error for a server of another kind than the URL says, or one that would silently lose jobs."""
    if version_of(server.version) < MIN_VERSION:
        message = f"the server is Redis {server.version}, and its scripts need 6.2; update it"
        raise UnsafeStore(message)
    if server.is_cluster and address.mode != "cluster":
        message = "the server is a node of a Cluster; name it as redis+cluster://"
        raise ForeignStore(message)
    if server.role != "master" and address.mode == "single":
        message = "the server is a replica, which takes no writes; name its primary, or use redis+sentinel://"
        raise StoreReadOnly(message)
    if durability == "fast":
        return
    unsafe = [*_unsafe_settings(server, durability), *unguarded_settings(server, address)]
    if not unsafe:
        return
    seen = ", ".join(f"{name} {now}" for name, now, _ in unsafe)
    commands = " && ".join(f"{client_of(address)} config set {name} {wanted}" for name, _, wanted in unsafe)
    weaker = "full, which may lose the last two seconds" if durability == "strict" else "fast, if jobs may be lost"
    insist = ", or add ?min_replicas=0 to the URL" if unguarded_settings(server, address) else ""
    message = (
        f"the server would lose jobs as it is set up ({seen}); run {commands} && {client_of(address)} config rewrite "
        f"(which needs a configuration file){insist}, or set REPRIEVE_DURABILITY={weaker}"
    )
    raise UnsafeStore(message)


def _unsafe_settings(server: Server, durability: Durability) -> list[tuple[str, str, str]]:
    """Return the settings with which a server loses jobs: name, value, and the value that is needed."""
    unsafe = []
    if server.policy != "noeviction":
        unsafe.append(("maxmemory-policy", server.policy, "noeviction"))
    if not server.is_aof:
        unsafe.append(("appendonly", "no", "yes"))
    wanted = "always" if durability == "strict" else "everysec"
    if server.fsync == "no" or (durability == "strict" and server.fsync != "always"):
        unsafe.append(("appendfsync", server.fsync or "that this user may not read", wanted))
    return unsafe


def unguarded_settings(server: Server, address: Address) -> list[tuple[str, str, str]]:
    """Return the settings with which a primary takes writes after it has lost its replicas; see `_unsafe_settings`."""
    unguarded = []
    if server.min_replicas < address.min_replicas:
        unguarded.append(("min-replicas-to-write", str(server.min_replicas), str(address.min_replicas)))
    if address.min_replicas and not 0 < server.max_lag_seconds <= MAX_LAG_SECONDS:
        unguarded.append(("min-replicas-max-lag", str(server.max_lag_seconds), str(MAX_LAG_SECONDS)))
    return unguarded


def client_of(address: Address) -> str:
    """Return the redis-cli command for a server; without the password, which it asks for."""
    host, port = address.hosts[0]
    words = ["redis-cli"]
    if address.username:
        words.append(f"--user {quote(address.username)}")
    if address.password:
        words.append("--askpass")
    if address.tls:
        words.append("--tls")
    match address.mode:
        case "cluster":
            words.append(f"--cluster call {host}:{port}")
        case "sentinel":
            # The URL names the Sentinels, not the server.
            words.append("-h HOST -p PORT")
        case "single" if (host, port) != ("localhost", DEFAULT_PORT):
            words.append(f"-h {host} -p {port}")
    return " ".join(words)
