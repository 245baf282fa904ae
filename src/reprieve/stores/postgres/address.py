"""The address of a store: the server, the database and the schema that a URL names, and how to connect."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Final, Literal, TypeAlias
from urllib.parse import unquote

import msgspec
import psycopg
from psycopg.adapt import Buffer, Loader
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo, Format
from psycopg.types.numeric import Int8Dumper

from reprieve.core.ids import id_from_bytes
from reprieve.core.redact import mask_url
from reprieve.errors import InvalidUrl
from reprieve.stores.postgres.connection import CONNECT_SECONDS, READ_SECONDS, Connection

Durability: TypeAlias = Literal["full", "fast"]
"""Full waits until the server has flushed; fast may lose the last moments when the server crashes, nothing else."""

SCHEMA: Final = "reprieve"

DEFAULTS: Final[dict[str, str | int]] = {
    "application_name": "reprieve",
    "connect_timeout": CONNECT_SECONDS,
    # Of several servers, the primary; after a failover, the old one may still accept connections as a replica.
    "target_session_attrs": "read-write",
    # A server that vanished closes no connection: what was sent must be acknowledged in time, and an idle connection is
    # probed.
    "tcp_user_timeout": CONNECT_SECONDS * 1_000,
    "keepalives_idle": CONNECT_SECONDS,
    "keepalives_interval": CONNECT_SECONDS // 3,
    "keepalives_count": 3,
}
"""Defaults, which a URL may override."""

ENCODING: Final = "utf8"
"""The client encoding, whatever the URL, the environment and the database say."""

SETTINGS: Final = {
    "timezone": "UTC",
    "default_transaction_isolation": "read committed",
    "lock_timeout": f"{CONNECT_SECONDS}s",
    "statement_timeout": f"{READ_SECONDS}s",
    # A process that is stopped while it holds the claim lock must not stop all others.
    "idle_in_transaction_session_timeout": f"{CONNECT_SECONDS // 2}s",
    # Tables are empty one hour and full the next: no plan may depend on what a table held when it was made.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
}

WRITE: Final = "isolation level read committed read write"
"""Each statement sees what was committed before it: after the claim lock, all changes of its last holder."""

READ: Final = "isolation level repeatable read read only"

_TID = Struct(">IH")
_MAX_NAME_LENGTH = 54
"""Letters of a schema's name: its channel has nine more, and PostgreSQL allows 63."""

_NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_$]{{0,{_MAX_NAME_LENGTH - 1}}}")


class Address(msgspec.Struct, frozen=True):
    """A schema of a database."""

    conninfo: str
    schema: str
    durability: Durability = "full"
    listen_conninfo: str = ""
    """The server itself, for notifications, where `conninfo` names a pooler."""

    def __repr__(self) -> str:
        """Show the host, the database and the schema, without the password."""
        where = conninfo_to_dict(self.conninfo)
        return f"Address({where.get('host', '')}/{where.get('dbname', '')}, {self.schema})"

    @property
    def shown(self) -> str:
        """The URL of the server and the database, without the password."""
        where = conninfo_to_dict(self.conninfo)
        hosts, ports = (str(where.get(part) or "").split(",") for part in ("host", "port"))
        if len(ports) == 1:
            ports *= len(hosts)
        servers = ",".join(f"{host}:{port}" if port else host for host, port in zip(hosts, ports, strict=False))
        user = f"{where['user']}@" if where.get("user") else ""
        return f"postgresql://{user}{servers}/{where.get('dbname') or ''}"

    @property
    def path(self) -> str:
        """The search path. Temporary tables, which would come first, are named last."""
        return f"{self.schema}, pg_temp"

    def connect(self) -> Connection:
        """Open a connection; transactions begun by `begin` have our search path and settings."""
        connection = self._open(self.conninfo)
        connection.is_pooled = is_pooled(connection)
        if not connection.is_pooled:
            connection.execute(self._settings(is_local=False))
        return connection

    def connect_listener(self) -> Connection:
        """Open a connection for notifications, to the server itself if it is known."""
        connection = self._open(self.listen_conninfo or self.conninfo)
        connection.max_silence_seconds = CONNECT_SECONDS
        return connection

    def begin(self, connection: Connection, mode: str) -> None:
        """Begin a transaction."""
        for statement in self.opening(connection, mode):
            connection.execute(statement)

    def opening(self, connection: Connection, mode: str) -> list[str]:
        """Return the statements that begin a transaction; through a pooler they also set our settings."""
        begin = f"begin {mode}"
        return [begin, self._settings(is_local=True)] if connection.is_pooled else [begin]

    @contextmanager
    def transaction(self, connection: Connection, mode: str = WRITE) -> Iterator[None]:
        """Run the block in a transaction."""
        self.begin(connection, mode)
        try:
            yield
        except BaseException:
            if not connection.closed:
                connection.execute("rollback")
            raise
        connection.execute("commit")

    def _open(self, conninfo: str) -> Connection:
        connection = Connection.connect(conninfo, autocommit=True, prepare_threshold=None)
        adapters = connection.adapters
        adapters.register_dumper(int, Int8Dumper)
        adapters.register_loader("uuid", IdLoader)
        adapters.register_loader("tid", TidLoader)
        return connection

    def _settings(self, *, is_local: bool) -> str:
        settings = SETTINGS | {"search_path": self.path}
        if self.durability == "fast":
            settings["synchronous_commit"] = "off"
        pairs = ", ".join(f"set_config('{name}', '{value}', {is_local})" for name, value in settings.items())
        return f"select {pairs}"


def is_pooled(connection: psycopg.Connection) -> bool:
    """Whether a pooler is between us and the server: the process that responds is not the one that connected."""
    (pid,) = connection.execute("select pg_backend_pid()").fetchone() or (0,)
    return int(pid) != connection.info.backend_pid


class TidLoader(Loader):
    """Loads the location of a row (ctid) as the text that the server writes for it."""

    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        """Load a block number and an offset."""
        return "({},{})".format(*_TID.unpack(data))


class IdLoader(Loader):
    """Loads a uuid as the text that ids are everywhere else."""

    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        """Load an id."""
        return id_from_bytes(bytes(data))


def address_of(url: str, schema: str | None = None, durability: Durability = "full") -> Address:
    """Return the address of a URL: `postgresql://user:password@host/database?schema=name`, and any option of libpq.

    `listen` in it is the URL of the server itself, for notifications, where the rest names a pooler.
    """
    base, _, query = url.partition("?")
    ours: dict[str, str] = {}
    theirs: list[str] = []
    for option in query.split("&") if query else ():
        name, _, value = option.partition("=")
        if name in ("schema", "listen"):
            ours[name] = unquote(value)
        else:
            theirs.append(option)
    try:
        conninfo = _conninfo("?".join((base, "&".join(theirs))) if theirs else base)
        listen_conninfo = _conninfo(ours["listen"]) if ours.get("listen") else ""
    except (ValueError, psycopg.Error):
        message = f"{mask_url(url)!r} cannot be read; write postgresql://user:password@host/database"
        # The message of libpq quotes the URL, with the password.
        raise InvalidUrl(message) from None
    name = schema or ours.get("schema", SCHEMA)
    if not _NAME.fullmatch(name) or name.startswith("pg_"):
        message = f"schema must be 1–{_MAX_NAME_LENGTH} letters, digits and underscores, got {name[:80]!r}"
        raise InvalidUrl(message)
    return Address(conninfo, f'"{name}"', durability, listen_conninfo)


def _conninfo(url: str) -> str:
    """Return the conninfo of a URL, with our defaults for what neither it nor the environment sets."""
    given = conninfo_to_dict(url)
    for port in str(given.get("port", "")).split(","):
        if port:
            int(port)  # raises now for a port that is not a number; libpq would when it connects
    known = Conninfo.get_defaults()
    said = {option.keyword.decode() for option in known if option.envvar and option.envvar.decode() in os.environ}
    defaults = {name: value for name, value in DEFAULTS.items() if name not in said}
    return make_conninfo("", **defaults | given | {"client_encoding": ENCODING})
