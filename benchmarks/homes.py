"""Where the stores of a benchmark live: files in a folder, a schema of a PostgreSQL, or keys of a Redis."""

import asyncio
import itertools
import os
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from reprieve.stores.checked import checked
from reprieve.stores.protocol import Store
from reprieve.stores.sqlite import SqliteStore


class Home(Protocol):
    """Opens empty stores and knows what they cost."""

    def open(self, *, is_fast: bool) -> Store:
        """Open an empty store."""
        ...

    async def size(self) -> int:
        """Return the bytes of the store that was opened last."""
        ...

    async def writes(self) -> int | None:
        """Return how many rows were written so far, where that is counted."""
        ...

    def cpu(self) -> float:
        """Return seconds of processor time that a server has spent on this machine, besides our own."""
        ...

    def remove(self) -> None:
        """Remove the store that was opened last, once it is closed."""
        ...

    def pinned(self) -> AbstractContextManager[None] | None:
        """Hold a snapshot for as long as this lasts, where that keeps dead rows from being cleared away."""
        ...


class SqliteHome:
    """Each store a file."""

    def __init__(self, folder: Path) -> None:
        """Take a folder that is removed afterwards."""
        self._folder = folder
        self._names = itertools.count()
        self._store: SqliteStore | None = None
        self._path = folder

    def open(self, *, is_fast: bool) -> Store:
        """Open an empty store."""
        self._path = self._folder / f"{next(self._names)}.db"
        self._store = SqliteStore(self._path, durability="fast" if is_fast else "full")
        return checked(self._store)

    async def size(self) -> int:
        """Return the bytes of the database, those that are still in the write-ahead log as well."""
        pages = "select page_count * page_size from pragma_page_count, pragma_page_size"
        return await self._ask(pages)

    async def writes(self) -> int | None:
        """Return the rows that were written."""
        return await self._ask("select total_changes()")

    def cpu(self) -> float:
        """Return nothing: all of it is our own."""
        return 0.0

    def remove(self) -> None:
        """Remove the files."""
        for file in self._folder.glob(self._path.name + "*"):
            file.unlink()

    def pinned(self) -> AbstractContextManager[None] | None:
        """Return nothing: a row is written where it is."""
        return None

    async def _ask(self, question: str) -> int:
        assert self._store is not None
        return await asyncio.wrap_future(self._store.submit(lambda tx: int(tx.execute(question).fetchone()[0])))


class PostgresHome:
    """Each store a schema, made anew."""

    def __init__(self, url: str) -> None:
        """Connect to the server itself."""
        import psycopg  # noqa: PLC0415 - an extra, needed here alone

        self._url = url
        self._connect = psycopg.connect
        self._admin = psycopg.connect(url, autocommit=True)

    def open(self, *, is_fast: bool) -> Store:
        """Open an empty store."""
        from reprieve.stores.postgres import PostgresStore  # noqa: PLC0415 - as above

        self.remove()
        return checked(PostgresStore(self._url, schema="reprieve_bench", durability="fast" if is_fast else "full"))

    async def size(self) -> int:
        """Return the bytes of all tables with their indexes."""
        sizes = (
            "select sum(pg_total_relation_size(oid))::int8 from pg_class "
            "where relnamespace = to_regnamespace('reprieve_bench') and relkind = 'r'"
        )
        row = self._admin.execute(sizes).fetchone()
        return int(row[0]) if row else 0

    async def writes(self) -> int | None:
        """Return nothing: the server counts late."""
        return None

    def cpu(self) -> float:
        """Return the processor time of the server's processes, if they are here."""
        seconds = 0.0
        for (process,) in self._admin.execute("select pid from pg_stat_activity").fetchall():
            stat = Path(f"/proc/{process}/stat")
            if stat.exists():
                user, system = stat.read_text().rpartition(")")[2].split()[11:13]
                seconds += (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
        return seconds

    @contextmanager
    def pinned(self) -> Generator[None]:
        """Read in a transaction that stays open."""
        with self._connect(self._url) as reader:
            reader.execute("set transaction isolation level repeatable read")
            reader.execute("select count(*) from reprieve_bench.session")
            yield

    def remove(self) -> None:
        """Remove the schema."""
        self._admin.execute("set client_min_messages = warning")
        self._admin.execute("drop schema if exists reprieve_bench cascade")


class RedisHome:
    """Each store the keys of one prefix, made anew, on a server or on those of a Cluster."""

    PREFIX = "reprieve_bench"

    def __init__(self, url: str, servers: Sequence[str] = ()) -> None:
        """Connect to the servers themselves; they are named where the URL is not that of a single one."""
        import redis  # noqa: PLC0415 - an extra, needed here alone

        self._url = url
        self._admins = [redis.Redis.from_url(server, protocol=2) for server in servers or (url,)]
        self._before = 0

    def open(self, *, is_fast: bool) -> Store:
        """Open an empty store."""
        from reprieve.stores.redis import RedisStore  # noqa: PLC0415 - as above

        self.remove()
        self._before = self._used()
        return checked(RedisStore(f"{self._url}?prefix={self.PREFIX}", durability="fast" if is_fast else "full"))

    async def size(self) -> int:
        """Return the bytes of memory that the servers have used since the store was opened."""
        return self._used() - self._before

    async def writes(self) -> int | None:
        """Return nothing: a server counts commands, not keys."""
        return None

    def cpu(self) -> float:
        """Return the processor time of all servers, wherever they are."""
        return sum(self.each_cpu())

    def each_cpu(self) -> list[float]:
        """Return the processor time of every server."""
        infos = [admin.info("cpu") for admin in self._admins]
        return [float(used["used_cpu_user"]) + float(used["used_cpu_sys"]) for used in infos]

    def pinned(self) -> AbstractContextManager[None] | None:
        """Return nothing: there are no snapshots."""
        return None

    def remove(self) -> None:
        """Remove the keys."""
        for admin in self._admins:
            for key in admin.scan_iter(f"{{{self.PREFIX}:*", count=1_000):
                # At once: memory that is freed in the background would be missing from the next figure.
                admin.delete(key)

    def _used(self) -> int:
        return sum(int(admin.info("memory")["used_memory"]) for admin in self._admins)
