"""The handle of a job: what an enqueue returns."""

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from reprieve import Cancel, JobHandle, Policy, Reprieve, current_job
from reprieve.backoff import fixed
from reprieve.clock import ticks
from reprieve.errors import (
    InvalidArgument,
    JobCancelled,
    JobDead,
    JobNotFound,
    MissingEvents,
    ResultTimeout,
    ResultUnavailable,
    UndecodablePayload,
    UnserialisableArgument,
)
from reprieve.handle import MIN_POLL_SECONDS
from reprieve.stores.protocol import Retention
from reprieve.testing import FakeClock, FaultyStore, adrain, drain, inline

REFUSED = ConnectionRefusedError("refused")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def app(clock: FakeClock) -> Iterator[Reprieve]:
    with Reprieve("sqlite://:memory:", clock=clock) as app:
        yield app


@dataclass
class Invoice:
    number: int
    due: date


INVOICE = Invoice(7, date(2030, 2, 1))


# a handle itself


def test_the_history_of_a_job_has_its_events_and_rebuilds_it(app: Reprieve, clock: FakeClock) -> None:
    tries: list[int] = []

    @app.task(name="shop.send", policy=Policy(max_attempts=3))
    def send() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise REFUSED

    job = send.using(tenant="acme").enqueue()
    drain(app)
    history = job.history()
    assert [(event.name, event.tenant, event.task) for event in history.events] == [
        ("RetryScheduled", "acme", "shop.send")
    ]
    assert [attempt.ended_with for attempt in history.attempts] == ["RetryScheduled", "RetrySucceeded"]
    stored = job.fetch()
    assert stored.cause is not None
    assert history.replay() == replace(stored, cause=replace(stored.cause, traceback=""))
    app.portal.run(app.store.prune(Retention(now=clock.now() + 8 * 86_400_000, succeeded_for=30 * 86_400)))
    with pytest.raises(MissingEvents):
        job.history().replay()


def test_handles_of_one_job_are_equal_and_written_as_its_id(app: Reprieve) -> None:
    send = app.task(name="send")(lambda: None)
    first, second = send.enqueue(), send.enqueue()
    assert {first, app.job(first.id), send.job(first.id)} == {first}
    assert first != second
    assert first != first.id
    assert (str(first), f"{first}") == (first.id, first.id)
    assert repr(first) == f"<JobHandle send {first.id}>"
    assert repr(app.job(first.id)) == f"<JobHandle {first.id}>"


def test_a_job_that_exists_is_the_job_of_every_handle_with_its_key(app: Reprieve) -> None:
    send = app.task(name="send")(lambda number: None).using(key="a")
    first, again = send.enqueue(1), send.enqueue(2)
    assert (first.is_new, again.is_new) == (True, False)
    assert again.fetch() == first.fetch()


def test_a_handle_is_not_an_argument_but_its_id_is(app: Reprieve) -> None:
    @app.task
    def follow(job_id: str) -> None: ...

    @app.task
    def follow_anything(job_id) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001 - nothing is said about it

    handle = follow.enqueue("x")
    with pytest.raises(InvalidArgument, match=r"job_id of .* must be str, got JobHandle"):
        follow.enqueue(handle)  # type: ignore[arg-type]  # as a person may try
    with pytest.raises(UnserialisableArgument, match="cannot be stored as JSON"):
        follow_anything.enqueue(handle)
    assert follow.enqueue(handle.id).is_new


async def test_every_method_has_a_form_with_and_without_a_loop(app: Reprieve) -> None:
    @app.task(name="wait", result_ttl="1h")
    async def wait() -> str:
        current_job().progress(1)
        return "done"

    first, second = app.enqueue_many([wait.call(), wait.call()])
    assert (first.fetch().state, (await second.afetch()).state) == ("waiting", "waiting")
    assert (first.progress(), await second.aprogress()) == (None, None)
    assert first.cancel(by="ana", reason="late") == await second.acancel(by="ana", reason="late") == "cancelled"
    assert first.retry(by="ana", reason="now").job_id == first.id
    assert (await second.aretry(by="ana", reason="now", delay="1m")).job_id == second.id
    await adrain(app)
    assert (first.result(), await second.aresult()) == ("done", "done")


# results


def test_a_result_arrives_as_what_the_task_is_annotated_with(app: Reprieve) -> None:
    @app.task(name="bill", result_ttl="1h")
    def bill() -> Invoice:
        return INVOICE

    handle = bill.enqueue()
    drain(app)
    assert handle.result() == bill.job(handle.id).result() == app.job(handle.id).result() == INVOICE


def test_a_result_of_a_task_that_the_app_does_not_know_is_plain_json(app: Reprieve) -> None:
    @app.task(name="bill", result_ttl="1h")
    def bill() -> Invoice:
        return INVOICE

    handle = bill.enqueue()
    drain(app)
    with Reprieve("sqlite://:memory:").override(store=app.store) as other:
        assert other.job(handle.id).result() == {"number": 7, "due": "2030-02-01"}


def test_a_result_that_does_not_fit_the_annotation_is_refused_with_its_task(app: Reprieve) -> None:
    @app.task(name="count", result_ttl="1h")
    def count() -> int:
        return "seven"  # type: ignore[return-value]  # the mistake

    handle = count.enqueue()
    drain(app)
    with pytest.raises(UndecodablePayload, match=rf"result of job {handle.id} .* return annotation of .*count.*int"):
        handle.result()


def test_a_result_that_no_task_keeps_is_not_waited_for(app: Reprieve) -> None:
    @app.task(name="forget")
    def forget() -> int:
        return 1

    handle = forget.enqueue()
    for _ in ("before it runs", "after it ran"):
        with pytest.raises(ResultUnavailable, match="is not kept; declare forget with a result_ttl") as refused:
            handle.result()
        assert refused.value.code == "result_unavailable"
        drain(app)


def test_a_result_outlives_its_job_until_its_own_time_is_up(app: Reprieve, clock: FakeClock) -> None:
    @app.task(result_ttl="1h")
    def bill() -> Invoice:
        return INVOICE

    handle = bill.enqueue()
    drain(app)
    prune(app, clock, keeps_jobs=False)
    with pytest.raises(JobNotFound):
        handle.fetch()
    assert handle.result() == INVOICE
    clock.advance(3_601)
    prune(app, clock, keeps_jobs=False)
    with pytest.raises(JobNotFound):
        handle.result()


def test_a_result_whose_time_is_up_is_said_to_be_gone(app: Reprieve, clock: FakeClock) -> None:
    handle = app.task(name="count", result_ttl="1m")(lambda: 7).enqueue()
    drain(app)
    clock.advance(61)
    prune(app, clock, keeps_jobs=True)
    with pytest.raises(ResultUnavailable, match=r"\(count\) is no longer kept"):
        handle.result()


def prune(app: Reprieve, clock: FakeClock, *, keeps_jobs: bool) -> None:
    kept = 1_000 if keeps_jobs else 0
    app.portal.run(app.store.prune(Retention(now=clock.now(), succeeded=kept, succeeded_for=kept)))


# jobs that end without a result


def test_a_dead_job_raises_its_cause(app: Reprieve) -> None:
    @app.task(name="fail", result_ttl="1h", policy=Policy(max_attempts=2, backoff=fixed("1s")))
    def fail() -> None:
        raise REFUSED

    handle = fail.enqueue()
    drain(app)
    with pytest.raises(JobDead, match=rf"job {handle.id} \(fail\) died after attempt 2, exhausted: refused") as dead:
        handle.result()
    assert (dead.value.death, dead.value.reason, dead.value.code) == ("exhausted", "refused", "job_dead")
    assert isinstance(dead.value, ResultUnavailable)


def test_a_job_that_expired_before_it_ran_says_so(app: Reprieve, clock: FakeClock) -> None:
    handle = app.task(name="late", result_ttl="1h")(lambda: 1).using(deadline="1s").enqueue()
    clock.advance("2s")
    drain(app)
    with pytest.raises(JobDead, match="died before its first attempt, expired"):
        handle.result()


def test_a_cancelled_job_raises_who_cancelled_it_and_why(app: Reprieve) -> None:
    handle = app.task(name="send", result_ttl="1h")(lambda: 1).enqueue()
    handle.cancel(by="ana", reason="sold out")
    with pytest.raises(JobCancelled, match=rf"job {handle.id} \(send\) was cancelled by ana: sold out") as cancelled:
        handle.result()
    assert (cancelled.value.by, cancelled.value.reason) == ("ana", "sold out")


def test_a_job_that_cancels_itself_raises_its_own_reason(app: Reprieve) -> None:
    @app.task(name="send", result_ttl="1h")
    def send() -> int:
        raise Cancel("withdrawn")  # noqa: EM101 - a signal

    handle = send.enqueue()
    drain(app)
    with pytest.raises(JobCancelled, match="was cancelled by its own task: withdrawn") as cancelled:
        handle.result()
    assert (cancelled.value.by, cancelled.value.reason) == ("", "withdrawn")


# waiting


async def test_a_result_can_be_waited_for(app: Reprieve) -> None:
    handle = await app.task(result_ttl="1h")(lambda: 42).aenqueue()
    limited, unlimited = (asyncio.create_task(handle.aresult(timeout=timeout)) for timeout in ("30s", None))
    await asyncio.sleep(0)
    await adrain(app)
    assert (await limited, await unlimited) == (42, 42)


def test_a_timeout_names_what_a_waiting_job_is_doing(app: Reprieve) -> None:
    send = app.task(name="send", queue="mail", result_ttl="1h")(lambda: 1)
    ready, scheduled = send.enqueue(), send.using(delay="1h").enqueue()
    no_worker = rf"job {ready.id} \(send\) has not ended within 0s: it is ready in queue 'mail', and no worker has"
    with pytest.raises(ResultTimeout, match=no_worker) as late:
        ready.result(timeout=0)
    assert (late.value.status, late.value.code) == ("ready", "result_timeout")
    assert isinstance(late.value, TimeoutError)
    with pytest.raises(ResultTimeout, match=r"within 0.01s: it is scheduled and starts at .*in 1h"):
        scheduled.result(timeout=0.01)


def test_a_timeout_names_why_a_job_has_not_succeeded_yet(app: Reprieve) -> None:
    def fail() -> None:
        raise REFUSED

    retried = app.task(name="a", result_ttl="1h", policy=Policy(backoff=fixed("1m")))(fail).enqueue()
    parked = app.task(name="b", result_ttl="1h", dependency="bank")(fail).enqueue()
    drain(app, within=0)
    with pytest.raises(ResultTimeout, match=r"it is retrying after a failure \(refused\) and starts at .*in 1m"):
        retried.result(timeout=0)
    with pytest.raises(ResultTimeout, match=r"it is parked on bank: refused; no answer since .* next try in"):
        parked.result(timeout=0)


async def test_a_timeout_names_the_attempt_that_runs(app: Reprieve) -> None:
    said: list[str] = []

    @app.task(result_ttl="1h")
    async def work() -> None:
        with pytest.raises(ResultTimeout) as late:
            await app.job(current_job().id).aresult(timeout=0)
        said.append(str(late.value))

    await work.aenqueue()
    await adrain(app)
    assert "it is running, attempt 1 on " in said[0]


def test_a_busy_queue_does_not_make_a_wait_read_the_job_all_the_time(app: Reprieve) -> None:
    waits: list[tuple[float, float]] = []

    class Busy(FaultyStore):
        async def wait(self, queues: Sequence[str], at_most: float, session: str = "") -> bool:
            waits.append((ticks(), at_most))
            return True

    handle = app.task(result_ttl="1h")(lambda: 1).enqueue()
    with app.override(store=Busy(app.store)), pytest.raises(ResultTimeout):
        handle.result(timeout=0.1)
    assert all(later - began >= at_most / 4 for (began, at_most), (later, _) in pairwise(waits))
    assert waits[0][1] == MIN_POLL_SECONDS


# where handles come from


def test_a_job_in_a_transaction_is_visible_after_the_commit(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with Reprieve(f"sqlite:///{path}", shared=True) as app, closing(sqlite3.connect(path)) as connection:
        app.open()
        connection.execute("BEGIN")
        handle = app.task(name="send", result_ttl="1h")(lambda: 1).using(connection=connection).enqueue()
        for ask in (handle.fetch, handle.result, lambda: handle.cancel(by="ana", reason="late")):
            with pytest.raises(JobNotFound, match="in a transaction of yours, and is visible after the commit"):
                ask()
        connection.commit()
        assert handle.fetch().state == "waiting"


def test_inline_mode_has_the_result_at_once(app: Reprieve) -> None:
    @app.task(result_ttl="1h")
    def double(number: int) -> int:
        return number * 2

    with inline(app):
        handles: list[JobHandle[int]] = app.enqueue_many(double.call(number) for number in range(3))
        assert [handle.result(timeout=0) for handle in handles] == [0, 2, 4]


def test_a_handle_goes_by_the_store_that_the_app_uses_now(app: Reprieve) -> None:
    send = app.task(name="send")(lambda: None)
    handle = send.enqueue()
    with app.override(url="sqlite://:memory:"), pytest.raises(JobNotFound):
        handle.fetch()
    assert handle.fetch().state == "waiting"
