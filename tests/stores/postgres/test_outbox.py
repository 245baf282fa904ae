"""The outbox in PostgreSQL: sent by any library, taken in order, with no row passed over, waited for or kept."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing, suppress

import asyncpg  # type: ignore[import-untyped]  # has no types
import psycopg
import pytest

from reprieve import Reprieve
from reprieve.config import Settings
from reprieve.core.job import Job
from reprieve.errors import StoreClosed, StoreError
from reprieve.stores.open import diagnostics_for
from reprieve.stores.outbox import OutboxRow
from reprieve.stores.postgres import PostgresStore
from reprieve.stores.postgres.address import address_of
from reprieve.stores.postgres.outbox import PostgresOutbox
from reprieve.stores.postgres.statements import statements
from reprieve.testing.conformance.stage import START, new_job, new_jobs
from tests.servers import postgres
from tests.stores.postgres.libraries import AsyncOpened, Opened, Undone, every_awaited_library, every_library

PATIENCE = 10.0
OURS = "relay-to-be-cut-off"


@pytest.fixture
async def outbox(url: str) -> AsyncIterator[PostgresOutbox]:
    outbox = PostgresOutbox(f"{url}&application_name={OURS}")
    yield outbox
    await outbox.close()


@pytest.fixture
async def other(url: str) -> AsyncIterator[PostgresOutbox]:
    """Open the outbox as another relay does."""
    outbox = PostgresOutbox(url)
    yield outbox
    await outbox.close()


@pytest.fixture
def jobs(store: PostgresStore) -> list[Job]:
    return new_jobs(store, 3, tenant="ana")


def server_of(url: str) -> str:
    return url.partition("?")[0]


def ids_of(entries: list[OutboxRow]) -> list[str]:
    return [entry.job.id for entry in entries if entry.job is not None]


async def taken(outbox: PostgresOutbox) -> list[str]:
    """Take everything, and settle it."""
    entries = await outbox.take(100)
    if entries:
        await outbox.settle(entries, {})
    return ids_of(entries)


def sent(url: str) -> list[str]:
    """Return what the outbox shows to a person."""
    with psycopg.connect(server_of(url)) as admin:
        admin.execute(f"set search_path = {url.partition('schema=')[2]}")
        return [job_id for (job_id,) in admin.execute("select id::text from outbox order by xid, id").fetchall()]


@every_library
def test_jobs_are_sent_with_the_commit_of_the_caller(opened: Opened, url: str) -> None:
    with Reprieve("redis://unused", outbox=url, settings=Settings()) as app:
        task = app.task(print)
        with suppress(Undone), opened(server_of(url)) as connection:
            task.using(connection=connection).enqueue()
            raise Undone
        with opened(server_of(url)) as connection:
            calls = [task.using(connection=connection, delay="1h").call() for _ in range(3)]
            handles = app.enqueue_many(calls)
            assert sent(url) == []
        assert sent(url) == sorted(handle.id for handle in handles)


@every_awaited_library
async def test_jobs_are_sent_with_the_commit_of_the_caller_who_awaits(
    opened: AsyncOpened, url: str, outbox: PostgresOutbox, jobs: list[Job]
) -> None:
    with suppress(Undone):
        async with opened(server_of(url)) as connection:
            await outbox.aenqueue_in(connection, jobs[:1], START)
            raise Undone
    async with opened(server_of(url)) as connection:
        await outbox.aenqueue_in(connection, jobs[1:], START)
    assert await taken(outbox) == [job.id for job in jobs[1:]]


async def test_the_statement_is_published_in_every_style(url: str, outbox: PostgresOutbox, jobs: list[Job]) -> None:
    assert await taken(outbox) == []
    text, parameters = outbox.statement(jobs[:1])
    with psycopg.connect(server_of(url)) as connection:
        connection.execute(text, parameters)
    text, values = outbox.statement(jobs[1:], "numbered")
    connected = await asyncpg.connect(server_of(url))
    await connected.execute(text, *values)
    await connected.close()
    assert await taken(outbox) == [job.id for job in jobs]


async def test_a_transaction_that_commits_late_is_not_passed_over(
    url: str, outbox: PostgresOutbox, jobs: list[Job]
) -> None:
    early, late, last = jobs
    with psycopg.connect(server_of(url)) as slow, psycopg.connect(server_of(url)) as quick:
        outbox.enqueue_in(slow, [early], START)
        outbox.enqueue_in(quick, [late], START)
        quick.commit()
        assert await taken(outbox) == [late.id]
        # It looks more than once, and remembers from where on there may be more.
        assert await taken(outbox) == []
        outbox.enqueue_in(quick, [last], START)
        quick.commit()
        assert await taken(outbox) == [last.id]
        slow.commit()
        assert await taken(outbox) == [early.id]


async def test_what_a_relay_has_taken_is_kept_from_others_until_it_gives_it_back(
    url: str, outbox: PostgresOutbox, other: PostgresOutbox, jobs: list[Job]
) -> None:
    with psycopg.connect(server_of(url)) as connection:
        outbox.enqueue_in(connection, jobs, START)
    assert ids_of(await outbox.take(2)) == [job.id for job in jobs[:2]]
    assert await taken(other) == [jobs[2].id]
    assert await taken(other) == []
    await outbox.give_back()
    assert await taken(other) == [job.id for job in jobs[:2]]


async def test_what_a_relay_had_that_was_cut_off_comes_back(
    url: str, outbox: PostgresOutbox, other: PostgresOutbox, jobs: list[Job]
) -> None:
    with psycopg.connect(server_of(url)) as connection:
        outbox.enqueue_in(connection, jobs, START)
    entries = await outbox.take(10)
    assert await taken(other) == []
    with psycopg.connect(server_of(url), autocommit=True) as admin:
        held = "application_name = %s and state = 'idle in transaction'"
        cut = f"select pg_terminate_backend(pid) from pg_stat_activity where {held}"  # noqa: S608 - of our own words
        assert admin.execute(cut, [OURS]).fetchall() == [(True,)]
    with pytest.raises(StoreError):
        await outbox.settle(entries, {})
    await outbox.give_back()
    async with asyncio.timeout(PATIENCE):
        while not (found := await taken(other)):  # noqa: ASYNC110 - the server takes a moment
            await asyncio.sleep(0.02)
    assert found == [job.id for job in jobs]


async def test_an_open_transaction_keeps_no_other_waiting(
    url: str, outbox: PostgresOutbox, store: PostgresStore
) -> None:
    with psycopg.connect(server_of(url)) as idle, psycopg.connect(server_of(url)) as busy:
        outbox.enqueue_in(idle, [new_job(store)], START)
        busy.execute("set lock_timeout = '1ms'")
        ours = new_jobs(store, 50)
        for job in ours:
            outbox.enqueue_in(busy, [job], START)
            busy.commit()
        assert await taken(outbox) == [job.id for job in ours]


async def test_a_commit_wakes_the_relay_that_waits(url: str, outbox: PostgresOutbox, jobs: list[Job]) -> None:
    assert await taken(outbox) == []
    with psycopg.connect(server_of(url)) as connection:
        waiting = asyncio.create_task(outbox.wait(PATIENCE))
        outbox.enqueue_in(connection, jobs, START)
        assert not (await asyncio.wait({waiting}, timeout=0.3))[0]
        connection.commit()
    async with asyncio.timeout(PATIENCE / 2):
        assert await waiting


async def test_to_send_takes_no_right_but_to_insert(url: str, outbox: PostgresOutbox, jobs: list[Job]) -> None:
    assert await taken(outbox) == []
    schema = url.partition("schema=")[2]
    text, parameters = outbox.statement(jobs)
    with psycopg.connect(server_of(url), autocommit=True) as admin:
        admin.execute(f"create role sender_{schema}")
        try:
            admin.execute(f"grant usage on schema {schema} to sender_{schema}")
            admin.execute(f"grant insert on {schema}.outbox to sender_{schema}")
            with psycopg.connect(server_of(url)) as connection:
                connection.execute(f"set role sender_{schema}")
                connection.execute(text, parameters)
        finally:
            admin.execute(f"drop owned by sender_{schema}")
            admin.execute(f"drop role sender_{schema}")
    assert await taken(outbox) == [job.id for job in jobs]


async def test_a_transaction_without_notifications_can_be_prepared(jobs: list[Job]) -> None:
    with postgres.own() as server:
        outbox = PostgresOutbox(server.url)
        assert await taken(outbox) == []
        with psycopg.connect(server.url, autocommit=True) as connection:
            statement, parameters = outbox.statement(jobs)
            assert isinstance(parameters, dict)
            connection.execute("begin")
            connection.execute(statement, parameters | {"channel": ""})
            connection.execute("prepare transaction 'prepared'")
            assert await taken(outbox) == []
            connection.execute("commit prepared 'prepared'")
        assert await taken(outbox) == [job.id for job in jobs]
        await outbox.close()


async def test_taking_reads_no_more_than_what_waits(url: str, outbox: PostgresOutbox, store: PostgresStore) -> None:
    """A long read keeps every removed row where it was."""
    with psycopg.connect(server_of(url)) as sender, psycopg.connect(server_of(url)) as reader:
        assert await taken(outbox) == []
        reader.execute("begin isolation level repeatable read; select 1")
        for _ in range(20):
            outbox.enqueue_in(sender, new_jobs(store, 100), START)
            sender.commit()
            assert len(await taken(outbox)) == 100
        for _ in range(200):
            assert await taken(outbox) == []
        # A connection that is closed has all its reads counted.
        await outbox.close()
        blocks = (
            "select sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read)::int8 "
            "from pg_statio_user_tables where schemaname = %s and relname = 'outbox'"
        )
        with psycopg.connect(server_of(url), autocommit=True) as admin:
            row = admin.execute(blocks, [url.partition("schema=")[2]]).fetchone()
    assert row is not None
    assert 0 < row[0] < 20_000


async def test_jobs_are_taken_along_the_index_and_never_sorted(url: str, outbox: PostgresOutbox) -> None:
    assert await taken(outbox) == []
    with closing(address_of(url).connect()) as line:
        line.execute("begin")
        line.execute(statements("outbox")["settings"])
        for name in ("take", "since"):
            parameters = {"since": "0", "max_jobs": 100}
            plan = line.execute(f"explain {statements('outbox')[name]}", parameters).fetchall()
            assert "outbox_pkey" in str(plan)
            assert "Sort" not in str(plan)


async def test_the_doctor_tells_of_the_outbox(url: str, outbox: PostgresOutbox, jobs: list[Job]) -> None:
    assert await taken(outbox) == []
    with psycopg.connect(server_of(url)) as connection:
        outbox.enqueue_in(connection, jobs, START)
    made_at = jobs[0].created_at

    def found(now: int) -> tuple[str, str]:
        (finding,) = (one for one in diagnostics_for(url).examine(now) if one.name == "outbox")
        return finding.level, finding.seen

    assert found(made_at + 5_000) == ("ok", "3 waiting, the first for 5 s")
    assert found(made_at + 90_000) == ("warn", "3 waiting, the first for 90 s")
    entries = await outbox.take(10)
    await outbox.settle(entries[1:], {entries[0].place: "payload_too_large: so it is"})
    assert found(made_at) == ("warn", "0 waiting; 1 refused: payload_too_large: so it is")


async def test_jobs_are_sent_and_taken_through_a_pooler(
    url: str, pgbouncer_url: str, outbox: PostgresOutbox, jobs: list[Job]
) -> None:
    pooled = PostgresOutbox(f"{pgbouncer_url}?{url.partition('?')[2]}")
    with psycopg.connect(pgbouncer_url, prepare_threshold=None) as connection:
        pooled.enqueue_in(connection, jobs, START)
    entries = await pooled.take(2)
    assert ids_of(entries) == [job.id for job in jobs[:2]]
    assert await taken(outbox) == [jobs[2].id]
    await pooled.settle(entries, {})
    assert await taken(outbox) == []
    assert await pooled.wait(PATIENCE)
    await pooled.close()


async def test_an_outbox_that_was_closed_says_so(outbox: PostgresOutbox) -> None:
    await outbox.close()
    with pytest.raises(StoreClosed):
        await outbox.take(1)


async def refused(outbox: PostgresOutbox, url: str, store: PostgresStore) -> str:
    """Let a relay refuse a job, and pass it."""
    (job,) = jobs = [new_job(store)]
    with psycopg.connect(server_of(url)) as connection:
        outbox.enqueue_in(connection, jobs, START)
    (entry,) = await outbox.take(100)
    await outbox.settle([], {entry.place: "too large"})
    with psycopg.connect(server_of(url)) as connection:
        outbox.enqueue_in(connection, [new_job(store)], START)
    assert len(await taken(outbox)) == 1
    assert await taken(outbox) == []
    return job.id


async def test_a_job_that_another_process_readmits_is_taken_by_the_relay_that_runs(
    outbox: PostgresOutbox, other: PostgresOutbox, url: str, store: PostgresStore
) -> None:
    job_id = await refused(outbox, url, store)
    assert await other.readmit() == 1
    assert await taken(outbox) == [job_id]


def restore_with_lower_ids(url: str) -> None:
    """Let the rows be those of a database that was restored, where fewer transactions have been."""
    with psycopg.connect(server_of(url)) as admin:
        admin.execute(f"set search_path = {url.partition('schema=')[2]}")
        admin.execute("update outbox set xid = '3'")


async def test_rows_of_a_restored_database_are_taken_over_a_new_connection(
    outbox: PostgresOutbox, url: str, jobs: list[Job]
) -> None:
    assert await taken(outbox) == []
    with psycopg.connect(server_of(url)) as connection:
        outbox.enqueue_in(connection, jobs, START)
    restore_with_lower_ids(url)
    with psycopg.connect(server_of(url), autocommit=True) as admin:
        admin.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = %s", [OURS])
    found: list[str] = []
    async with asyncio.timeout(PATIENCE):
        while not found:
            with suppress(StoreError):
                found = await taken(outbox)
    assert found == [job.id for job in jobs]


async def test_rows_of_a_restored_database_are_taken_over_a_connection_that_stayed(
    outbox: PostgresOutbox, url: str, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reprieve.stores.postgres.outbox.START_OVER_SECONDS", 0.2)
    assert await taken(outbox) == []
    with psycopg.connect(server_of(url)) as connection:
        outbox.enqueue_in(connection, jobs, START)
    restore_with_lower_ids(url)
    found: list[str] = []
    async with asyncio.timeout(PATIENCE):
        while not found:
            found = await taken(outbox)
    assert found == [job.id for job in jobs]
