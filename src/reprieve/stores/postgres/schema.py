"""The schema: tables from numbered migrations, each applied once and never changed, and the functions of this release.

One process at a time changes a schema. Functions are created and dropped, never replaced: see `functions.py`, and
docs/decisions/0019-postgresql-functions.md for when those of another release are dropped.
"""

import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import msgspec
import psycopg
from msgspec import structs
from psycopg.rows import class_row

from reprieve.errors import ForeignStore, StoreCorrupt, StoreError, StoreRefused
from reprieve.stores.compatibility import Compatibility, require_usable
from reprieve.stores.diagnostics import Migration
from reprieve.stores.postgres.address import READ, Address
from reprieve.stores.postgres.connection import Connection
from reprieve.stores.postgres.error_mapping import translate
from reprieve.stores.postgres.functions import COMPATIBILITY, Function, functions, release
from reprieve.stores.postgres.statements import statements

MIN_SERVER_VERSION = 13
"""The oldest PostgreSQL that will do."""

GRACE_SECONDS = 7 * 86_400
"""Seconds after its last use for which a release without sessions keeps its functions.

Producers and commands have no session. A process notes its use of the schema when it opens it and once an hour.
"""


class _State(msgspec.Struct, frozen=True):
    """What the catalog says of a schema."""

    is_ours: bool = False
    is_used: bool = False
    is_owner: bool = True


class AppliedMigration(msgspec.Struct, frozen=True):
    """A migration that was applied."""

    version: int
    checksum: str
    oldest_schema: int
    oldest_release: str
    migrated_by: str

    @property
    def compatibility(self) -> Compatibility:
        """Which releases can use the schema since."""
        return Compatibility(
            oldest_schema=self.oldest_schema, oldest_release=self.oldest_release, migrated_by=self.migrated_by
        )


def prepare(address: Address) -> None:
    """Check the server and the schema, bring the schema up to date, and note that this release uses it."""
    try:
        with address.connect() as connection:
            require_server(connection)
            if not _is_current(connection, address):
                _migrate(connection, address)
            if _needs_use_note(connection, address):
                _note_use(connection, address)
                # Functions may have been dropped until the use was noted, and not since.
                if not _is_current(connection, address):
                    _migrate(connection, address)
    except psycopg.Error as error:
        raise translate(error, address.shown) from error


def migrate(address: Address) -> None:
    """Bring the schema up to date as `prepare` does, and drop functions that no release uses."""
    prepare(address)
    try:
        with address.connect() as connection:
            _drop_unused_functions(connection, address)
    except psycopg.Error as error:
        raise translate(error, address.shown) from error


def require_server(connection: psycopg.Connection) -> None:
    """Raise StoreError if the server is too old."""
    version = connection.info.server_version // 10_000
    if version < MIN_SERVER_VERSION:
        message = f"PostgreSQL {version} is too old; Reprieve needs {MIN_SERVER_VERSION} or newer"
        raise StoreError(message)


def schema_version(connection: psycopg.Connection, address: Address) -> int:
    """Return the version of the schema, 0 if it has no store; raise if it is not ours, or was not made by our steps."""
    known = migrations()
    state = _state(connection, address)
    if not state.is_ours:
        if state.is_used:
            message = f"schema {_name(address)} holds tables of something else; name another one with ?schema=…"
            raise ForeignStore(message)
        return 0
    applied = _applied(connection)
    require_usable_after(applied)
    for version, migration in zip(applied, known, strict=False):
        if version.checksum != checksum_of(migration):
            message = f"schema version {version.version} is not the one that this release knows; restore the database"
            raise StoreCorrupt(message)
    return len(applied)


def compatibility(connection: psycopg.Connection) -> Compatibility | None:
    """Return which releases can use the schema, which has a store; None if it does not say."""
    applied = _applied(connection)
    return applied[-1].compatibility if applied else None


def _applied(connection: psycopg.Connection) -> list[AppliedMigration]:
    cursor = connection.cursor(row_factory=class_row(AppliedMigration))
    return cursor.execute(statements("schema")["versions"]).fetchall()


def require_usable_after(applied: Sequence[AppliedMigration]) -> None:
    """Raise `NewerSchema` if this release cannot use a schema with these migrations."""
    if applied:
        require_usable(applied[-1].compatibility, len(migrations()))


def require_usable_still(address: Address) -> None:
    """Raise `NewerSchema` if a newer release has migrated the schema to what this one cannot use."""
    with address.connect() as connection, address.transaction(connection, READ):
        schema_version(connection, address)


def missing_functions(connection: psycopg.Connection) -> list[Function]:
    """Return the functions of this release that the schema lacks."""
    rows = connection.execute(statements("schema")["missing_functions"], {"names": _function_names()})
    missing = {name for (name,) in rows}
    return [function for function in functions().values() if function.name in missing]


@cache
def migrations() -> list[Migration]:
    """Return the migrations, in order."""
    folder = files(__package__ or "") / "migrations"
    steps = sorted(folder.iterdir(), key=lambda step: step.name)
    return [Migration(name=step.name, sql=step.read_text("utf-8")) for step in steps if step.name.endswith(".sql")]


def indexes() -> set[str]:
    """Return the names of all indexes that the migrations create."""
    names: set[str] = set()
    for statement in "".join(migration.sql for migration in migrations()).split(";\n"):
        table = re.search(r"^create table (\w+)", statement, re.MULTILINE)
        if table and "primary key" in statement:
            names.add(f"{table[1]}_pkey")
        names.update(re.findall(r"^create (?:unique )?index (\w+)", statement, re.MULTILINE))
    return names


def checksum_of(migration: Migration) -> str:
    """Return the checksum by which a migration is recognised."""
    return hashlib.sha256(migration.sql.encode()).hexdigest()


def scripts(address: Address) -> list[Migration]:
    """Return the migrations, and the functions of this release, as scripts to be run by hand, a transaction each."""
    sql = statements("schema")
    found: list[Migration] = []
    for version, migration in enumerate(migrations(), start=1):
        add = sql["add_version"]
        for name, value in _version_row(version, migration).items():
            add = add.replace(f"%({name})s", str(value) if isinstance(value, int) else f"'{value}'")
        create_table = [sql["create_version_table"]] if version == 1 else []
        found.append(_script(address, migration.name, [*create_table, migration.sql.strip().rstrip(";"), add]))
    guarded = [
        f"do $do$ begin\nif to_regproc('{function.name}') is null then\nexecute $create$\n{function.sql}\n$create$;\n"
        "end if;\nend $do$"
        for function in functions().values()
    ]
    return [*found, _script(address, "functions.sql", [*guarded, sql["create_first_days"]])]


def _script(address: Address, name: str, body: Sequence[str]) -> Migration:
    sql = statements("schema")
    create_schema = sql["create_schema"].replace("{schema}", address.schema)
    before = ["begin", sql["lock"], create_schema, f"set local search_path to {address.path}"]
    return Migration(name=name, sql="".join(f"{statement};\n" for statement in (*before, *body, "commit")))


def _state(connection: psycopg.Connection, address: Address) -> _State:
    cursor = connection.cursor(row_factory=class_row(_State))
    return cursor.execute(statements("schema")["state"], {"schema": _name(address)}).fetchone() or _State()


def _migrate(connection: Connection, address: Address) -> None:
    sql = statements("schema")
    with address.transaction(connection):
        connection.execute(sql["lock"])
        stored = schema_version(connection, address)
        if not _state(connection, address).is_owner:
            message = (
                f"schema {_name(address)} is not up to date, and this user is not its owner; "
                "run reprieve migrate up as the owner, then grant the rights again"
            )
            raise StoreRefused(message)
        if not stored:
            connection.execute(sql["create_schema"].replace("{schema}", address.schema))
            connection.execute(sql["create_version_table"])
        for version, migration in enumerate(migrations()[stored:], start=stored + 1):
            connection.execute(migration.sql, prepare=False)
            connection.execute(sql["add_version"], _version_row(version, migration))
        if 0 < stored < len(migrations()):
            _drop(connection, sql["exclude_releases"], {"oldest_schema": COMPATIBILITY.oldest_schema})
        for function in missing_functions(connection):
            connection.execute(function.sql, prepare=False)
        if not stored:
            connection.execute(sql["create_first_days"])


def _is_current(connection: Connection, address: Address) -> bool:
    with address.transaction(connection, READ):
        return schema_version(connection, address) >= len(migrations()) and not missing_functions(connection)


def _needs_use_note(connection: Connection, address: Address) -> bool:
    with address.transaction(connection, READ):
        row = connection.execute(statements("schema")["needs_use_note"], {"release": release()}).fetchone()
        return row == (True,)


def _note_use(connection: Connection, address: Address) -> None:
    sql = statements("schema")
    with address.transaction(connection):
        # Not while another process drops functions.
        connection.execute(sql["lock"])
        row = {"release": release(), "names": _function_names(), "known": len(migrations())}
        connection.execute(sql["note_use"], row)


def _drop_unused_functions(connection: Connection, address: Address) -> None:
    sql = statements("schema")
    row = {"release": release(), "names": _function_names(), "grace_seconds": GRACE_SECONDS}
    with address.transaction(connection):
        connection.execute(sql["lock"])
        if not _state(connection, address).is_owner:
            return
        _drop(connection, sql["forget_releases"], row)


def _drop(connection: Connection, unneeded: str, parameters: dict[str, object]) -> None:
    """Drop the functions that a statement names."""
    for (name,) in connection.execute(unneeded, parameters).fetchall():
        for (drop,) in connection.execute(statements("schema")["drop_function"], {"name": name}).fetchall():
            connection.execute(drop)


def _version_row(version: int, migration: Migration) -> dict[str, object]:
    return {"version": version, "checksum": checksum_of(migration)} | structs.asdict(COMPATIBILITY)


def _function_names() -> list[str]:
    return [function.name for function in functions().values()]


def _name(address: Address) -> str:
    return address.schema.strip('"')
