"""Where the jobs live: the server, the database and the schema that a URL names."""

import re
from typing import Final, Literal, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec
import psycopg
from psycopg.adapt import Buffer, Loader
from psycopg.pq import Format
from psycopg.types.numeric import Int8Dumper

from reprieve.errors import InvalidUrl
from reprieve.stores.postgres.rows import text
from reprieve.stores.url import masked

Durability: TypeAlias = Literal["full", "fast"]
"""Full waits until the server has flushed; fast may lose the last moments when the server crashes, nothing else."""

SCHEMA: Final = "reprieve"

PATIENCE: Final = 10
"""Seconds for which somebody else's turn, or a server that does not answer, is waited for."""

SETTINGS: Final = {
    "timezone": "UTC",
    "default_transaction_isolation": "read committed",
    "lock_timeout": f"{PATIENCE}s",
    # A process that was stopped in the middle of its turn must not stop all others.
    "idle_in_transaction_session_timeout": f"{PATIENCE // 2}s",
    # Tables are empty one hour and full the next: no plan may depend on what a table held when it was made.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,62}")


class Address(msgspec.Struct, frozen=True):
    """A schema of a database."""

    conninfo: str
    schema: str
    durability: Durability = "full"

    def connect(self) -> psycopg.Connection:
        """Open a connection for jobs."""
        connection = psycopg.connect(
            self.conninfo, autocommit=True, prepare_threshold=0, connect_timeout=PATIENCE, application_name="reprieve"
        )
        connection.prepared_max = 256
        adapters = connection.adapters
        adapters.register_dumper(int, Int8Dumper)
        adapters.register_loader("uuid", IdLoader)
        settings = SETTINGS | {"search_path": self.schema}
        if self.durability == "fast":
            settings["synchronous_commit"] = "off"
        pairs = ", ".join("set_config(%s, %s, false)" for _ in settings)
        connection.execute(
            f"select {pairs}",
            [part for pair in settings.items() for part in pair],
            prepare=False,
        )
        return connection


class IdLoader(Loader):
    """Reads a uuid as the text that ids are everywhere else."""

    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        """Read one."""
        return text(bytes(data))


def address_of(url: str, schema: str | None = None, durability: Durability = "full") -> Address:
    """Read a URL: `postgresql://user:password@host/database?schema=name`, and whatever else libpq understands."""
    try:
        parts = urlsplit(url)
        options = parse_qsl(parts.query, keep_blank_values=True)
        named = [value for name, value in options if name == "schema"]
        rest = urlencode([(name, value) for name, value in options if name != "schema"])
        conninfo = urlunsplit(parts._replace(query=rest))
        psycopg.conninfo.conninfo_to_dict(conninfo)
        if "," not in parts.netloc:
            _ = parts.port  # raises if it is no number, which libpq would only find later
    except (ValueError, psycopg.Error) as error:
        message = f"{masked(url)!r} cannot be read; write postgresql://user:password@host/database"
        raise InvalidUrl(message) from error
    name = schema or (named[-1] if named else SCHEMA)
    if not _NAME.fullmatch(name) or name.startswith("pg_"):
        message = f"schema {name[:80]!r} is no name; give letters, digits and underscores"
        raise InvalidUrl(message)
    return Address(conninfo, f'"{name}"', durability)
