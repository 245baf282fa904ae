"""Inline mode: a job runs as soon as it is enqueued."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from reprieve import Cancel, Fail, Policy, Reprieve, Snooze, current_job
from reprieve.errors import ReprieveError
from reprieve.testing import FakeClock, assert_enqueued, drain, inline

REFUSED = ConnectionError("refused")


@pytest.fixture
def app() -> Iterator[Reprieve]:
    with Reprieve("sqlite://:memory:", clock=FakeClock()) as app:
        yield app


def test_a_job_has_run_when_its_enqueue_answers(app: Reprieve) -> None:
    @app.task(result_ttl="1h")
    def double(number: int) -> int:
        return number * 2

    with inline(app):
        job = double.enqueue(21)
        assert app.result(job.id) == 42
        assert_enqueued(app, double.call(21), times=1)
    assert app.job(double.enqueue(4).id).state == "waiting"


async def test_coroutines_have_their_jobs_run_as_well(app: Reprieve) -> None:
    @app.task(result_ttl="1h")
    async def double(number: int) -> int:
        return number * 2

    with inline(app):
        receipts = await app.aenqueue_many(double.call(number) for number in range(3))
        assert [await app.aresult(receipt.id) for receipt in receipts] == [0, 2, 4]
        assert await app.aresult(double.enqueue(21).id) == 42


def test_jobs_of_jobs_run_before_their_parent_goes_on(app: Reprieve) -> None:
    seen: list[str] = []

    @app.task
    def child(name: str) -> None:
        seen.append(name)

    @app.task
    def parent() -> None:
        child.enqueue("from a thread")
        seen.append("thread")

    @app.task
    async def coroutine() -> None:
        await child.aenqueue("from a coroutine")
        child.enqueue("without await")
        seen.append("coroutine")

    with inline(app):
        parent.enqueue()
        coroutine.enqueue()
    assert seen == ["from a thread", "thread", "from a coroutine", "without await", "coroutine"]


def test_a_failure_waits_for_its_retry(app: Reprieve) -> None:
    @app.task
    def flaky() -> None:
        if current_job().attempt == 1:
            raise REFUSED

    with inline(app):
        job = flaky.enqueue()
        assert app.job(job.id).waiting_for == "retry"
        assert drain(app).succeeded == 1


def test_a_delay_is_a_delay(app: Reprieve) -> None:
    @app.task
    def work() -> None:
        pass

    with inline(app):
        job = work.using(delay="5m").enqueue()
        assert app.job(job.id).state == "waiting"
        assert drain(app).succeeded == 1


def test_what_a_task_raises_reaches_the_caller_who_asks_for_it(app: Reprieve) -> None:
    @app.task
    def fail(word: str) -> None:
        raise LookupError(word)

    with inline(app, raises=True), pytest.raises(LookupError, match="no such order"):
        fail.enqueue("no such order")


async def test_what_a_coroutine_raises_reaches_the_caller_who_asks_for_it(app: Reprieve) -> None:
    @app.task
    async def fail() -> None:
        raise LookupError

    with inline(app, raises=True), pytest.raises(LookupError):
        await fail.aenqueue()


def test_what_a_child_raises_reaches_whoever_enqueued_its_parent(app: Reprieve) -> None:
    @app.task
    def child() -> None:
        raise LookupError

    @app.task
    def parent() -> None:
        child.enqueue()

    with inline(app, raises=True), pytest.raises(LookupError):
        parent.enqueue()


@pytest.mark.parametrize("signal", [Snooze("1m"), Cancel()])
def test_what_is_no_failure_is_not_raised(app: Reprieve, signal: Snooze | Cancel) -> None:
    @app.task
    def say() -> None:
        raise signal

    with inline(app, raises=True):
        say.enqueue()


def test_what_fails_without_an_exception_is_raised_with_its_reason(app: Reprieve) -> None:
    @app.task(timeout="20ms", policy=Policy(max_attempts=1), name="hang")
    async def hang() -> None:
        await asyncio.Event().wait()

    @app.task
    def give_up() -> object:
        return Fail("hopeless")

    with inline(app, raises=True):
        with pytest.raises(ReprieveError, match="of hang is dead: timed out after"):
            hang.enqueue()
        with pytest.raises(Fail, match="hopeless"):
            give_up.enqueue()


def test_a_job_in_a_transaction_waits_for_the_commit(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with Reprieve(f"sqlite:///{path}") as app, closing(sqlite3.connect(path, isolation_level=None)) as shop:

        @app.task
        def work() -> None:
            pass

        assert app.store is not None
        with inline(app):
            shop.execute("begin immediate")
            job = work.using(connection=shop).enqueue()
            shop.execute("commit")
            assert app.job(job.id).state == "waiting"
            work.enqueue()
            assert app.job(job.id).state == "succeeded"


@pytest.mark.parametrize("is_async", [False, True])
def test_of_a_mixed_batch_what_is_in_no_transaction_runs_at_once(tmp_path: Path, *, is_async: bool) -> None:
    path = tmp_path / "jobs.db"
    with Reprieve(f"sqlite:///{path}") as app, closing(sqlite3.connect(path, isolation_level=None)) as shop:

        @app.task
        def work() -> None:
            pass

        assert app.store is not None
        with inline(app):
            shop.execute("begin")
            calls = [work.call(), work.using(connection=shop).call()]
            at_once, later = asyncio.run(app.aenqueue_many(calls)) if is_async else app.enqueue_many(calls)
            shop.execute("commit")
        assert (app.job(at_once.id).state, app.job(later.id).state) == ("succeeded", "waiting")
