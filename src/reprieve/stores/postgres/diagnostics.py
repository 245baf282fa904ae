"""Diagnostics of a schema: the server, its settings, the schema version, sessions, and what slows it down."""

from collections.abc import Callable, Iterator
from contextlib import closing

import msgspec
import psycopg

from reprieve.errors import ReprieveError
from reprieve.stores import outbox
from reprieve.stores.diagnostics import (
    Finding,
    Migration,
    SchemaVersion,
    error_finding,
    events_finding,
    local_clock,
    measure_skew,
    records_finding,
    schema_finding,
    sessions_finding,
)
from reprieve.stores.postgres import schema
from reprieve.stores.postgres.address import READ, Address
from reprieve.stores.postgres.connection import Connection
from reprieve.stores.postgres.error_mapping import translate
from reprieve.stores.postgres.functions import functions
from reprieve.stores.postgres.leases import unpack_lease
from reprieve.stores.postgres.notifier import POLL_SECONDS
from reprieve.stores.postgres.outbox import contents_of
from reprieve.stores.postgres.statements import statements

MAX_SKEW_MS = 1_000
"""Milliseconds that this clock may differ from the server's."""

MIN_SPARE_CONNECTIONS = 20
"""Connections of the server that should be unused."""

MAX_TRANSACTION_SECONDS = 600
"""Seconds that a transaction may be open: while it is, vacuum removes no dead row."""

MAX_REPLICA_LAG_TRANSACTIONS = 1_000_000
"""Transactions that a replica may be behind: it keeps dead rows as well."""


class PostgresDiagnostics:
    """Examines and migrates one schema, without opening it for jobs."""

    def __init__(self, address: Address) -> None:
        """Take the schema."""
        self._address = address

    def examine(self, now: int) -> Iterator[Finding]:
        """Return what is found of the server, the connection, the settings, the schema, our rights and the sessions."""
        local = local_clock(now)
        try:
            with closing(self._address.connect()) as connection, self._address.transaction(connection, READ):
                yield from self._state(connection, now, local)
        except (psycopg.Error, msgspec.MsgspecError, ReprieveError) as error:
            yield error_finding("store", translate(error, self._address.shown))

    def schema_version(self) -> SchemaVersion:
        """Return the version of the schema; 0 if it is missing or empty."""
        known = len(schema.migrations())
        try:
            with closing(self._address.connect()) as connection, self._address.transaction(connection, READ):
                stored = schema.schema_version(connection, self._address)
                missing = len(schema.missing_functions(connection)) if stored >= known else 0
                made_by = schema.compatibility(connection) if stored else None
                return SchemaVersion(stored=stored, known=known, compatibility=made_by, missing_functions=missing)
        except psycopg.Error as error:
            raise translate(error, self._address.shown) from error

    def migrate(self) -> SchemaVersion:
        """Bring the schema up to date, and drop functions that no release uses."""
        schema.migrate(self._address)
        return self.schema_version()

    def migrations(self) -> list[Migration]:
        """Return the migrations and the functions of this release, each as a script to be run by hand."""
        return schema.scripts(self._address)

    def _state(self, connection: Connection, now: int, local: Callable[[], float]) -> Iterator[Finding]:
        schema.require_server(connection)
        yield _server(connection)
        yield _connection_path(connection, self._address)
        yield _flushes(connection)
        yield _clock(connection, local)
        yield _vacuum(connection)
        yield _connections(connection)
        yield _transactions(connection)
        stored, known = schema.schema_version(connection, self._address), len(schema.migrations())
        made_by = schema.compatibility(connection) if stored else None
        yield schema_finding(SchemaVersion(stored=stored, known=known, compatibility=made_by))
        if stored < known:
            return
        yield _functions(connection)
        yield _rights(connection, self._address)
        yield _indexes(connection)
        yield _lanes(connection)
        yield _events(connection, now)
        yield _sessions(connection, now)
        yield _records(connection)
        yield outbox.find(contents_of(connection.execute(statements("outbox")["contents"]).fetchone()), now)


def _server(connection: psycopg.Connection) -> Finding:
    version = connection.info.parameter_status("server_version") or ""
    (is_replica,) = connection.execute(statements("diagnostics")["replica"]).fetchone() or (False,)
    if is_replica:
        fix = "name the primary server in the URL, and leave target_session_attrs out of it"
        return Finding(name="server", level="bad", seen=f"PostgreSQL {version}, a replica that takes no jobs", fix=fix)
    return Finding(name="server", level="ok", seen=f"PostgreSQL {version}")


def _connection_path(connection: Connection, address: Address) -> Finding:
    if not connection.is_pooled:
        return Finding(name="way", level="ok", seen="straight to the server")
    if address.listen_conninfo:
        return Finding(name="way", level="ok", seen="through a pooler, and straight to the server to listen")
    seen = f"through a pooler, where no notification arrives: workers poll every {POLL_SECONDS:g} s"
    fix = "add listen=… with the URL of the server itself to the URL, so that jobs start at once"
    return Finding(name="way", level="warn", seen=seen, fix=fix)


def _clock(connection: psycopg.Connection, local: Callable[[], float]) -> Finding:
    def ask() -> float:
        (server,) = connection.execute(statements("diagnostics")["clock"]).fetchone() or (local(),)
        return float(server)

    apart = round(abs(measure_skew(ask, local)))
    seen = f"{apart:,} ms from the server's"
    if apart < MAX_SKEW_MS:
        return Finding(name="skew", level="ok", seen=seen)
    fix = "set the clocks of all machines by NTP: jobs go by the server's, but your code and your logs do not"
    return Finding(name="skew", level="warn", seen=seen, fix=fix)


def _vacuum(connection: psycopg.Connection) -> Finding:
    setting, tables = connection.execute(statements("diagnostics")["vacuum"]).fetchone() or ("on", None)
    if setting != "on":
        fix = "set autovacuum = on in postgresql.conf, or tables only grow and claims become slower"
        return Finding(name="autovacuum", level="bad", seen="off", fix=fix)
    if tables:
        fix = f"alter table {tables} reset (autovacuum_enabled)"
        return Finding(name="autovacuum", level="warn", seen=f"off for {tables}", fix=fix)
    return Finding(name="autovacuum", level="ok", seen="on")


def _connections(connection: psycopg.Connection) -> Finding:
    most, used = connection.execute(statements("diagnostics")["connections"]).fetchone() or (0, 0)
    seen = f"{used} of {most} in use"
    if most - used > MIN_SPARE_CONNECTIONS:
        return Finding(name="connections", level="ok", seen=seen)
    fix = "raise max_connections, or put a pooler in front: a worker process opens up to nine"
    return Finding(name="connections", level="warn", seen=seen, fix=fix)


def _functions(connection: psycopg.Connection) -> Finding:
    missing = [function.plain_name for function in schema.missing_functions(connection)]
    if not missing:
        return Finding(name="functions", level="ok", seen=f"all {len(functions())} of this release")
    fix = "reprieve migrate up, as the owner of the schema, creates them"
    return Finding(name="functions", level="bad", seen=f"this release lacks {', '.join(missing)}", fix=fix)


def _rights(connection: psycopg.Connection, address: Address) -> Finding:
    """Check that the role may use our tables, sequences and the functions of this release."""
    plain_names = {function.name: function.plain_name for function in functions().values()}
    rows = connection.execute(statements("diagnostics")["rights"], {"functions": list(plain_names)}).fetchall()
    missing = [str(plain_names.get(name, name)) for (name,) in rows]
    (user,) = connection.execute("select current_user").fetchone() or ("",)
    if not missing:
        return Finding(name="rights", level="ok", seen=f"{user} has them all")
    tables = f"grant select, insert, update, delete on all tables in schema {address.schema} to {user}"
    sequences = f"grant usage on all sequences in schema {address.schema} to {user}"
    fix = f"{tables}; {sequences}; grant execute on all functions in schema {address.schema} to {user}"
    return Finding(name="rights", level="bad", seen=f"{user} may not work with {', '.join(missing)}", fix=fix)


def _indexes(connection: psycopg.Connection) -> Finding:
    found: dict[str, bool] = dict(connection.execute(statements("diagnostics")["indexes"]).fetchall())
    wanted = schema.indexes()
    missing = sorted(name for name in wanted if not found.get(name, False))
    if not missing:
        return Finding(name="indexes", level="ok", seen=f"all {len(wanted)} are there")
    fix = "reindex those that are invalid; make those that are missing as reprieve migrate sql says"
    return Finding(name="indexes", level="bad", seen=f"missing or invalid: {', '.join(missing)}", fix=fix)


def _lanes(connection: psycopg.Connection) -> Finding:
    """Check for jobs that were set aside because two lanes have the same id."""
    count, task, tenant, first = connection.execute(statements("diagnostics")["hash_collisions"]).fetchone() or (
        0,
        "",
        "",
        "",
    )
    if not count:
        return Finding(name="lanes", level="ok", seen="no two have the same id")
    seen = f"{count} enqueues set aside, of task {task!r} and tenant {tenant!r}, from job {first} on: lanes share an id"
    fix = "enqueue those jobs again under another tenant or task; the table hash_collision names their lanes and ids"
    return Finding(name="lanes", level="bad", seen=seen, fix=fix)


def _flushes(connection: psycopg.Connection) -> Finding:
    fsync, commit = connection.execute(statements("diagnostics")["settings"]).fetchone() or ("", "")
    if fsync != "on":
        fix = "set fsync = on in postgresql.conf, or jobs that were acknowledged are lost with the power"
        return Finding(name="durability", level="bad", seen=f"fsync is {fsync}", fix=fix)
    if commit == "off":
        fix = "set synchronous_commit = on, or the last moments before a crash are lost"
        return Finding(name="durability", level="warn", seen="synchronous_commit is off", fix=fix)
    return Finding(name="durability", level="ok", seen=f"fsync on, synchronous_commit {commit}")


def _events(connection: psycopg.Connection, now: int) -> Finding:
    (newest,) = connection.execute(statements("diagnostics")["newest"]).fetchone() or (None,)
    return events_finding(newest, now)


def _sessions(connection: psycopg.Connection, now: int) -> Finding:
    sql = statements("diagnostics")
    alive, dead = connection.execute(sql["sessions"], {"now": now}).fetchone() or (0, 0)
    leases = connection.execute(sql["orphans"], {"now": now})
    orphans = sum(len(unpack_lease(jobs)) for (jobs,) in leases)
    return sessions_finding(alive, dead, orphans)


def _records(connection: psycopg.Connection) -> Finding:
    with connection.cursor(name="reprieve_records") as cursor:
        cursor.execute(statements("diagnostics")["records"])
        return records_finding(record for (record,) in cursor)


def _transactions(connection: psycopg.Connection) -> Finding:
    (oldest,) = connection.execute(statements("diagnostics")["oldest"]).fetchone() or (0,)
    name, behind = connection.execute(statements("diagnostics")["behind"]).fetchone() or ("", -1)
    why = "while it lasts, vacuum removes no dead row, and every claim becomes slower"
    if oldest >= MAX_TRANSACTION_SECONDS:
        return Finding(name="transactions", level="warn", seen=f"one is open for {oldest:,} s", fix=f"end it: {why}")
    if behind >= MAX_REPLICA_LAG_TRANSACTIONS:
        seen = f"the replica or slot {name} is {behind:,} of them behind"
        return Finding(name="transactions", level="warn", seen=seen, fix=f"let it catch up, or drop its slot: {why}")
    return Finding(name="transactions", level="ok", seen="none is open for long")
