"""Care for a schema: the server, its settings, the layout, who works on it, and what stands in the way."""

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
    schema_finding,
    sessions_finding,
)
from reprieve.stores.postgres import layout
from reprieve.stores.postgres.address import READ, Address
from reprieve.stores.postgres.bell import DEAF_LOOKS
from reprieve.stores.postgres.faults import translate
from reprieve.stores.postgres.leases import unpack_lease
from reprieve.stores.postgres.line import Line
from reprieve.stores.postgres.outbox import contents_of
from reprieve.stores.postgres.statements import statements

SKEW = 1_000
"""Milliseconds that a clock may differ from the server's."""

SPARE = 20
"""Connections that should be left."""

LONG = 600
"""Seconds after which a transaction keeps dead rows from being cleared away for too long."""

FAR = 1_000_000
"""Transactions after which a replica does."""


class PostgresCare:
    """Looks after one schema."""

    def __init__(self, address: Address) -> None:
        """Take the schema."""
        self._address = address

    def examine(self, now: int) -> Iterator[Finding]:
        """Look at the server, the way to it, its settings, the layout, our rights, and who works."""
        local = local_clock(now)
        try:
            with closing(self._address.connect()) as connection, self._address.transaction(connection, READ):
                yield from self._state(connection, now, local)
        except (psycopg.Error, msgspec.MsgspecError, ReprieveError) as error:
            yield error_finding("store", translate(error, self._address.shown))

    def schema_version(self) -> SchemaVersion:
        """Return the layout of the schema; a missing or empty one has none."""
        known = len(layout.migrations())
        try:
            with closing(self._address.connect()) as connection, self._address.transaction(connection, READ):
                return SchemaVersion(stored=layout.layout_of(connection, self._address), known=known)
        except psycopg.Error as error:
            raise translate(error, self._address.shown) from error

    def migrate(self) -> SchemaVersion:
        """Do what using the schema for the first time does."""
        layout.prepare(self._address)
        return self.schema_version()

    def migrations(self) -> list[Migration]:
        """Return the steps, each as a script that makes what it needs and notes itself."""
        return [
            Migration(name=step.name, sql=layout.script_of(number, step, self._address))
            for number, step in enumerate(layout.migrations(), start=1)
        ]

    def _state(self, connection: Line, now: int, local: Callable[[], float]) -> Iterator[Finding]:
        layout.require_server(connection)
        yield _server(connection)
        yield _way(connection, self._address)
        yield _flushes(connection)
        yield _clock(connection, local)
        yield _vacuum(connection)
        yield _connections(connection)
        yield _transactions(connection)
        stored, known = layout.layout_of(connection, self._address), len(layout.migrations())
        yield schema_finding(SchemaVersion(stored=stored, known=known))
        if stored != known:
            return
        yield _rights(connection, self._address)
        yield _indexes(connection)
        yield _lanes(connection)
        yield _events(connection, now)
        yield _sessions(connection, now)
        yield outbox.find(contents_of(connection.execute(statements("outbox")["contents"]).fetchone()), now)


def _server(connection: psycopg.Connection) -> Finding:
    version = connection.info.parameter_status("server_version") or ""
    (is_replica,) = connection.execute(statements("care")["replica"]).fetchone() or (False,)
    if is_replica:
        fix = "name the primary server in the URL, and leave target_session_attrs out of it"
        return Finding(name="server", level="bad", seen=f"PostgreSQL {version}, a replica that takes no jobs", fix=fix)
    return Finding(name="server", level="ok", seen=f"PostgreSQL {version}")


def _way(connection: Line, address: Address) -> Finding:
    if not connection.is_pooled:
        return Finding(name="way", level="ok", seen="straight to the server")
    if address.ears:
        return Finding(name="way", level="ok", seen="through a pooler, and straight to the server to listen")
    seen = f"through a pooler, where nothing is heard: whoever waits looks every {DEAF_LOOKS:g} s"
    fix = "add listen=… with the URL of the server itself, so that jobs start at once"
    return Finding(name="way", level="warn", seen=seen, fix=fix)


def _clock(connection: psycopg.Connection, local: Callable[[], float]) -> Finding:
    def ask() -> float:
        (server,) = connection.execute(statements("care")["clock"]).fetchone() or (local(),)
        return float(server)

    apart = round(abs(measure_skew(ask, local)))
    seen = f"{apart:,} ms from the server's"
    if apart < SKEW:
        return Finding(name="skew", level="ok", seen=seen)
    fix = "set the clocks of all machines by NTP: jobs go by the server's, but your code and your logs do not"
    return Finding(name="skew", level="warn", seen=seen, fix=fix)


def _vacuum(connection: psycopg.Connection) -> Finding:
    setting, tables = connection.execute(statements("care")["vacuum"]).fetchone() or ("on", None)
    if setting != "on":
        fix = "set autovacuum = on in postgresql.conf, or tables only grow and claims become slower"
        return Finding(name="autovacuum", level="bad", seen="off", fix=fix)
    if tables:
        fix = f"alter table {tables} reset (autovacuum_enabled)"
        return Finding(name="autovacuum", level="warn", seen=f"off for {tables}", fix=fix)
    return Finding(name="autovacuum", level="ok", seen="on")


def _connections(connection: psycopg.Connection) -> Finding:
    most, used = connection.execute(statements("care")["connections"]).fetchone() or (0, 0)
    seen = f"{used} of {most} in use"
    if most - used > SPARE:
        return Finding(name="connections", level="ok", seen=seen)
    fix = "raise max_connections, or put a pooler in front: a worker process opens up to nine"
    return Finding(name="connections", level="warn", seen=seen, fix=fix)


def _rights(connection: psycopg.Connection, address: Address) -> Finding:
    """Look for what the role may not do with our tables, sequences and functions."""
    missing = [name for (name,) in connection.execute(statements("care")["rights"]).fetchall()]
    (user,) = connection.execute("select current_user").fetchone() or ("",)
    if not missing:
        return Finding(name="rights", level="ok", seen=f"{user} has them all")
    tables = f"grant select, insert, update, delete on all tables in schema {address.schema} to {user}"
    sequences = f"grant usage on all sequences in schema {address.schema} to {user}"
    fix = f"{tables}; {sequences}; grant execute on all functions in schema {address.schema} to {user}"
    return Finding(name="rights", level="bad", seen=f"{user} may not work with {', '.join(missing)}", fix=fix)


def _indexes(connection: psycopg.Connection) -> Finding:
    found: dict[str, bool] = dict(connection.execute(statements("care")["indexes"]).fetchall())
    wanted = layout.indexes()
    missing = sorted(name for name in wanted if not found.get(name, False))
    if not missing:
        return Finding(name="indexes", level="ok", seen=f"all {len(wanted)} are there")
    fix = "reindex those that are invalid; make those that are missing as reprieve migrate sql says"
    return Finding(name="indexes", level="bad", seen=f"missing or invalid: {', '.join(missing)}", fix=fix)


def _lanes(connection: psycopg.Connection) -> Finding:
    """Look for jobs that were put aside because their lane has the number of another."""
    count, task, tenant, first = connection.execute(statements("care")["misfits"]).fetchone() or (0, "", "", "")
    if not count:
        return Finding(name="lanes", level="ok", seen="no two have the same number")
    seen = (
        f"{count} enqueues put aside, of task {task!r} and tenant {tenant!r}, from job {first} on: lanes share a number"
    )
    fix = "enqueue those jobs again under another tenant or task; the table misfit names their lanes and ids"
    return Finding(name="lanes", level="bad", seen=seen, fix=fix)


def _flushes(connection: psycopg.Connection) -> Finding:
    fsync, commit = connection.execute(statements("care")["settings"]).fetchone() or ("", "")
    if fsync != "on":
        fix = "set fsync = on in postgresql.conf, or jobs that were acknowledged are lost with the power"
        return Finding(name="durability", level="bad", seen=f"fsync is {fsync}", fix=fix)
    if commit == "off":
        fix = "set synchronous_commit = on, or the last moments before a crash are lost"
        return Finding(name="durability", level="warn", seen="synchronous_commit is off", fix=fix)
    return Finding(name="durability", level="ok", seen=f"fsync on, synchronous_commit {commit}")


def _events(connection: psycopg.Connection, now: int) -> Finding:
    (newest,) = connection.execute(statements("care")["newest"]).fetchone() or (None,)
    return events_finding(newest, now)


def _sessions(connection: psycopg.Connection, now: int) -> Finding:
    sql = statements("care")
    alive, dead = connection.execute(sql["sessions"], {"now": now}).fetchone() or (0, 0)
    leases = connection.execute(sql["orphans"], {"now": now})
    orphans = sum(len(unpack_lease(jobs)) for (jobs,) in leases)
    return sessions_finding(alive, dead, orphans)


def _transactions(connection: psycopg.Connection) -> Finding:
    (oldest,) = connection.execute(statements("care")["oldest"]).fetchone() or (0,)
    name, behind = connection.execute(statements("care")["behind"]).fetchone() or ("", -1)
    why = "while it lasts, no dead row can be cleared away, and every claim becomes slower"
    if oldest >= LONG:
        return Finding(name="transactions", level="warn", seen=f"one is open for {oldest:,} s", fix=f"end it: {why}")
    if behind >= FAR:
        seen = f"the replica or slot {name} is {behind:,} of them behind"
        return Finding(name="transactions", level="warn", seen=seen, fix=f"let it catch up, or drop its slot: {why}")
    return Finding(name="transactions", level="ok", seen="none is open for long")
