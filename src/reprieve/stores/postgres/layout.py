"""The layout: the steps that made it, each applied once, by one process at a time, and never changed afterwards."""

import hashlib
import re
from importlib.resources import files

import psycopg

from reprieve.errors import ForeignStore, NewerSchema, StoreCorrupt, StoreError
from reprieve.stores.diagnostics import Migration
from reprieve.stores.postgres.address import READ, Address
from reprieve.stores.postgres.faults import translate
from reprieve.stores.postgres.line import Line
from reprieve.stores.postgres.statements import statements

OLDEST = 13
"""The oldest PostgreSQL that will do."""


def prepare(address: Address) -> None:
    """Check the server and the schema, and bring the layout up to date; whoever comes second finds it done."""
    try:
        with address.connect() as connection:
            require_server(connection)
            with address.transaction(connection, READ):
                stored = layout_of(connection, address)
            if stored < len(migrations()):
                _migrate(connection, address)
    except psycopg.Error as error:
        raise translate(error, address.shown) from error


def require_server(connection: psycopg.Connection) -> None:
    """Refuse a server that is too old."""
    version = connection.info.server_version // 10_000
    if version < OLDEST:
        message = f"PostgreSQL {version} is too old; Reprieve needs {OLDEST} or newer"
        raise StoreError(message)


def layout_of(connection: psycopg.Connection, address: Address) -> int:
    """Return which layout the schema has, 0 if none; refuse one that is not ours, or not as we know it."""
    sql = statements("layout")
    known = migrations()
    schema = address.schema.strip('"')
    is_ours, is_used = connection.execute(sql["looks"], {"schema": schema}).fetchone() or (False, False)
    if not is_ours:
        if is_used:
            message = f"schema {schema} holds tables of something else; name another one with ?schema=…"
            raise ForeignStore(message)
        return 0
    steps = connection.execute(sql["steps"]).fetchall()
    if len(steps) > len(known):
        message = f"the store has layout {len(steps)}, and this release knows {len(known)}; update Reprieve"
        raise NewerSchema(message)
    for (number, checksum), step in zip(steps, known, strict=False):
        if checksum != checksum_of(step):
            message = f"step {number} of the layout is not the one that this release knows; restore the database"
            raise StoreCorrupt(message)
    return len(steps)


def migrations() -> list[Migration]:
    """Return every step, in order."""
    folder = files(__package__ or "") / "migrations"
    steps = sorted(folder.iterdir(), key=lambda step: step.name)
    return [Migration(name=step.name, sql=step.read_text("utf-8")) for step in steps if step.name.endswith(".sql")]


def indexes() -> set[str]:
    """Return the names of all indexes that the layout has."""
    names: set[str] = set()
    for statement in "".join(step.sql for step in migrations()).split(";\n"):
        table = re.search(r"^create table (\w+)", statement, re.MULTILINE)
        if table and "primary key" in statement:
            names.add(f"{table[1]}_pkey")
        names.update(re.findall(r"^create (?:unique )?index (\w+)", statement, re.MULTILINE))
    return names


def checksum_of(step: Migration) -> str:
    """Return what a step is recognised by."""
    return hashlib.sha256(step.sql.encode()).hexdigest()


def script_of(number: int, step: Migration, address: Address) -> str:
    """Return a step as a script to be run by hand, in one transaction."""
    sql = statements("layout")
    first = [sql["schema"], sql["table"]] if number == 1 else []
    note = sql["note"].replace("%(number)s", str(number)).replace("%(checksum)s", f"'{checksum_of(step)}'")
    lines = ["begin", sql["lock"], *first[:1], f"set local search_path to {address.path}", *first[1:]]
    head = "".join(f"{line};\n" for line in lines).replace("{schema}", address.schema)
    return f"{head}\n{step.sql.rstrip()}\n\n{note};\ncommit;\n"


def _migrate(connection: Line, address: Address) -> None:
    sql = statements("layout")
    with address.transaction(connection):
        connection.execute(sql["lock"])
        stored = layout_of(connection, address)
        if not stored:
            connection.execute(sql["schema"].replace("{schema}", address.schema))
            connection.execute(sql["table"])
        for number, step in enumerate(migrations()[stored:], start=stored + 1):
            connection.execute(step.sql, prepare=False)
            connection.execute(sql["note"], {"number": number, "checksum": checksum_of(step)})
