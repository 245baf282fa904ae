"""The guard: what a server must be like to be trusted with jobs, and how full it may be."""

from collections.abc import Mapping
from shlex import quote
from typing import Any, Literal, TypeAlias

import structlog

from reprieve.clock import ticks
from reprieve.core.record import Record
from reprieve.errors import ForeignStore, StoreError, StoreFull, StoreReadOnly, StoreUnreachable, UnsafeStore
from reprieve.stores.redis.address import Address

Durability: TypeAlias = Literal["full", "fast", "strict"]
"""`full` wants a server that writes everything down every second, `strict` one that does so before it answers, and
`fast` takes any, for those who insist."""

OLDEST = (6, 2)
"""The oldest Redis that has every command of the scripts. Valkey counts on from Redis 7.2."""

PORT = 6379
"""Where redis-cli looks unless it is told otherwise."""

ALERT, FULL = 0.8, 0.9
"""Shares of maxmemory at which to say so, and at which no more jobs are taken: those there can be worked off."""

LOOK_EVERY, LOOK_AFTER = 1.0, 0.02
"""Seconds, and the share of maxmemory enqueued, from one look at the memory to the next."""

log = structlog.get_logger("reprieve")


class Server(Record):
    """What a server says of itself."""

    version: str
    is_cluster: bool
    role: str
    is_aof: bool
    fsync: str | None
    """When it flushes its log; None if we may not know."""
    policy: str
    used: int
    maxmemory: int
    last_write_ok: bool = True

    @property
    def fullness(self) -> float:
        """The share of maxmemory that is used; 0 without a limit."""
        return self.used / self.maxmemory if self.maxmemory else 0.0


def server_of(info: Mapping[str, Any], fsync: str | None = None) -> Server:
    """Read what INFO says."""
    return Server(
        version=str(info.get("redis_version", "0")),
        is_cluster=info.get("cluster_enabled") == 1,
        role=str(info.get("role", "master")),
        is_aof=info.get("aof_enabled") == 1,
        fsync=fsync,
        policy=str(info.get("maxmemory_policy", "noeviction")),
        used=used_of(info),
        maxmemory=int(info.get("maxmemory", 0)),
        last_write_ok=info.get("aof_last_write_status", "ok") == "ok",
    )


def used_of(info: Mapping[str, Any]) -> int:
    """Return the memory that counts against maxmemory."""
    return int(info.get("used_memory", 0)) - int(info.get("mem_not_counted_for_evict", 0))


def version_of(text: str) -> tuple[int, int]:
    """Read a version."""
    major, minor, *_ = (*text.split("."), "0", "0")
    return int(major), int(minor)


def require_safe(server: Server, address: Address, durability: Durability) -> None:
    """Refuse a server that is another than was named, or that would lose jobs without a word."""
    if version_of(server.version) < OLDEST:
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
    cures = _cures(server, durability)
    if not cures:
        return
    seen = ", ".join(f"{name} {now}" for name, now, _ in cures)
    commands = " && ".join(f"{client_of(address)} config set {name} {wanted}" for name, _, wanted in cures)
    weaker = "full, which may lose the last two seconds" if durability == "strict" else "fast, if jobs may be lost"
    message = (
        f"the server would lose jobs as it is set up ({seen}); run {commands} && {client_of(address)} config rewrite "
        f"(which needs a configuration file), or set REPRIEVE_DURABILITY={weaker}"
    )
    raise UnsafeStore(message)


def _cures(server: Server, durability: Durability) -> list[tuple[str, str, str]]:
    """Return the settings of a server that would lose jobs: each with its value, and with the one that it needs."""
    cures = []
    if server.policy != "noeviction":
        cures.append(("maxmemory-policy", server.policy, "noeviction"))
    if not server.is_aof:
        cures.append(("appendonly", "no", "yes"))
    wanted = "always" if durability == "strict" else "everysec"
    if server.fsync == "no" or (durability == "strict" and server.fsync != "always"):
        cures.append(("appendfsync", server.fsync or "that this user may not read", wanted))
    return cures


def client_of(address: Address) -> str:
    """Return how redis-cli is called for a server; without its password, for which it asks."""
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
            # The Sentinels are asked where the server is: they are not the server.
            words.append("-h HOST -p PORT")
        case "single" if (host, port) != ("localhost", PORT):
            words.append(f"-h {host} -p {port}")
    return " ".join(words)


class Guard:
    """Watches the memory of the servers that jobs are enqueued to."""

    def __init__(self) -> None:
        """Look at the first enqueue."""
        self._looked_at: float | None = None
        self._bytes = self._bytes_until_look = 0
        self._fullness = 0.0
        self._is_warned = False

    def has_room(self, size: int) -> bool:
        """Whether there is room for so many bytes, as far as is known since the last look; False: have a look."""
        is_due = self._looked_at is None or ticks() - self._looked_at >= LOOK_EVERY
        if is_due or self._bytes + size >= self._bytes_until_look > 0 or self._fullness >= FULL:
            return False
        self._bytes += size
        return True

    async def require_room(self, look: Any, size: int) -> None:  # noqa: ANN401 - a coroutine function that answers INFO
        """Refuse jobs of so many bytes when the server is nearly full; what is there can still be worked off."""
        if not self.has_room(size):
            self._looked_at, self._bytes = ticks(), size
            try:
                infos = await look()
            except StoreUnreachable:
                raise
            except StoreError:
                return  # the enqueue itself will say what is wrong
            seen = [server_of(info) for info in infos]
            self._fullness = max((server.fullness for server in seen), default=0.0)
            self._bytes_until_look = int(LOOK_AFTER * min((server.maxmemory for server in seen), default=0))
            self._warn()
        if self._fullness >= FULL:
            message = (
                f"the server has used {self._fullness:.0%} of its maxmemory, and takes no more jobs above {FULL:.0%}; "
                "raise maxmemory, or let workers drain it"
            )
            raise StoreFull(message)

    def _warn(self) -> None:
        if self._fullness >= ALERT and not self._is_warned:
            log.warning("the store is nearly full", used=f"{self._fullness:.0%}", refuses_at=f"{FULL:.0%}")
        self._is_warned = self._fullness >= ALERT
