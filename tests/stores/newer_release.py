"""A release to come, which migrates a store to what this release can use, or not."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Protocol
from uuid import uuid4

import psycopg
import pytest
import redis

from reprieve.stores.redis.tags import tag_of
from reprieve.stores.redis.topology import SCHEMA_VERSION
from tests.conformance.planting import Bug, copies
from tests.servers.postgres import drop_schema

RELEASE = 'COMPATIBILITY{} = Compatibility(oldest_schema={}, oldest_release="{}"{})'


class Kind(Protocol):
    """A store, as a newer release and an administrator see it."""

    url: str

    def migrate(self, *, excluding: bool) -> None:
        """Migrate it as a newer release would, which this release can use, or not."""
        ...

    def content(self) -> object:
        """Return everything that is stored."""
        ...


def _newer(file: str, annotation: str, *, excluding: bool) -> Bug:
    """Return what makes a copy of a store one of release 9.9."""
    oldest, release = (2, "9.8") if excluding else (1, "0.1.0")
    return Bug(
        "a newer release",
        file,
        RELEASE.format(annotation, 1, "0.1.0", ""),
        RELEASE.format(annotation, oldest, release, ', migrated_by="9.9"'),
        "",
    )


class File:
    """A SQLite file."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/jobs.db"
        self._folder = folder

    def migrate(self, *, excluding: bool) -> None:
        with _copied(self._folder, "sqlite", _newer("file.py", "", excluding=excluding)) as package:
            migration = "create table reprieve_news (id integer primary key) strict;\n"
            (Path(package.__path__[0]) / "migrations" / "0002.sql").write_text(migration)
            import_module(f"{package.__name__}.file").prepare(self._folder / "jobs.db", "full", shared=False)

    def content(self) -> object:
        with closing(sqlite3.connect(self._folder / "jobs.db")) as connection:
            return list(connection.iterdump())


class Schema:
    """A PostgreSQL schema."""

    def __init__(self, server: str, folder: Path) -> None:
        self.name = f"compatibility_{uuid4().hex[:12]}"
        self.url = f"{server}?schema={self.name}"
        self._server = server
        self._folder = folder

    def migrate(self, *, excluding: bool) -> None:
        with _copied(self._folder, "postgres", _newer("functions.py", ": Final", excluding=excluding)) as package:
            (Path(package.__path__[0]) / "migrations" / "0002.sql").write_text("create table news (id int8);\n")
            address = import_module(f"{package.__name__}.address").address_of(self.url)
            import_module(f"{package.__name__}.schema").migrate(address)

    def content(self) -> object:
        tables = "select relname from pg_class where relkind in ('r', 'p') and relnamespace = %s::regnamespace"
        with psycopg.connect(self._server) as admin:
            names = [name for (name,) in admin.execute(tables, [self.name])]
            rows = "select t::text from {} as t order by 1"
            return {name: admin.execute(rows.format(f"{self.name}.{name}")).fetchall() for name in names}


class Keys:
    """The keys of a Redis server."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._prefix = f"compatibility_{uuid4().hex[:12]}"
        self.url = f"{server}?prefix={self._prefix}"

    def migrate(self, *, excluding: bool) -> None:
        oldest, release = (SCHEMA_VERSION + 1, "9.8") if excluding else (SCHEMA_VERSION, "0.1.0")
        made_by = {"schema_version": SCHEMA_VERSION + 1, "oldest_schema": oldest, "oldest_release": release}
        with redis.Redis.from_url(self._server, protocol=2) as client:
            client.hset(f"{tag_of(self._prefix, 0)}:meta", mapping=made_by | {"migrated_by": "9.9"})

    def content(self) -> object:
        with redis.Redis.from_url(self._server, protocol=2) as client:
            return {key: client.dump(key) for key in client.scan_iter(f"{{{self._prefix}:*")}


@contextmanager
def _copied(folder: Path, kind: str, newer: Bug) -> Iterator[ModuleType]:
    with copies(folder, kind, lambda package: package.store) as make:
        make(newer)
        (copy,) = folder.glob(f"planted_{kind}_*")
        yield import_module(copy.name)


@contextmanager
def kind_of(request: pytest.FixtureRequest, folder: Path) -> Iterator[Kind]:
    """Return an empty store of the kind that a test asks for."""
    match request.param:
        case "sqlite":
            yield File(folder)
        case "postgres":
            server = request.getfixturevalue("postgres_url")
            schema = Schema(server, folder)
            yield schema
            drop_schema(server, schema.name)
        case _:
            yield Keys(request.getfixturevalue("redis_url"))
