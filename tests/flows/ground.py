"""Where a stage stands: a store of each kind, and how to keep every other process from writing to it."""

import fcntl
import sqlite3
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import Protocol, TypeAlias
from uuid import uuid4

import psycopg

from reprieve.stores.postgres.functions import with_hashed_names
from tests.servers import redis
from tests.servers.postgres import drop_schema


class Ground(Protocol):
    """A store, as it is seen from outside."""

    url: str

    def is_free(self) -> bool:
        """Whether no process is in the middle of a write, or will be out of it in a moment."""
        ...

    def locked(self) -> AbstractContextManager[None]:
        """Lock the store while the context lasts."""
        ...


Grounds: TypeAlias = Callable[[Path], AbstractContextManager[Ground]]
"""Makes an empty store for a folder, and removes it afterwards."""


class File:
    """An SQLite file."""

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}"
        self._path = path

    def is_free(self) -> bool:
        with Path(f"{self._path}-lock").open() as file:
            for _ in range(100):
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    threading.Event().wait(0.005)
                else:
                    return True
        return False

    @contextmanager
    def locked(self) -> Generator[None]:
        with closing(sqlite3.connect(self._path, timeout=30, isolation_level=None, check_same_thread=False)) as holder:
            holder.execute("begin exclusive")
            yield
            holder.execute("rollback")


class Schema:
    """A schema of a PostgreSQL database."""

    def __init__(self, server: str) -> None:
        self.name = f"flow_{uuid4().hex[:12]}"
        self.url = f"{server}?schema={self.name}"
        self._server = server

    def is_free(self) -> bool:
        """A process that stops in a transaction is disconnected after seconds, in which all others wait."""
        busy = (
            "select exists (select 1 from pg_locks join pg_class on pg_class.oid = relation "
            "where relnamespace = to_regnamespace(%s))"
        )
        with psycopg.connect(self._server, autocommit=True) as admin:
            for _ in range(100):
                row = admin.execute(busy, [self.name]).fetchone()
                if row == (False,):
                    return True
                threading.Event().wait(0.005)
        return False

    @contextmanager
    def locked(self) -> Generator[None]:
        with psycopg.connect(self._server) as holder:
            holder.execute(f"set search_path = {self.name}")
            holder.execute(with_hashed_names("select acquire_claim_lock('1:1:')"))
            holder.execute("lock table job in exclusive mode")
            yield
            holder.rollback()

    def drop(self) -> None:
        drop_schema(self._server, self.name)


class Keys:
    """The keys of Redis servers."""

    def __init__(self, url: str, servers: Sequence[redis.Server]) -> None:
        self.url = url
        self._servers = servers

    def is_free(self) -> bool:
        """A process that stops holds nothing: a script that has begun ends without it."""
        return True

    @contextmanager
    def locked(self) -> Generator[None]:
        with ExitStack() as stack:
            admins = [stack.enter_context(server.client()) for server in self._servers]
            for admin in admins:
                admin.client_pause(3_600_000, all=False)
            yield
            for admin in admins:
                admin.client_unpause()


class Nodes(Keys):
    """The keys of a Cluster."""

    def __init__(self, cluster: redis.Cluster) -> None:
        super().__init__(cluster.url, cluster.masters)
        self.cluster = cluster


@contextmanager
def in_a_file(folder: Path) -> Generator[Ground]:
    """Stand on a file in the folder."""
    yield File(folder / "jobs.db")


@contextmanager
def in_a_schema(server: str) -> Generator[Ground]:
    """Stand on a schema of a server."""
    schema = Schema(server)
    try:
        yield schema
    finally:
        schema.drop()


@contextmanager
def in_keys(server: redis.Server) -> Generator[Ground]:
    """Use a server of its own: it can be locked only as a whole."""
    yield Keys(server.url, [server])


@contextmanager
def in_a_cluster(fsync: str) -> Generator[Ground]:
    """Stand on a Cluster of one's own, each of whose primaries has a replica."""
    with redis.cluster(replicas=1, appendfsync=fsync) as cluster:
        yield Nodes(cluster)


@contextmanager
def in_a_server(_: Path) -> Generator[Ground]:
    """Stand on a Redis server of one's own."""
    with redis.own() as server, in_keys(server) as keys:
        yield keys


class Watched(Keys):
    """The keys of servers with Sentinels."""

    def __init__(self, group: redis.SentinelGroup) -> None:
        super().__init__(group.url, [group.primary])
        self.group = group


@contextmanager
def in_a_sentinel_group(fsync: str) -> Generator[Ground]:
    """Use servers of its own with Sentinels."""
    with redis.sentinel_group(replicas=2, appendfsync=fsync) as group:
        yield Watched(group)
