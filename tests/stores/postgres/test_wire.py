"""The wire: many statements under way at once, errors among them, and a server that says nothing."""

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from reprieve.stores.postgres import wire
from reprieve.stores.postgres.address import address_of
from reprieve.stores.postgres.line import Line

ECHO = "select %(text)s::text"
FAILS = "select 1 / %(zero)s::int4"
LARGE = "x" * 3_000_000


@pytest.fixture
def line(postgres_url: str) -> Iterator[Line]:
    with address_of(postgres_url).connect() as line:
        yield line


def echo(line: Line, text: str) -> object:
    line.wire.begin()
    answer = line.wire.send(ECHO, {"text": text})
    line.wire.finish()
    line.wire.end()
    return answer.one()


def prepared(line: Line) -> int:
    row = line.execute("select count(*) from pg_prepared_statements where name ~ '^reprieve_'").fetchone()
    return int(row[0]) if row else 0


def test_answers_are_those_of_their_statements_in_whatever_order_they_are_read(line: Line) -> None:
    line.wire.begin()
    answers = [line.wire.send(ECHO, {"text": str(number)}) for number in range(100)]
    assert [answers[number].one() for number in (50, 10, 99)] == [("50",), ("10",), ("99",)]
    line.wire.finish()
    line.wire.end()
    assert [answer.one() for answer in answers] == [(str(number),) for number in range(100)]


def test_a_parameter_may_come_twice_and_a_statement_without_any_and_without_rows(line: Line) -> None:
    line.wire.begin()
    twice = line.wire.send("select %(b)s::text || %(a)s::text || %(b)s::text", {"a": "1", "b": "2"})
    none = line.wire.send("select 1 where false")
    assert twice.all() == [("212",)]
    assert none.all() == []
    assert none.one() is None
    line.wire.finish()
    line.wire.end()


def test_more_is_sent_and_answered_than_fits_into_any_buffer(line: Line) -> None:
    # Whoever only sends waits for a server that waits for somebody to read.
    line.wire.begin()
    answers = [line.wire.send("select repeat(%(text)s::text, 6)", {"text": LARGE}) for _ in range(8)]
    line.wire.finish()
    line.wire.end()
    assert all(answer.one() == (6 * LARGE,) for answer in answers)


def test_nothing_after_an_error_is_done_and_the_line_goes_on(line: Line) -> None:
    line.execute("create temporary table noted (text text)")
    line.wire.begin()
    line.wire.send("begin")
    first = line.wire.send("insert into noted values (%(text)s) returning text", {"text": "before"})
    line.wire.send(FAILS, {"zero": 0})
    line.wire.send("insert into noted values (%(text)s) returning text", {"text": "after"})
    line.wire.send("commit")
    line.wire.finish()
    with pytest.raises(psycopg.errors.DivisionByZero):
        line.wire.end()
    line.wire.abandon()
    assert first.one() == ("before",)
    assert line.info.transaction_status == TransactionStatus.INERROR
    line.rollback()
    assert line.execute("select text from noted").fetchall() == []
    assert echo(line, "again") == ("again",)


def test_a_statement_that_was_not_prepared_because_of_an_error_is_prepared_later(line: Line) -> None:
    line.wire.begin()
    line.wire.send(FAILS, {"zero": 0})
    line.wire.send(ECHO, {"text": "never"})
    line.wire.finish()
    with pytest.raises(psycopg.errors.DivisionByZero):
        line.wire.end()
    line.wire.abandon()
    before = prepared(line)
    assert [echo(line, "now"), echo(line, "then")] == [("now",), ("then",)]
    assert prepared(line) == before + 1


def test_a_statement_that_nobody_reads_the_answer_of_fails_all_the_same(line: Line) -> None:
    line.wire.begin()
    line.wire.send(FAILS, {"zero": 0})
    later = line.wire.send(ECHO, {"text": "later"})
    with pytest.raises(psycopg.errors.DivisionByZero):
        later.one()
    line.wire.abandon()
    assert echo(line, "again") == ("again",)


def test_only_so_many_statements_are_prepared(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "PREPARED", 3)
    line.wire.begin()
    answers = [line.wire.send(f"select {number}") for number in range(5)]
    line.wire.finish()
    line.wire.end()
    assert [answer.one() for answer in answers] == [(number,) for number in range(5)]
    assert prepared(line) == 3


def test_a_server_that_says_nothing_is_given_up(line: Line) -> None:
    line.patience = 0.1
    line.wire.begin()
    asleep = line.wire.send("select pg_sleep(60)")
    with pytest.raises(psycopg.OperationalError, match="no answer within"):
        asleep.one()
    line.wire.abandon()
    assert line.closed


def test_a_line_that_was_cut_is_closed(line: Line, postgres_url: str) -> None:
    line.wire.begin()
    asleep = line.wire.send("select pg_sleep(60)")
    line.wire.send(ECHO, {"text": "never"})
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("select pg_terminate_backend(%s)", [line.info.backend_pid])
    with pytest.raises(psycopg.OperationalError):
        asleep.one()
    line.wire.abandon()
    assert line.closed
