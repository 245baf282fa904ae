"""What goes wrong with a server, a database or a schema is said in words that help, and never with a password."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import psycopg
import pytest

from reprieve.errors import (
    ForeignStore,
    MissingExtra,
    NewerSchema,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreRefused,
    StoreUnreachable,
)
from reprieve.stores.open import open_store
from reprieve.stores.postgres import PostgresStore
from reprieve.stores.postgres.functions import with_hashed_names
from reprieve.stores.protocol import Filter
from reprieve.testing.conformance.stage import START, Worker, enqueue, new_job, new_jobs
from tests.servers.postgres import LOCKED_OUT
from tests.stores.postgres.recount import complaints, stored_ids


async def failure(url: str) -> StoreError:
    store = open_store(url)
    try:
        with pytest.raises(StoreError) as caught:
            await store.enqueue([new_job(store)], START)
    finally:
        await store.close()
    return caught.value


async def test_server_that_is_down_is_waited_for() -> None:
    error = await failure("postgresql://ana:secret@127.0.0.1:9/jobs")
    assert type(error) is StoreUnreachable
    assert error.is_passing
    assert "cannot be reached; check that it runs" in str(error)
    assert "secret" not in str(error)


async def test_database_that_does_not_exist_is_named(url: str) -> None:
    error = await failure(urlsplit(url)._replace(path="/nowhere").geturl())
    assert isinstance(error, StoreRefused)
    assert "does not exist; create it" in str(error)
    assert "nowhere" in str(error)


async def test_certificate_that_is_missing_is_no_missing_database() -> None:
    async def agree_to_encrypt(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(8)
        writer.write(b"S")
        await reader.read()
        writer.close()

    async with await asyncio.start_server(agree_to_encrypt, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        error = await failure(f"postgresql://127.0.0.1:{port}/db?sslmode=verify-full&sslrootcert=/nowhere/root.crt")
    assert isinstance(error, StoreRefused)
    assert "there is no root certificate to verify the server; name its file" in str(error)


async def test_wrong_password_is_no_passing_error(url: str, postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"create role {LOCKED_OUT} login password 'right'")
        try:
            parts = urlsplit(url)
            error = await failure(parts._replace(netloc=f"{LOCKED_OUT}:wrong@{parts.hostname}:{parts.port}").geturl())
        finally:
            admin.execute(f"drop role {LOCKED_OUT}")
    assert isinstance(error, StoreRefused)
    assert "refuses the user or the password" in str(error)
    assert "wrong" not in str(error)


@pytest.mark.parametrize("encoding", ["UTF8", "SQL_ASCII"])
async def test_database_of_any_encoding_takes_any_text(url: str, postgres_url: str, encoding: str) -> None:
    name = f"{encoding.lower()}_{url.partition('schema=')[2]}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"create database {name} encoding '{encoding}' lc_collate 'C' lc_ctype 'C' template template0")
    try:
        store = PostgresStore(urlsplit(url)._replace(path=f"/{name}").geturl())
        job = new_job(store, tenant="Žofie", key="schlüssel", payload='["日本", {}]'.encode())
        await enqueue(store, job)
        worker = await Worker.open(store, "w")
        (claimed,) = (await worker.ask(1)).jobs
        assert (claimed.tenant, claimed.key, claimed.payload) == (job.tenant, job.key, job.payload)
        await store.close()
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute(f"drop database {name} with (force)")


async def test_read_only_database_says_so(url: str, store: PostgresStore, postgres_url: str) -> None:
    await enqueue(store, new_job(store))
    replica = f"replica_{url.partition('schema=')[2]}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"create database {replica}")
        admin.execute(f"alter database {replica} set default_transaction_read_only = on")
    try:
        error = await failure(urlsplit(url)._replace(path=f"/{replica}").geturl())
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute(f"drop database {replica} with (force)")
    assert isinstance(error, StoreReadOnly)
    assert "name the primary server" in str(error)


async def test_schema_of_a_newer_release_is_refused(url: str) -> None:
    store = PostgresStore(url)
    await store.tally("status", Filter(), START)
    await store.close()
    with psycopg.connect(url.partition("?")[0], autocommit=True) as admin:
        admin.execute(f"insert into {url.partition('schema=')[2]}.schema_version values (2, 'other')")  # noqa: S608 - our own
    error = await failure(url)
    assert isinstance(error, NewerSchema)
    assert "upgrade Reprieve here" in str(error)


async def test_schema_that_other_migrations_made_is_refused(url: str) -> None:
    store = PostgresStore(url)
    await store.tally("status", Filter(), START)
    await store.close()
    with psycopg.connect(url.partition("?")[0], autocommit=True) as admin:
        admin.execute(f"update {url.partition('schema=')[2]}.schema_version set checksum = 'other'")  # noqa: S608 - our own
    assert isinstance(await failure(url), StoreCorrupt)


async def test_schema_of_another_program_is_left_alone(url: str) -> None:
    with psycopg.connect(url.partition("?")[0], autocommit=True) as admin:
        schema = url.partition("schema=")[2]
        admin.execute(f"create schema {schema}")
        admin.execute(f"create table {schema}.orders (id int)")
    error = await failure(url)
    assert isinstance(error, ForeignStore)
    assert "holds tables of something else" in str(error)


def test_missing_driver_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys  # noqa: PLC0415 - modules are hidden here alone

    for name in [name for name in sys.modules if name.startswith(("reprieve.stores.postgres", "psycopg"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"pip install 'reprieve\[postgres\]'"):
        open_store("postgresql://localhost/db")


async def test_store_goes_on_after_its_connections_were_cut(url: str, store: PostgresStore) -> None:
    await enqueue(store, new_job(store))
    with psycopg.connect(url.partition("?")[0], autocommit=True) as admin:
        admin.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = %s",
            [url.partition("schema=")[2]],
        ).fetchall()
    for _ in range(20):
        with suppress(StoreError):
            await enqueue(store, new_job(store))
            break
    else:
        pytest.fail("the store did not connect again")


@contextmanager
def breaking(url: str, code: str) -> Iterator[None]:
    """Have every new job refused with a code."""
    schema = url.partition("schema=")[2]
    with psycopg.connect(url.partition("?")[0], autocommit=True) as admin:
        admin.execute(
            f"create function {schema}.breaks() returns trigger language plpgsql as "
            f"$$ begin raise exception 'it breaks' using errcode = '{code}'; end $$"
        )
        admin.execute(f"create trigger breaks before insert on {schema}.job execute function {schema}.breaks()")
        try:
            yield
        finally:
            admin.execute(f"drop trigger breaks on {schema}.job")


async def test_full_disk_stores_nothing_and_is_no_endless_loop(url: str, store: PostgresStore) -> None:
    await store.tally("status", Filter(), START)
    with breaking(url, "53100"), pytest.raises(StoreFull, match="the server's disk is full; make room"):
        await store.enqueue([new_job(store)], START)
    job = new_job(store)
    assert await store.enqueue([job], START) == [job.id]
    assert stored_ids(url) == {job.id}


@pytest.mark.parametrize(
    ("code", "kind", "advice"),
    [
        ("XX000", StoreError, "PostgreSQL failed"),
        ("XX001", StoreCorrupt, "restore it from a backup"),
        ("XX002", StoreCorrupt, "reindex it"),
    ],
)
async def test_backup_is_restored_only_if_something_is_damaged(
    url: str, store: PostgresStore, code: str, kind: type[StoreError], advice: str
) -> None:
    await store.tally("status", Filter(), START)
    with breaking(url, code), pytest.raises(StoreError, match=advice) as caught:
        await store.enqueue([new_job(store)], START)
    assert type(caught.value) is kind


async def test_server_without_a_connection_left_is_waited_for(url: str, postgres_url: str) -> None:
    role = f"crowded_{url.partition('schema=')[2]}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"create role {role} login connection limit 0")
        try:
            parts = urlsplit(url)
            error = await failure(parts._replace(netloc=f"{role}@{parts.hostname}:{parts.port}").geturl())
        finally:
            admin.execute(f"drop role {role}")
    assert error.is_passing
    assert "no connection left" in str(error)


async def test_connection_that_is_lost_in_a_transaction_loses_and_doubles_nothing(
    url: str, store: PostgresStore
) -> None:
    worker = await Worker.open(store)
    jobs = new_jobs(store, 3)
    await store.enqueue(jobs, START)
    with psycopg.connect(url.partition("?")[0]) as holder:
        holder.execute(f"set search_path = {url.partition('schema=')[2]}")
        holder.execute(with_hashed_names("select acquire_claim_lock('1:1:')"))
        claim = asyncio.create_task(worker.ask(3))
        cut = (
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where application_name = current_schema() and wait_event_type = 'Lock'"
        )
        while not holder.execute(cut).fetchall():  # noqa: ASYNC110 - the server alone knows who waits
            await asyncio.sleep(0.01)
        with pytest.raises(StoreError) as caught:
            await claim
        holder.rollback()
    assert caught.value.is_passing
    again = await worker.again(3)
    assert {job.id for job in again.jobs} == {job.id for job in jobs}
    assert {job.attempt for job in again.jobs} == {1}
    assert complaints(url) == []
