"""Copies of whole stores as small files, and how they become stores again."""

import gzip
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import msgspec
import psycopg

from tests.servers import postgres, redis
from tests.servers.program import POSTGRESQL, find

SCHEMA: Final = "golden_schema"
"""The name of a dumped schema; a restored one has another."""

FILES: Final = {"sqlite": "jobs.db.gz", "postgres": "postgres.sql.gz", "redis": "redis.jsonl.gz"}


def dump_sqlite(path: Path, target: Path) -> None:
    """Copy a file that no process has open."""
    copy = path.with_suffix(".copy")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("vacuum into ?", (str(copy),))
    _write(target, copy.read_bytes())


@contextmanager
def restore_sqlite(source: Path, folder: Path) -> Iterator[str]:
    """Make a file of the copy; return its URL."""
    path = folder / "jobs.db"
    path.write_bytes(gzip.decompress(source.read_bytes()))
    yield f"sqlite:///{path}"


def dump_postgres(server: str, target: Path) -> None:
    """Write the tables, functions and rows of the schema as SQL."""
    program = str(find(POSTGRESQL).resolve().parent / "pg_dump")
    command = [program, "--schema", SCHEMA, "--inserts", "--no-owner", "--no-privileges", "--dbname", server]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # Lines that begin so are for psql, and comments for people.
    lines = (line for line in text.splitlines() if not line.startswith(("\\", "-- ", "--\n")) and line != "--")
    _write(target, "\n".join(lines).encode())


@contextmanager
def restore_postgres(source: Path, server: str) -> Iterator[str]:
    """Make a schema of the dump; return its URL."""
    name = f"golden_{uuid4().hex[:12]}"
    script = gzip.decompress(source.read_bytes()).decode().replace(SCHEMA, name)
    with psycopg.connect(server, autocommit=True) as admin:
        # The names in functions mean those of the schema, which is not in the search path while they are created.
        admin.execute("set check_function_bodies = off")
        admin.execute(script)
    try:
        yield f"{server}?schema={name}"
    finally:
        postgres.drop_schema(server, name)


def dump_redis(server: redis.Server, target: Path) -> None:
    """Write the commands that make the keys of a server: these do not depend on its version, as its own dumps do."""
    with server.client() as client:
        lines = [
            msgspec.json.encode([argument.decode("latin-1") for argument in command])
            for key in sorted(client.scan_iter())
            for command in _commands(client, key)
        ]
    _write(target, b"\n".join(lines))


@contextmanager
def restore_redis(source: Path) -> Iterator[str]:
    """Start a server, and run the commands; return its URL."""
    with redis.own() as server:
        with server.client() as client:
            for line in gzip.decompress(source.read_bytes()).splitlines():
                command = msgspec.json.decode(line, type=list[str])
                client.execute_command(*(argument.encode("latin-1") for argument in command))
        yield server.url


def _commands(client: Any, key: bytes) -> Iterator[list[bytes]]:  # noqa: ANN401 - a client of redis-py
    match client.type(key):
        case b"hash":
            yield [b"HSET", key, *(part for pair in sorted(client.hgetall(key).items()) for part in pair)]
        case b"zset":
            members = client.zrange(key, 0, -1, withscores=True)
            yield [b"ZADD", key, *(part for member, score in members for part in (repr(score).encode(), member))]
        case b"set":
            yield [b"SADD", key, *sorted(client.smembers(key))]
        case b"list":
            yield [b"RPUSH", key, *client.lrange(key, 0, -1)]
        case b"string":
            yield [b"SET", key, client.get(key)]
        case b"stream":
            for entry, fields in client.xrange(key):
                yield [b"XADD", key, entry, *(part for pair in fields.items() for part in pair)]
            yield [b"XSETID", key, client.xinfo_stream(key)["last-generated-id"]]
        case kind:
            message = f"no command makes a key of type {kind!r}"
            raise TypeError(message)
    if (expires_at := client.pttl(key)) >= 0:
        message = f"key {key!r} expires in {expires_at} ms: the copy would lose it"
        raise ValueError(message)


def _write(target: Path, data: bytes) -> None:
    # Without a time, so that the same store is the same file.
    target.write_bytes(gzip.compress(data, 9, mtime=0))
    os.chmod(target, 0o644)  # noqa: PTH101 - as of every other file
