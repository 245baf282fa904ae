"""The wire: many statements under way at once, errors among them, and servers and processes that stand still."""

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
from reprieve.stores.postgres import PostgresStore, wire
from reprieve.stores.postgres.address import address_of
from reprieve.stores.postgres.crew import Crew, Tx
from reprieve.stores.postgres.line import Line
from reprieve.stores.postgres.wire import Wire
from reprieve.testing.conformance.stage import START, new_job
from tests.stores.postgres.recount import stored_ids

ECHO = "select %(text)s::text"
FAILS = "select 1 / %(zero)s::int4"
LARGE = "x" * 3_000_000
TURN = "select take_turn('1:1:')::text"


@pytest.fixture
def line(postgres_url: str) -> Iterator[Line]:
    with address_of(postgres_url).connect() as line:
        yield line


@pytest.fixture
def pooled(pgbouncer_url: str) -> Iterator[Line]:
    with address_of(pgbouncer_url).connect() as line:
        yield line


def echo(wire: Wire, text: str) -> object:
    wire.begin()
    reply = wire.send(ECHO, {"text": text})
    wire.finish()
    wire.end()
    return reply.one()


def wait_until(admin: psycopg.Connection, what: str) -> None:
    """Wait until the server is at work on something."""
    until = ticks() + 30
    while admin.execute(f"select 1 from pg_stat_activity where {what}").fetchone() is None:  # noqa: S608 - our own
        assert ticks() < until


def prepared(line: Line) -> list[str]:
    rows = line.execute("select statement from pg_prepared_statements where name ~ '^reprieve_'").fetchall()
    return sorted(statement for (statement,) in rows)


def test_replies_are_those_to_their_statements_in_whatever_order_they_are_read(line: Line) -> None:
    wire = Wire(line)
    wire.begin()
    replies = [wire.send(ECHO, {"text": str(number)}) for number in range(100)]
    assert [replies[number].one() for number in (50, 10, 99)] == [("50",), ("10",), ("99",)]
    wire.finish()
    wire.end()
    assert [reply.one() for reply in replies] == [(str(number),) for number in range(100)]


def test_parameters_may_be_anything_come_twice_or_not_at_all(line: Line) -> None:
    wire = Wire(line)
    wire.begin()
    twice = wire.send("select %(b)s::text || %(a)s::text || %(b)s::text", {"a": "1", "b": "2"})
    none = wire.send("select 1 where false")
    kinds = "select %(value)s::int8, %(other)s::bytea, %(names)s::text[]"
    values = [wire.send(kinds, {"value": value, "other": b"\0\xff", "names": ["a", ""]}) for value in (None, 7, None)]
    assert twice.all() == [("212",)]
    assert none.all() == []
    assert none.one() is None
    assert [reply.one() for reply in values] == [(value, b"\0\xff", ["a", ""]) for value in (None, 7, None)]
    wire.finish()
    wire.end()


def test_more_is_sent_and_answered_than_fits_into_any_buffer(line: Line) -> None:
    # Whoever only sends waits for a server that waits for somebody to read.
    wire = Wire(line)
    wire.begin()
    replies = [wire.send("select repeat(%(text)s::text, 6)", {"text": LARGE}) for _ in range(8)]
    wire.finish()
    wire.end()
    assert all(reply.one() == (6 * LARGE,) for reply in replies)


@pytest.mark.parametrize("kind", ["line", "pooled"])
def test_nothing_after_an_error_is_done_and_the_line_goes_on(kind: str, request: pytest.FixtureRequest) -> None:
    line: Line = request.getfixturevalue(kind)
    wire = Wire(line)
    wire.begin()
    wire.send("begin")
    wire.send("create temporary table noted (text text)")
    first = wire.send("insert into noted values (%(text)s) returning text", {"text": "before"})
    wire.send(FAILS, {"zero": 0})
    wire.send("insert into noted values (%(text)s) returning text", {"text": "after"})
    wire.send("commit")
    wire.finish()
    with pytest.raises(psycopg.errors.DivisionByZero):
        wire.end()
    assert not wire.is_idle()
    wire.abandon()
    assert wire.is_idle()
    assert first.one() == ("before",)
    assert echo(wire, "again") == ("again",)
    assert line.execute("select to_regclass('pg_temp.noted')").fetchone() == (None,)


def test_an_error_counts_also_if_nobody_reads_the_reply(line: Line) -> None:
    wire = Wire(line)
    wire.begin()
    wire.send(FAILS, {"zero": 0})
    later = wire.send(ECHO, {"text": "later"})
    with pytest.raises(psycopg.errors.DivisionByZero):
        later.one()
    with pytest.raises(psycopg.errors.PipelineAborted):
        later.one()
    wire.abandon()
    with pytest.raises(psycopg.InterfaceError):
        later.one()
    assert echo(wire, "again") == ("again",)


def test_what_is_prepared_stays_so_whatever_becomes_of_the_rest(line: Line) -> None:
    wire = Wire(line)
    for _ in range(3):
        wire.begin()
        wire.send(ECHO, {"text": "never read"})
        wire.abandon()
    assert prepared(line) == ["select $1::text"]


def test_what_an_error_kept_from_being_prepared_is_prepared_later(line: Line) -> None:
    wire = Wire(line)
    wire.begin()
    wire.send(FAILS, {"zero": 0})
    wire.send(ECHO, {"text": "never"})
    wire.finish()
    with pytest.raises(psycopg.errors.DivisionByZero):
        wire.end()
    wire.abandon()
    assert prepared(line) == ["select 1 / $1::int4"]
    assert [echo(wire, "now"), echo(wire, "then")] == [("now",), ("then",)]
    assert prepared(line) == ["select $1::text", "select 1 / $1::int4"]


def test_only_so_many_statements_are_prepared(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "PREPARED", 3)
    ours = Wire(line)
    ours.begin()
    replies = [ours.send(f"select {number}") for number in range(5)]
    ours.finish()
    ours.end()
    assert [reply.one() for reply in replies] == [(number,) for number in range(5)]
    assert len(prepared(line)) == 3


def test_a_server_that_says_nothing_is_given_up(line: Line) -> None:
    wire = Wire(line)
    line.patience = 0.1
    wire.begin()
    asleep = wire.send("select pg_sleep(60)")
    with pytest.raises(psycopg.OperationalError, match="no answer within"):
        asleep.one()
    wire.abandon()
    assert line.closed


def test_a_line_that_is_cut_while_somebody_waits_is_closed(line: Line, postgres_url: str) -> None:
    wire = Wire(line)

    def cut() -> None:
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            wait_until(admin, f"pid = {line.info.backend_pid} and wait_event = 'PgSleep'")
            admin.execute("select pg_terminate_backend(%(pid)s)", {"pid": line.info.backend_pid})

    wire.begin()
    asleep = wire.send("select pg_sleep(60)")
    wire.send(ECHO, {"text": "never"})
    thread = threading.Thread(target=cut)
    thread.start()
    with pytest.raises(psycopg.errors.AdminShutdown):
        asleep.one()
    wire.abandon()
    thread.join()
    assert line.closed


def test_whoever_stands_still_with_the_turn_in_hand_loses_it(url: str) -> None:
    crew = Crew(address_of(url))
    is_held, is_over = threading.Event(), threading.Event()

    def stand_still(tx: Tx) -> None:
        tx.one(TURN)
        is_held.set()
        is_over.wait()
        tx.one("select 1")

    held = crew.submit(stand_still)
    assert is_held.wait(30)
    try:
        assert crew.here(lambda tx: tx.one(TURN)) is not None
    finally:
        is_over.set()
    with pytest.raises(StoreLocked):
        held.result()
    crew.close()


@pytest.fixture
def _ctrl_c() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt: a process that a shell started in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_ctrl_c")
def test_an_interrupt_is_heard_while_somebody_waits(url: str, postgres_url: str) -> None:
    store = PostgresStore(url)
    first = new_job(store)
    store.enqueue_sync([first], START)
    with closing(psycopg.connect(postgres_url)) as holder, psycopg.connect(postgres_url, autocommit=True) as admin:
        holder.execute(f"lock table {url.partition('schema=')[2]}.ledger in exclusive mode")

        def interrupt() -> None:
            wait_until(admin, "query like 'select%.enqueue(%' and wait_event_type = 'Lock'")
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
