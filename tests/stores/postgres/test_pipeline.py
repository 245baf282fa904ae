"""The pipeline: many statements under way at once, errors among them, and servers and processes that stand still."""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from reprieve.clock import ticks
from reprieve.errors import StoreLocked
from reprieve.stores.postgres import PostgresStore, pipeline
from reprieve.stores.postgres.address import address_of
from reprieve.stores.postgres.connection import Connection
from reprieve.stores.postgres.functions import with_hashed_names
from reprieve.stores.postgres.pipeline import Pipeline
from reprieve.stores.postgres.pool import ConnectionPool, Tx
from reprieve.testing.conformance.stage import START, new_job
from tests.stores.postgres.recount import stored_ids

ECHO = "select %(text)s::text"
FAILS = "select 1 / %(zero)s::int4"
LARGE = "x" * 3_000_000
LOCK = with_hashed_names("select acquire_claim_lock('1:1:')::text")


@pytest.fixture
def connection(postgres_url: str) -> Iterator[Connection]:
    with address_of(postgres_url).connect() as connection:
        yield connection


@pytest.fixture
def pooled(pgbouncer_url: str) -> Iterator[Connection]:
    with address_of(pgbouncer_url).connect() as connection:
        yield connection


def echo(pipe: Pipeline, text: str) -> object:
    pipe.begin()
    result = pipe.send(ECHO, {"text": text})
    pipe.sync()
    pipe.end()
    return result.one()


def wait_until(admin: psycopg.Connection, what: str) -> None:
    """Wait until the server is at work on something."""
    until = ticks() + 30
    while admin.execute(f"select 1 from pg_stat_activity where {what}").fetchone() is None:  # noqa: S608 - our own
        assert ticks() < until


def prepared(connection: Connection) -> list[str]:
    rows = connection.execute("select statement from pg_prepared_statements where name ~ '^reprieve_'").fetchall()
    return sorted(statement for (statement,) in rows)


def test_results_are_those_to_their_statements_in_whatever_order_they_are_read(connection: Connection) -> None:
    pipe = Pipeline(connection)
    pipe.begin()
    results = [pipe.send(ECHO, {"text": str(number)}) for number in range(100)]
    assert [results[number].one() for number in (50, 10, 99)] == [("50",), ("10",), ("99",)]
    pipe.sync()
    pipe.end()
    assert [result.one() for result in results] == [(str(number),) for number in range(100)]


def test_parameters_may_be_anything_come_twice_or_not_at_all(connection: Connection) -> None:
    pipe = Pipeline(connection)
    pipe.begin()
    twice = pipe.send("select %(b)s::text || %(a)s::text || %(b)s::text", {"a": "1", "b": "2"})
    none = pipe.send("select 1 where false")
    kinds = "select %(value)s::int8, %(other)s::bytea, %(names)s::text[]"
    values = [pipe.send(kinds, {"value": value, "other": b"\0\xff", "names": ["a", ""]}) for value in (None, 7, None)]
    assert twice.all() == [("212",)]
    assert none.all() == []
    assert none.one() is None
    assert [result.one() for result in values] == [(value, b"\0\xff", ["a", ""]) for value in (None, 7, None)]
    pipe.sync()
    pipe.end()


def test_more_is_sent_and_answered_than_fits_into_any_buffer(connection: Connection) -> None:
    # A client that only sends waits for a server that waits for the client to read.
    pipe = Pipeline(connection)
    pipe.begin()
    results = [pipe.send("select repeat(%(text)s::text, 6)", {"text": LARGE}) for _ in range(8)]
    pipe.sync()
    pipe.end()
    assert all(result.one() == (6 * LARGE,) for result in results)


@pytest.mark.parametrize("kind", ["connection", "pooled"])
def test_nothing_after_an_error_is_done_and_the_line_goes_on(kind: str, request: pytest.FixtureRequest) -> None:
    connection: Connection = request.getfixturevalue(kind)
    pipe = Pipeline(connection)
    pipe.begin()
    pipe.send("begin")
    pipe.send("create temporary table noted (text text)")
    first = pipe.send("insert into noted values (%(text)s) returning text", {"text": "before"})
    pipe.send(FAILS, {"zero": 0})
    pipe.send("insert into noted values (%(text)s) returning text", {"text": "after"})
    pipe.send("commit")
    pipe.sync()
    with pytest.raises(psycopg.errors.DivisionByZero):
        pipe.end()
    assert not pipe.is_idle()
    pipe.abort()
    assert pipe.is_idle()
    assert first.one() == ("before",)
    assert echo(pipe, "again") == ("again",)
    assert connection.execute("select to_regclass('pg_temp.noted')").fetchone() == (None,)


def test_an_error_counts_also_if_the_result_is_not_read(connection: Connection) -> None:
    pipe = Pipeline(connection)
    pipe.begin()
    pipe.send(FAILS, {"zero": 0})
    later = pipe.send(ECHO, {"text": "later"})
    with pytest.raises(psycopg.errors.DivisionByZero):
        later.one()
    with pytest.raises(psycopg.errors.PipelineAborted):
        later.one()
    pipe.abort()
    with pytest.raises(psycopg.InterfaceError):
        later.one()
    assert echo(pipe, "again") == ("again",)


def test_what_is_prepared_stays_so_whatever_becomes_of_the_rest(connection: Connection) -> None:
    pipe = Pipeline(connection)
    for _ in range(3):
        pipe.begin()
        pipe.send(ECHO, {"text": "never read"})
        pipe.abort()
    assert prepared(connection) == ["select $1::text"]


def test_what_an_error_kept_from_being_prepared_is_prepared_later(connection: Connection) -> None:
    pipe = Pipeline(connection)
    pipe.begin()
    pipe.send(FAILS, {"zero": 0})
    pipe.send(ECHO, {"text": "never"})
    pipe.sync()
    with pytest.raises(psycopg.errors.DivisionByZero):
        pipe.end()
    pipe.abort()
    assert prepared(connection) == ["select 1 / $1::int4"]
    assert [echo(pipe, "now"), echo(pipe, "then")] == [("now",), ("then",)]
    assert prepared(connection) == ["select $1::text", "select 1 / $1::int4"]


def test_only_so_many_statements_are_prepared(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "MAX_PREPARED_STATEMENTS", 3)
    ours = Pipeline(connection)
    ours.begin()
    results = [ours.send(f"select {number}") for number in range(5)]
    ours.sync()
    ours.end()
    assert [result.one() for result in results] == [(number,) for number in range(5)]
    assert len(prepared(connection)) == 3


def test_a_server_that_says_nothing_is_given_up(connection: Connection) -> None:
    pipe = Pipeline(connection)
    connection.max_silence_seconds = 0.1
    pipe.begin()
    asleep = pipe.send("select pg_sleep(60)")
    with pytest.raises(psycopg.OperationalError, match="no response within"):
        asleep.one()
    pipe.abort()
    assert connection.closed


def test_a_line_that_is_cut_while_a_call_waits_is_closed(connection: Connection, postgres_url: str) -> None:
    pipe = Pipeline(connection)

    def cut() -> None:
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            wait_until(admin, f"pid = {connection.info.backend_pid} and wait_event = 'PgSleep'")
            admin.execute("select pg_terminate_backend(%(pid)s)", {"pid": connection.info.backend_pid})

    pipe.begin()
    asleep = pipe.send("select pg_sleep(60)")
    pipe.send(ECHO, {"text": "never"})
    thread = threading.Thread(target=cut)
    thread.start()
    with pytest.raises(psycopg.errors.AdminShutdown):
        asleep.one()
    pipe.abort()
    thread.join()
    assert connection.closed


def test_process_that_stands_still_with_the_claim_lock_loses_it(url: str) -> None:
    pool = ConnectionPool(address_of(url))
    is_held, is_over = threading.Event(), threading.Event()

    def stand_still(tx: Tx) -> None:
        tx.one(LOCK)
        is_held.set()
        is_over.wait()
        tx.one("select 1")

    held = pool.submit(stand_still)
    assert is_held.wait(30)
    try:
        assert pool.run_here(lambda tx: tx.one(LOCK)) is not None
    finally:
        is_over.set()
    with pytest.raises(StoreLocked):
        held.result()
    pool.close()


@pytest.fixture
def _ctrl_c() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt: a process that a shell started in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_ctrl_c")
def test_an_interrupt_ends_a_wait_for_the_server(url: str, postgres_url: str) -> None:
    store = PostgresStore(url)
    first = new_job(store)
    store.enqueue_sync([first], START)
    with closing(psycopg.connect(postgres_url)) as holder, psycopg.connect(postgres_url, autocommit=True) as admin:
        holder.execute(f"lock table {url.partition('schema=')[2]}.uncounted_enqueue in exclusive mode")

        def interrupt() -> None:
            wait_until(admin, "query like 'select%.enqueue_%' and wait_event_type = 'Lock'")
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            store.enqueue_sync([new_job(store)], START)
        thread.join()
        # It waits no more, though the table is locked still.
        assert holder.info.transaction_status == TransactionStatus.INTRANS
        holder.rollback()
    last = new_job(store)
    store.enqueue_sync([last], START)
    assert stored_ids(url) == {first.id, last.id}
    asyncio.run(store.close())
