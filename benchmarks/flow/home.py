"""Homes: the kinds of stores that are measured, and the places that they offer, empty and removed afterwards."""

import sqlite3
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from benchmarks.flow.track import DATABASE


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one measurement happens: a folder, and an empty store."""

    folder: Path
    url: str
    weigh: Callable[[], int]
    """Returns the bytes of the store."""


class Home(Protocol):
    """A kind of store."""

    name: str
    title: str
    server: str
    """The version of its server; empty where there is none."""

    def empty(self) -> AbstractContextManager[Place]:
        """Make a place for one measurement, and remove it with everything in it."""
        ...


class SqliteHome:
    """Each store a file."""

    name, title, server = "sqlite", "SQLite", ""

    @contextmanager
    def empty(self) -> Generator[Place]:
        """Make a folder; the first process creates the file in it."""
        with tempfile.TemporaryDirectory(prefix="reprieve-bench-") as name:
            folder = Path(name)

            def weigh() -> int:
                """Weigh the file, and what is left of its log after a checkpoint."""
                with closing(sqlite3.connect(folder / DATABASE)) as connection:
                    connection.execute("pragma wal_checkpoint(truncate)").fetchall()
                    files = folder.glob(f"{DATABASE}*")
                    return sum(file.stat().st_size for file in files if not file.name.endswith("-shm"))

            yield Place(folder=folder, url=f"sqlite:///{folder / DATABASE}", weigh=weigh)


class PostgresHome:
    """Each store a database of one server."""

    name, title = "postgres", "PostgreSQL"

    def __init__(self, url: str) -> None:
        """Connect as a role that may create databases."""
        import psycopg  # noqa: PLC0415 - an extra, needed here alone

        self._url = url
        self._connect = psycopg.connect
        with psycopg.connect(url) as connection:
            self.server = str(connection.info.server_version // 10_000)

    @contextmanager
    def empty(self) -> Generator[Place]:
        """Make a database, and a folder for what jobs leave behind."""
        name = f"bench_{uuid4().hex[:12]}"
        url = f"{self._url.rpartition('/')[0]}/{name}"
        self._manage(f"create database {name}")
        try:
            with tempfile.TemporaryDirectory(prefix="reprieve-bench-") as folder:
                yield Place(folder=Path(folder), url=url, weigh=lambda: self._weigh(url))
        finally:
            self._manage(f"drop database {name} with (force)")
            # What was measured before must not be written to the disk in the middle of the next measurement.
            self._manage("checkpoint")

    def _manage(self, statement: str) -> None:
        with self._connect(self._url, autocommit=True) as admin:
            admin.execute(statement)

    def _weigh(self, url: str) -> int:
        """Weigh all tables that are not the server's own, with their indexes."""
        sizes = (
            "select sum(pg_total_relation_size(c.oid))::int8 from pg_class as c join pg_namespace as n "
            "on n.oid = c.relnamespace where c.relkind in ('r', 'm') and n.nspname !~ '^(pg_|information_schema)'"
        )
        with self._connect(url, autocommit=True) as admin:
            row = admin.execute(sizes).fetchone()
            return int(row[0]) if row else 0


class RedisHome:
    """Each store a server that was emptied."""

    name, title = "redis", "Redis"

    def __init__(self, url: str) -> None:
        """Connect."""
        import redis  # noqa: PLC0415 - an extra, needed here alone

        self._url = url
        self._admin = redis.Redis.from_url(url, protocol=2)
        self.server = str(self._admin.info("server")["redis_version"])

    @contextmanager
    def empty(self) -> Generator[Place]:
        """Empty the server, and make a folder for what jobs leave behind."""
        self._empty()
        before = self._used()
        try:
            with tempfile.TemporaryDirectory(prefix="reprieve-bench-") as folder:
                yield Place(folder=Path(folder), url=self._url, weigh=lambda: self._used() - before)
        finally:
            self._empty()

    def _used(self) -> int:
        return int(self._admin.info("memory")["used_memory"])

    def _empty(self) -> None:
        """Forget everything, on the disk too: its log must not be rewritten in the middle of the next measurement."""
        self._admin.flushall()
        self._admin.script_flush()
        self._admin.bgrewriteaof()
        while self._admin.info("persistence")["aof_rewrite_in_progress"]:
            time.sleep(0.01)  # noqa: TID251 - the wait is real
