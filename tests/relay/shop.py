"""An application with a database of its own, that sends jobs to Redis out of its transactions."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeAlias
from uuid import uuid4

import psycopg
import redis

from reprieve import JobHandle, Reprieve
from reprieve.config import Settings
from reprieve.relay import Relay
from reprieve.stores.outbox import Outbox
from reprieve.stores.protocol import Filter, Retention
from tests.servers.postgres import drop_schema

LONG = 30 * 86_400_000
"""Milliseconds after which everything that ends has been forgotten."""


class Undone(Exception):
    """Ends a transaction without a commit."""


class Database(Protocol):
    """The application's database."""

    url: str

    def transaction(self) -> AbstractContextManager[Any]:
        """Return a connection with an open transaction, which commits in the end."""
        ...

    def idle(self) -> AbstractContextManager[Any]:
        """Return a connection without a transaction."""
        ...

    def spoil(self, job_id: str) -> None:
        """Write something into the outbox that is no job."""
        ...


Databases: TypeAlias = Callable[[Path], AbstractContextManager[Database]]


class File:
    """A SQLite file of the application's."""

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}"
        self._path = path
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("create table orders (title text)")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        with self.idle() as connection:
            connection.execute("begin immediate")
            try:
                yield connection
            except BaseException:
                connection.execute("rollback")
                raise
            connection.execute("commit")

    @contextmanager
    def idle(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, isolation_level=None, timeout=30)) as connection:
            yield connection

    def spoil(self, job_id: str) -> None:
        with self.transaction() as connection:
            connection.execute("update reprieve_outbox set record = x'00' where id = ?", [job_id])


class Schema:
    """A database of the application's, and a schema in it."""

    def __init__(self, server: str) -> None:
        self._server = server
        self.name = f"shop_{uuid4().hex[:12]}"
        self.url = f"{server}?schema={self.name}"

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection]:
        with psycopg.connect(self._server) as connection:
            yield connection

    @contextmanager
    def idle(self) -> Iterator[psycopg.Connection]:
        with psycopg.connect(self._server, autocommit=True) as connection:
            yield connection

    def spoil(self, job_id: str) -> None:
        with self.transaction() as connection:
            connection.execute(f"set search_path = {self.name}")
            connection.execute("update outbox set record = '\\x00' where id = %s", [job_id])

    def drop(self) -> None:
        drop_schema(self._server, self.name)


@contextmanager
def in_a_file(folder: Path) -> Iterator[Database]:
    """Let the application have a file in the folder."""
    yield File(folder / "app.db")


@contextmanager
def in_a_schema(server: str) -> Iterator[Database]:
    """Let the application have a schema of a server."""
    schema = Schema(server)
    try:
        yield schema
    finally:
        schema.drop()


class Shop:
    """The application: its database, the store of its jobs, and its relays."""

    def __init__(self, database: Database, url: str) -> None:
        self.database = database
        self.url = url if "prefix=" in url else f"{url}?prefix=shop{uuid4().hex[:12]}"
        self.prefix = self.url.partition("prefix=")[2]
        self._opened: list[Reprieve] = []
        self.app = self.open_app()
        self.confirm = self.app.task(name="confirm")(confirm)

    def open_app(self, url: str | None = None, **settings: Any) -> Reprieve:  # noqa: ANN401 - any setting
        """Make an app, as another process would have one."""
        app = Reprieve(url or self.url, outbox=self.database.url, settings=Settings(**settings))
        self._opened.append(app)
        return app

    def outbox(self) -> Outbox:
        """Open the outbox, as another process would."""
        outbox = self.open_app().outbox
        assert outbox is not None
        return outbox

    def relay(self, **settings: Any) -> Relay:  # noqa: ANN401 - as above
        """Make a relay, as another process would have one."""
        app = self.open_app(**settings)
        assert app.outbox is not None
        return Relay(app.outbox, app.store, app.clock)

    def send(self, count: int = 1, **options: Any) -> list[str]:  # noqa: ANN401 - any option of a job
        """Send jobs in one transaction."""
        with self.database.transaction() as connection:
            return [handle.id for handle in self.send_in(connection, count, **options)]

    def send_in(self, connection: Any, count: int = 1, **options: Any) -> list[JobHandle[object]]:  # noqa: ANN401 - as above
        """Send jobs in a transaction that is open."""
        task = self.confirm.using(connection=connection, **options)
        return self.app.enqueue_many(task.call(number) for number in range(count))

    async def drain(self, **settings: Any) -> tuple[int, int]:  # noqa: ANN401 - as above
        """Let a relay bring what is there; answer how many were brought, and how many refused."""
        done = await self.relay(**settings).drain(lambda _: None)
        return done.relayed, done.refused

    async def arrived(self) -> list[str]:
        """Return the jobs that the store knows, in the order of their ids."""
        ids: list[str] = []
        cursor = ""
        while True:
            page = await self.app.store.find(Filter(), self.app.clock.now(), cursor, 1_000)
            ids += [job.id for job in page.jobs]
            cursor = page.cursor
            if not cursor:
                return sorted(ids)

    def traces(self) -> dict[bytes, float]:
        """Return what the store remembers of what has landed, in seconds from now."""
        with redis.Redis.from_url(self.url.partition("?")[0]) as client:
            now = client.time()[0]
            found = client.zrange(f"{{{self.prefix}:0}}:relayed", 0, -1, withscores=True)
        return {raw: until / 1_000 - now for raw, until in found}

    async def forget_all(self) -> None:
        """Let the store forget everything that has ended, as it would in a month."""
        now = self.app.clock.now() + LONG
        while not (await self.app.store.prune(Retention(now=now, succeeded=0))).is_all:
            pass
        with redis.Redis.from_url(self.url.partition("?")[0]) as client:
            # Ids of succeeded jobs are remembered for minutes, by the server's own time.
            for key in client.scan_iter(f"{{{self.prefix}:0}}:forgotten:*"):
                client.delete(key)

    async def close(self) -> None:
        for app in self._opened:
            await app.aclose()


def confirm(number: int) -> None:
    """Confirm an order."""
