"""A newer release migrates a store: older ones keep working, or are refused with a line before they touch anything."""

import re
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Protocol
from uuid import uuid4

import psycopg
import pytest
import redis

from reprieve.core import change
from reprieve.errors import NewerSchema, SessionDead
from reprieve.stores.open import diagnostics_for, open_store
from reprieve.stores.protocol import Annotation, Filter, LimitUpdate, Retention
from reprieve.stores.redis.scripts import source
from reprieve.stores.redis.tags import tag_of
from reprieve.stores.redis.topology import SCHEMA_VERSION
from reprieve.testing.conformance.stage import (
    CANCEL_REQUEST,
    DAY,
    OPERATOR,
    PROGRAM,
    START,
    Worker,
    enqueue,
    new_job,
    new_jobs,
    set_entry,
    succeed,
)
from reprieve.version import __version__
from tests.conformance.planting import Bug, copies
from tests.servers.postgres import drop_schema

REFUSED = (
    "this store was migrated by Reprieve 9.9, which releases from 9.8 on can use, "
    f"and this is {__version__}; upgrade Reprieve here"
)
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


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
    """Return an empty store of each kind."""
    match request.param:
        case "sqlite":
            yield File(tmp_path)
        case "postgres":
            server = request.getfixturevalue("postgres_url")
            schema = Schema(server, tmp_path)
            yield schema
            drop_schema(server, schema.name)
        case _:
            yield Keys(request.getfixturevalue("redis_url"))


def test_scripts_and_python_know_the_same_schema_version_of_redis() -> None:
    (number,) = re.findall(r"^local SCHEMA_VERSION = (\d+)", source("calls").text, re.MULTILINE)
    assert int(number) == SCHEMA_VERSION


async def test_a_release_that_a_migration_allows_keeps_working(kind: Kind) -> None:
    store = open_store(kind.url)
    worker = await Worker.open(store)
    await enqueue(store, *new_jobs(store, 3))
    leased = await worker.one()
    kind.migrate(excluding=False)
    await worker.settle(succeed(leased))
    await enqueue(store, new_job(store))
    await store.close()

    again = open_store(kind.url)
    other = await Worker.open(again, "worker-2")
    await other.settle(*map(succeed, await other.exactly(3)))
    assert await again.tally("status", Filter(), START) == {"succeeded": 4}
    await again.close()


def test_a_store_of_a_newer_release_that_this_one_can_use_needs_nothing(kind: Kind) -> None:
    diagnostics = diagnostics_for(kind.url)
    diagnostics.migrate()
    kind.migrate(excluding=False)
    found = diagnostics.migrate()
    assert (found.stored, found.known, found.is_current) == (2, 1, True)
    assert found.compatibility is not None
    assert (found.compatibility.migrated_by, found.compatibility.oldest_release) == ("9.9", "0.1.0")
    (schema,) = [finding for finding in diagnostics.examine(START) if finding.name == "schema"]
    assert schema.level == "ok"
    assert schema.seen == "version 2, of Reprieve 9.9; releases from 0.1.0 on can use it, this one too"


async def test_a_release_that_a_migration_excludes_is_refused_when_it_opens_the_store(kind: Kind) -> None:
    store = open_store(kind.url)
    await enqueue(store, *new_jobs(store, 3))
    await store.close()
    kind.migrate(excluding=True)
    before = kind.content()
    with pytest.raises(NewerSchema, match=re.escape(REFUSED)):
        await _opened_and_read(kind.url)
    with pytest.raises(NewerSchema, match=re.escape(REFUSED)):
        diagnostics_for(kind.url).migrate()
    bad = [finding for finding in diagnostics_for(kind.url).examine(START) if finding.level == "bad"]
    assert [f"{finding.seen}; {finding.fix}" for finding in bad] == [REFUSED]
    assert kind.content() == before


async def _opened_and_read(url: str) -> None:
    store = open_store(url)
    try:
        await store.find(Filter(), START)
    finally:
        await store.close()


async def test_a_release_that_a_migration_excludes_while_it_works_writes_nothing_more(kind: Kind) -> None:
    store = open_store(kind.url)
    worker = await Worker.open(store)
    jobs = new_jobs(store, 3)
    await enqueue(store, *jobs)
    leased = await worker.one()
    waiting = next(job for job in jobs if job.id != leased.id)
    kind.migrate(excluding=True)
    before = kind.content()
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "enqueue": lambda: enqueue(store, new_job(store)),
        "claim": lambda: worker.ask(1, changes=[succeed(leased)]),
        "open a session": lambda: Worker.open(store, "worker-2"),
        "cancel": lambda: store.apply([change.cancel(waiting, OPERATOR, START)], START),
        "annotate": lambda: store.annotate([Annotation(job_id=leased.id, now=START, cancel=CANCEL_REQUEST)]),
        "limit": lambda: store.update_limits(
            [LimitUpdate(subject="queue", name="default", max_running=1)], START, PROGRAM
        ),
        "set an entry": lambda: set_entry(store, "key", 0, b"value"),
        "prune": lambda: store.prune(Retention(now=START + DAY)),
        "recover": lambda: store.recover(START + 100 * DAY),
    }
    for name, call in calls.items():
        with pytest.raises((NewerSchema, SessionDead)) as refused:
            print(name, await call())  # noqa: T201 - says which call was not refused
        assert str(refused.value) == REFUSED or name == "claim", name
    assert kind.content() == before
    await store.close()
