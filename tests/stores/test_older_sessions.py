"""A session that was written without what newer releases keep of it reads as one with empty fields."""

import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import redis

from reprieve.stores.open import open_store
from reprieve.stores.protocol import Session, Store
from reprieve.stores.session_record import LastHeartbeat, Origin, session_of, unpack_heartbeat
from reprieve.testing.conformance.stage import START, Worker

FACTS: dict[str, Any] = {"host": "mail-3", "pid": 4_711, "tasks": ("send",)}


async def check(store: Store, slots: int) -> None:
    """Check that an older session is listed with empty fields, and fills those that its next heartbeat has."""
    assert await store.sessions(START) == [Session(id="worker-1", slots=slots)]
    assert await Worker(store, "worker-1").heartbeat(START + 1, slots=6, running=2)
    assert await store.sessions(START + 1) == [Session(id="worker-1", slots=6, running=2, heartbeat_at=START + 1)]
    await store.close()


async def test_sqlite_lists_a_session_without_an_origin(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/jobs.db")
    await Worker.open(store, slots=5, **FACTS)
    with sqlite3.connect(tmp_path / "jobs.db") as connection:
        connection.execute("delete from reprieve_session_origin")
        connection.execute("update reprieve_session set heartbeat_at = 0")
    connection.close()
    await check(store, slots=5)


async def test_postgres_lists_a_session_without_an_origin(postgres_url: str) -> None:
    store = open_store(f"{postgres_url}?schema=older_sessions")
    await Worker.open(store, slots=5, **FACTS)
    with psycopg.connect(postgres_url) as connection:
        connection.execute("update older_sessions.session set origin = null, heartbeat_at = 0")
    await check(store, slots=5)


async def test_redis_lists_a_session_without_an_origin(redis_url: str) -> None:
    store = open_store(f"{redis_url}?prefix=older_sessions")
    await Worker.open(store, slots=5, **FACTS)
    with redis.Redis.from_url(redis_url) as client:
        client.delete("{older_sessions:0}:last_heartbeats", "{older_sessions:0}:session_origins")
    await check(store, slots=0)


def test_fields_that_a_later_release_adds_do_not_disturb() -> None:
    assert unpack_heartbeat(b"\x96\x01\x02\x03\x04\x90\xa5later") == LastHeartbeat(1, 2, 3, 4, ())
    origin = b"\x92\x07\xa1h"
    assert session_of("s", LastHeartbeat(), origin) == Session(id="s", since=7, host="h")
    assert Origin() == Origin(0, "", 0, "", ())
