"""Where the jobs live: the server, the database and the schema that a URL names."""

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
from reprieve.stores.postgres.line import LOOKS, PATIENCE, Line

Durability: TypeAlias = Literal["full", "fast"]
"""Full waits until the server has flushed; fast may lose the last moments when the server crashes, nothing else."""

SCHEMA: Final = "reprieve"

DEFAULTS: Final[dict[str, str | int]] = {
    "application_name": "reprieve",
    "connect_timeout": PATIENCE,
    # Of several servers, the one that takes jobs; after a failover, whoever still answers as a replica is not it.
    "target_session_attrs": "read-write",
    # A server that vanished without a word says nothing for ever: what it was told has to be acknowledged in time, and
    # where nothing is told it is asked whether it is still there.
    "tcp_user_timeout": PATIENCE * 1_000,
    "keepalives_idle": PATIENCE,
    "keepalives_interval": PATIENCE // 3,
    "keepalives_count": 3,
}
"""What a URL may say otherwise."""

ENCODING: Final = "utf8"
"""What we speak, whatever the URL, the environment and the database say: one of encoding SQL_ASCII keeps any bytes."""

SETTINGS: Final = {
    "timezone": "UTC",
    "default_transaction_isolation": "read committed",
    "lock_timeout": f"{PATIENCE}s",
    "statement_timeout": f"{LOOKS}s",
    # A process that was stopped in the middle of its turn must not stop all others.
    "idle_in_transaction_session_timeout": f"{PATIENCE // 2}s",
    # Tables are empty one hour and full the next: no plan may depend on what a table held when it was made.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
}

WRITE: Final = "isolation level read committed read write"
"""Each statement sees what was committed before it: so whoever has waited for the turn sees all that came before."""

READ: Final = "isolation level repeatable read read only"

_PLACE = Struct(">IH")
_LONGEST = 54
"""Letters of a schema's name, whose notifications have a name that is longer by nine, and 63 at the most."""

_NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_$]{{0,{_LONGEST - 1}}}")


class Address(msgspec.Struct, frozen=True):
    """A schema of a database."""

    conninfo: str
    schema: str
    durability: Durability = "full"
    ears: str = ""
    """The server itself, where `conninfo` names a pooler in front of it."""

    def __repr__(self) -> str:
        """Show where, and no password."""
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
        """Where names are looked up: temporary tables, which come first unless they are named, have to stand back."""
        return f"{self.schema}, pg_temp"

    def connect(self) -> Line:
        """Open a connection for jobs. What `begin` starts on it finds the schema and our settings."""
        connection = self._open(self.conninfo)
        connection.is_pooled = is_pooled(connection)
        if not connection.is_pooled:
            connection.execute(self._settings(is_local=False))
        return connection

    def listen(self) -> Line:
        """Open a connection that hears notifications, if it can be had."""
        connection = self._open(self.ears or self.conninfo)
        connection.patience = PATIENCE
        return connection

    def begin(self, connection: Line, mode: str) -> None:
        """Begin a transaction."""
        for statement in self.opening(connection, mode):
            connection.execute(statement)

    def opening(self, connection: Line, mode: str) -> list[str]:
        """Return what begins a transaction. Through a pooler each has another session, and brings its settings."""
        begin = f"begin {mode}"
        return [begin, self._settings(is_local=True)] if connection.is_pooled else [begin]

    @contextmanager
    def transaction(self, connection: Line, mode: str = WRITE) -> Iterator[None]:
        """Do something in a transaction."""
        self.begin(connection, mode)
        try:
            yield
        except BaseException:
            if not connection.closed:
                connection.execute("rollback")
            raise
        connection.execute("commit")

    def _open(self, conninfo: str) -> Line:
        connection = Line.connect(conninfo, autocommit=True, prepare_threshold=None)
        adapters = connection.adapters
        adapters.register_dumper(int, Int8Dumper)
        adapters.register_loader("uuid", IdLoader)
        adapters.register_loader("tid", PlaceLoader)
        return connection

    def _settings(self, *, is_local: bool) -> str:
        settings = SETTINGS | {"search_path": self.path}
        if self.durability == "fast":
            settings["synchronous_commit"] = "off"
        pairs = ", ".join(f"set_config('{name}', '{value}', {is_local})" for name, value in settings.items())
        return f"select {pairs}"


def is_pooled(connection: psycopg.Connection) -> bool:
    """Whether a pooler stands between us and the server: whoever answers is not who let us in."""
    (answers,) = connection.execute("select pg_backend_pid()").fetchone() or (0,)
    return int(answers) != connection.info.backend_pid


class PlaceLoader(Loader):
    """Reads where a row is as the text that the server writes for it."""

    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        """Read a block and a line in it."""
        return "({},{})".format(*_PLACE.unpack(data))


class IdLoader(Loader):
    """Reads a uuid as the text that ids are everywhere else."""

    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        """Read one."""
        return id_from_bytes(bytes(data))


def address_of(url: str, schema: str | None = None, durability: Durability = "full") -> Address:
    """Read a URL: `postgresql://user:password@host/database?schema=name`, and whatever else libpq understands.

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
        ears = _conninfo(ours["listen"]) if ours.get("listen") else ""
    except (ValueError, psycopg.Error):
        message = f"{mask_url(url)!r} cannot be read; write postgresql://user:password@host/database"
        # What libpq says of it quotes it, with the password.
        raise InvalidUrl(message) from None
    name = schema or ours.get("schema", SCHEMA)
    if not _NAME.fullmatch(name) or name.startswith("pg_"):
        message = f"schema {name[:80]!r} will not do; give letters, digits and underscores, {_LONGEST} at the most"
        raise InvalidUrl(message)
    return Address(conninfo, f'"{name}"', durability, ears)


def _conninfo(url: str) -> str:
    """Write a URL as libpq reads it best, with our defaults for what neither it nor the environment says."""
    given = conninfo_to_dict(url)
    for port in str(given.get("port", "")).split(","):
        if port:
            int(port)  # raises if it is no number, which libpq would only find later
    known = Conninfo.get_defaults()
    said = {option.keyword.decode() for option in known if option.envvar and option.envvar.decode() in os.environ}
    defaults = {name: value for name, value in DEFAULTS.items() if name not in said}
    return make_conninfo("", **defaults | given | {"client_encoding": ENCODING})
