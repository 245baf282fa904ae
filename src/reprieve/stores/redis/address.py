"""Addresses: what a URL says of the servers, and clients that connect to them.

`redis://user:password@host:port/database`, `rediss://` with TLS, `redis+sentinel://host:port,host:port/service` and
`redis+cluster://host:port,host:port`, each with `?prefix=name`. Sentinels have passwords of their own:
`?sentinel_username=name&sentinel_password=password`. `?min_replicas=n`, where servers are promoted: what
`min-replicas-to-write` of a primary must be at least.
"""

from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

import redis
import redis.asyncio
import redis.sentinel
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from reprieve.core.ids import PARTITIONS
from reprieve.core.record import Record
from reprieve.core.redact import mask_url
from reprieve.errors import InvalidUrl

Mode: TypeAlias = Literal["single", "sentinel", "cluster"]
HostPort: TypeAlias = tuple[str, int]

PREFIX = "reprieve"
_SCHEMES: dict[str, tuple[Mode, bool]] = {
    "redis": ("single", False),
    "rediss": ("single", True),
    "valkey": ("single", False),
    "valkeys": ("single", True),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
}
SCHEMES = tuple(_SCHEMES)
_PORTS: dict[Mode, int] = {"single": 6379, "sentinel": 26379, "cluster": 6379}
_OPTIONS: dict[Mode, set[str]] = {
    "single": {"prefix", "partitions", "db"},
    "sentinel": {"prefix", "partitions", "db", "min_replicas", "sentinel_username", "sentinel_password"},
    "cluster": {"prefix", "partitions", "db", "min_replicas"},
}
_MIN_REPLICAS: dict[Mode, int] = {"single": 0, "sentinel": 1, "cluster": 0}
"""By default: a primary of a Cluster that is cut off stops by itself, after `cluster-node-timeout`."""
_CONNECT_SECONDS = 2.0
"""How long connecting may take."""
_REPLY_SECONDS = 10.0
"""How long a reply to a thread may take."""


class Address(Record):
    """Where the servers are, and how to connect to them."""

    mode: Mode
    hosts: tuple[HostPort, ...]
    username: str | None = None
    password: str | None = None
    database: int = 0
    service: str = ""
    tls: bool = False
    prefix: str = PREFIX
    partitions: int | None = None
    min_replicas: int = 0
    """What `min-replicas-to-write` of a primary must be at least."""
    sentinel_username: str | None = None
    sentinel_password: str | None = None
    shown: str = ""

    def client_for(self, host: str, port: int) -> redis.asyncio.Redis:
        """Return a client of one server, for an event loop; `Node` uses it to make connections and read replies."""
        return redis.asyncio.Redis(host=host, port=port, db=self.database, **self._options_of_loops())

    def client_for_sentinel(self, host: str, port: int) -> redis.asyncio.Redis:
        """Return the same for a Sentinel."""
        return redis.asyncio.Redis(host=host, port=port, **self._to_sentinels(self._options_of_loops()))

    def connect(self, primary: HostPort | None = None) -> Any:  # noqa: ANN401 - a client of one of three kinds
        """Return a client for threads; of the primary, if the Sentinels have named it already."""
        options = self._options() | {"retry": Retry(NoBackoff(), 0)}
        match self.mode:
            case "single" | "sentinel" if primary or self.mode == "single":
                host, port = primary or self.hosts[0]
                return redis.Redis(host=host, port=port, db=self.database, **options)
            case "sentinel":
                sentinels = redis.sentinel.Sentinel(list(self.hosts), sentinel_kwargs=self._to_sentinels(options))  # type: ignore[no-untyped-call]  # the driver's
                return sentinels.master_for(self.service, db=self.database, **options)  # type: ignore[no-untyped-call]  # as above
            case "cluster":
                nodes = [redis.cluster.ClusterNode(*host) for host in self.hosts]  # type: ignore[no-untyped-call]  # as above
                client = redis.RedisCluster(startup_nodes=nodes, **options)
                # No redirect is followed before the call is repeated: see `ClusterServers`.
                client.RedisClusterRequestTTL = 1
                return client

    def _options(self) -> dict[str, Any]:
        return {
            "username": self.username,
            "password": self.password,
            "ssl": self.tls,
            "socket_timeout": _REPLY_SECONDS,
            "socket_connect_timeout": _CONNECT_SECONDS,
            "socket_keepalive": True,
            "protocol": 2,
        }

    def _options_of_loops(self) -> dict[str, Any]:
        """Return options of a client that repeats no call and bounds none: `Connection` and `Node` do."""
        return self._options() | {"retry": AsyncRetry(NoBackoff(), 0), "socket_timeout": None}

    def _to_sentinels(self, options: dict[str, Any]) -> dict[str, Any]:
        return options | {"username": self.sentinel_username, "password": self.sentinel_password}


def address_of(url: str) -> Address:
    """Return the address that a URL names."""
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in _SCHEMES:
        raise _unreadable(url)
    mode, tls = _SCHEMES[scheme]
    # The unreadable part may belong to the password, so the cause is not shown either.
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _unreadable(url) from None
    user, _, hosts = parts.netloc.rpartition("@")
    username, _, password = user.partition(":")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    path = unquote(parts.path.strip("/"))
    try:
        partitions = int(options["partitions"]) if "partitions" in options else None
        database = int(path or 0) if mode == "single" else int(options.get("db", 0))
        where = tuple(_host(part, _PORTS[mode]) for part in hosts.split(",") if part)
        min_replicas = int(options.get("min_replicas", _MIN_REPLICAS[mode]))
    except ValueError:
        raise _unreadable(url) from None
    is_wrong = (
        options.keys() - _OPTIONS[mode]
        or min_replicas < 0
        or not where
        or (mode == "single" and len(where) > 1)
        or (mode == "sentinel" and not path)
    )
    if partitions is not None and not 1 <= partitions <= PARTITIONS:
        message = f"{mask_url(url)!r} asks for {partitions} partitions; a store has from 1 to {PARTITIONS:,}"
        raise InvalidUrl(message)
    if is_wrong:
        raise _unreadable(url)
    prefix = options.get("prefix", PREFIX)
    if not prefix or not prefix.isprintable() or "{" in prefix or "}" in prefix:
        message = f"{mask_url(url)!r} has no usable prefix; write ?prefix=name, a name without braces, or leave it out"
        raise InvalidUrl(message)
    return Address(
        mode=mode,
        hosts=where,
        username=unquote(username) or None,
        password=unquote(password) or None,
        database=database,
        service=path if mode == "sentinel" else "",
        tls=tls,
        prefix=prefix,
        partitions=partitions,
        min_replicas=min_replicas,
        sentinel_username=options.get("sentinel_username") or None,
        sentinel_password=options.get("sentinel_password") or None,
        shown=mask_url(url),
    )


def _host(text: str, port: int) -> HostPort:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError(text)
    return parts.hostname, parts.port or port


def _unreadable(url: str) -> InvalidUrl:
    forms = "redis://host:6379/0, redis+sentinel://host:26379/service or redis+cluster://host:6379"
    return InvalidUrl(f"{mask_url(url)!r} is not the URL of a Redis; write {forms}, with ?prefix=name if you like")
