"""The app: storing calls, their results, policies and settings, and its store in fair weather and foul."""

import asyncio
import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Literal

import pytest

from reprieve import Job, Policy, Reprieve, Rule, Task, presets
from reprieve.backoff import fixed
from reprieve.call import Call
from reprieve.config import Settings
from reprieve.errors import InvalidTask, InvalidUrl, StoreError, StoreFull, ValidationError
from reprieve.producer import BULK
from reprieve.stores.capabilities import Faulty
from reprieve.stores.open import open_store
from reprieve.stores.protocol import Filter
from reprieve.testing import FakeClock, Fault, FaultyStore, adrain, assert_enqueued, drain, enqueued

REFUSED = ConnectionError("refused")


@pytest.fixture
def send(app: Reprieve) -> Task[[int], None]:
    @app.task(name="send")
    def send(user: int) -> None: ...

    return send


def numbers(app: Reprieve) -> list[object]:
    return sorted(one.arguments["user"] for one in enqueued(app))  # type: ignore[type-var]  # whole numbers


# enqueueing many


def test_many_calls_are_stored_in_their_order(app: Reprieve, send: Task[[int], None]) -> None:
    handles = app.enqueue_many([send.call(number) for number in range(3)])
    assert [handle.fetch().payload for handle in handles] == [send.call(number).payload for number in range(3)]
    assert all(handle.is_new for handle in handles)


async def test_many_calls_can_be_of_many_tasks_and_options(app: Reprieve, send: Task[[int], None]) -> None:
    @app.task
    def other() -> None: ...

    handles = await app.aenqueue_many(
        [send.using(tenant="acme").call(1), other.call(), send.using(key="a").call(2), send.using(key="a").call(3)]
    )
    assert [handle.is_new for handle in handles] == [True, True, True, False]
    assert handles[3].id == handles[2].id
    assert_enqueued(app, send.using(tenant="acme").call(1))
    assert_enqueued(app, other, times=1)


def test_more_calls_than_fit_one_trip_are_stored_too(app: Reprieve, send: Task[[int], None]) -> None:
    handles = app.enqueue_many(send.call(number) for number in range(BULK + 1))
    assert len({handle.id for handle in handles}) == BULK + 1


async def test_no_calls_are_no_work(app: Reprieve) -> None:
    assert await app.aenqueue_many([]) == []
    assert await asyncio.to_thread(app.enqueue_many, []) == []


def test_calls_are_made_in_the_callers_thread(app: Reprieve, send: Task[[int], None]) -> None:
    threads: set[threading.Thread] = set()

    def number() -> int:
        threads.add(threading.current_thread())
        return 1

    app.enqueue_many(send.call(number()) for _ in range(3))
    assert threads == {threading.current_thread()}


def test_a_batch_with_one_bad_call_is_not_stored(app: Reprieve, send: Task[[int], None]) -> None:
    with pytest.raises(ValidationError):
        app.enqueue_many([send.call(1), send.using(priority=0).call(2)])
    assert enqueued(app) == []


def test_an_error_between_two_batches_has_the_handles_of_what_was_stored(
    app: Reprieve, send: Task[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reprieve.producer.BULK", 2)
    with pytest.raises(ValidationError) as caught:
        app.enqueue_many(
            [*(send.call(number) for number in range(5)), send.using(dependency=lambda number: "\n" * number).call(5)]
        )
    handles = caught.value.enqueued
    assert [app.job(handle.id).fetch().payload for handle in handles] == [
        send.call(number).payload for number in range(4)
    ]
    assert numbers(app) == [0, 1, 2, 3]


async def test_an_error_of_the_callers_own_has_handles_too(
    app: Reprieve, send: Task[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def calls(count: int) -> Iterator[Call[None]]:
        for number in range(count):
            yield send.call(number)
        raise LookupError

    monkeypatch.setattr("reprieve.producer.BULK", 2)
    for count, stored in ((0, 0), (1, 0), (5, 4)):
        with pytest.raises(LookupError) as caught:
            await app.aenqueue_many(calls(count))
        assert len(caught.value.enqueued) == stored  # type: ignore[attr-defined]  # any exception has them


async def test_callers_who_share_the_error_of_a_store_have_receipts_of_their_own(
    app: Reprieve, send: Task[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Filling(FaultyStore):
        async def enqueue(self, jobs: Sequence[Job], now: int) -> list[str]:
            if len(jobs) == 2:
                return await super().enqueue(jobs, now)
            raise full

    full = StoreFull("the disk is full")
    monkeypatch.setattr("reprieve.producer.BULK", 2)
    with app.override(store=Filling(app.store)):
        errors = await asyncio.gather(
            *(app.aenqueue_many(send.call(number) for number in range(count)) for count in (3, 5)),
            return_exceptions=True,
        )
    assert [(type(error), len(error.enqueued)) for error in errors] == [(StoreFull, 2), (StoreFull, 4)]  # type: ignore[union-attr]  # as above


def test_threads_can_enqueue_at_the_same_time(app: Reprieve, send: Task[[int], None]) -> None:
    with ThreadPoolExecutor(8) as threads:
        handles = list(threads.map(send.enqueue, range(200)))
    assert len({handle.id for handle in handles}) == 200
    assert numbers(app) == list(range(200))


def test_of_threads_with_the_same_key_one_is_first(app: Reprieve, send: Task[[int], None]) -> None:
    with ThreadPoolExecutor(8) as threads:
        handles = list(threads.map(send.using(key="a").enqueue, range(50)))
    assert len({handle.id for handle in handles}) == 1
    assert [handle.is_new for handle in handles].count(True) == 1


# in the caller's transaction


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[tuple[Reprieve, sqlite3.Connection]]:
    """An app, and an ordinary connection of an application to the same file."""
    path = tmp_path / "shop.db"
    with Reprieve(f"sqlite:///{path}") as app:
        assert app.store is not None
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("create table shop_order (number integer)")
            yield app, connection


@pytest.mark.parametrize(("end", "count"), [("commit", 1), ("rollback", 0)])
def test_a_job_is_there_if_the_callers_transaction_is(
    shop: tuple[Reprieve, sqlite3.Connection], end: Literal["commit", "rollback"], count: int
) -> None:
    app, connection = shop

    @app.task
    def ship(number: int) -> None: ...

    connection.execute("insert into shop_order values (7)")
    handle = ship.using(connection=connection).enqueue(7)
    assert handle.is_new
    assert_enqueued(app, ship, times=0)
    getattr(connection, end)()
    assert_enqueued(app, ship.call(7), times=count)
    assert connection.execute("select count(*) from shop_order").fetchone() == (count,)
    assert drain(app).succeeded == count


async def test_coroutines_can_enqueue_in_a_transaction_too(shop: tuple[Reprieve, sqlite3.Connection]) -> None:
    app, connection = shop

    @app.task
    def ship(number: int) -> None: ...

    connection.execute("insert into shop_order values (7)")
    await app.aenqueue_many([ship.using(connection=connection).call(number) for number in range(3)])
    connection.commit()
    assert (await adrain(app)).succeeded == 3


def test_a_connection_without_a_transaction_is_refused(shop: tuple[Reprieve, sqlite3.Connection]) -> None:
    app, connection = shop

    @app.task
    def ship(number: int) -> None: ...

    with pytest.raises(StoreError, match="no open transaction"):
        ship.using(connection=connection).enqueue(7)


def test_no_connection_is_no_transaction(shop: tuple[Reprieve, sqlite3.Connection]) -> None:
    app, _ = shop

    @app.task
    def ship(number: int) -> None: ...

    ship.using(connection=None).enqueue(7)
    assert_enqueued(app, ship, times=1)


def test_a_store_that_knows_no_transactions_says_so(app: Reprieve, send: Task[[int], None]) -> None:
    with app.override(store=FaultyStore(app.store)), pytest.raises(ValidationError, match="cannot join a transaction"):
        send.using(connection=object()).enqueue(1)


# results


@pytest.mark.parametrize(
    ("value", "complaint"), [("a" * 300_000, "has 300,002 bytes"), (object(), "cannot be stored as JSON")]
)
def test_a_result_that_cannot_be_kept_is_the_end_of_its_job(app: Reprieve, value: object, complaint: str) -> None:
    @app.task(result_ttl="1h")
    def answer() -> object:
        return value

    job = answer.enqueue()
    assert drain(app).dead == 1
    dead = job.fetch()
    assert (dead.death, dead.attempt) == ("permanent", 1)
    assert dead.cause is not None
    assert complaint in dead.cause.reason


# policies and settings


def test_the_jobs_own_words_go_over_the_operators_over_the_tasks_over_the_apps() -> None:
    memory = Settings(url="sqlite://:memory:")
    operators = Settings(url="sqlite://:memory:", policies={"send": Policy(max_attempts=4)})
    with Reprieve(settings=memory) as plain:
        assert plain.task(name="send")(lambda: None).enqueue().fetch().max_attempts == 10
    with Reprieve(settings=memory, policy=Policy(max_attempts=2)) as apps:
        assert apps.task(name="send")(lambda: None).enqueue().fetch().max_attempts == 2
    with Reprieve(settings=memory, policy=Policy(max_attempts=2)) as apps:
        send = apps.task(name="send", policy=Policy(max_attempts=3))(lambda: None)
        assert send.enqueue().fetch().max_attempts == 3
    with Reprieve(settings=operators, policy=Policy(max_attempts=2)) as apps:
        send = apps.task(name="send", policy=Policy(max_attempts=3))(lambda: None)
        assert send.enqueue().fetch().max_attempts == 4
        assert send.using(max_attempts=5).enqueue().fetch().max_attempts == 5


def test_a_policy_may_be_given_by_its_name() -> None:
    mine = Policy(max_attempts=7)
    settings = Settings(url="sqlite://:memory:", profile="development", policies={"mine": mine})
    for name, policy in (("email", presets.email), ("smtp", presets.smtp_dev), ("mine", mine)):
        with Reprieve(settings=settings) as app:
            job = app.task(policy=name)(lambda: None).enqueue().fetch()
            assert app.registry.policy_of(job) == policy
        with Reprieve(settings=settings, policy=name) as app:
            job = app.task(lambda: None).enqueue().fetch()
            assert app.registry.policy_of(job) == policy
    with pytest.raises(InvalidTask, match="policy of the app must be a Policy or the name of one, got 'nine'; did you"):
        Reprieve(settings=settings, policy="nine")


def test_rules_of_the_operator_go_before_everything_else(clock: FakeClock) -> None:
    rule = Rule(exception="ConnectionError", kind="permanent")
    with Reprieve(settings=Settings(url="sqlite://:memory:", rules=(rule,)), clock=clock) as app:

        @app.task(policy=Policy(rules=[Rule(exception=ConnectionError, kind="transient")]))
        def fail() -> None:
            raise REFUSED

        job = fail.enqueue()
        assert drain(app).dead == 1
        assert job.fetch().death == "permanent"


def test_development_has_policies_of_its_own() -> None:
    for profile, policy in (("production", presets.smtp), ("development", presets.smtp_dev)):
        settings = Settings(url="sqlite://:memory:", policy="smtp", profile=profile)  # type: ignore[arg-type]  # one of the two
        with Reprieve(settings=settings) as app:
            job = app.task(lambda: None).enqueue().fetch()
            assert app.registry.policy_of(job) == policy


def test_settings_come_from_the_environment_and_a_url_goes_over_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REPRIEVE_URL", "sqlite:///elsewhere.db")
    monkeypatch.setenv("REPRIEVE_SLOTS", "7")
    assert Reprieve().settings.url == "sqlite:///elsewhere.db"
    app = Reprieve("sqlite://:memory:")
    assert (app.settings.url, app.settings.slots) == ("sqlite://:memory:", 7)


@pytest.mark.parametrize("url", ["mysql://somewhere", "jobs.db", "sqlite://jobs.db"])
def test_a_url_that_no_store_answers_to_is_refused_when_it_is_needed(url: str) -> None:
    app = Reprieve(url)
    with pytest.raises(InvalidUrl):
        app.task(lambda: None).enqueue()
    app.close()


def test_a_url_of_sqlalchemy_is_told_what_to_leave_out() -> None:
    app = Reprieve("postgresql+psycopg://u@h/d")
    with pytest.raises(InvalidUrl, match=r"names a driver; write postgresql:// without it"):
        app.open()


def test_a_job_whose_payload_does_not_fit_is_dead_at_once(app: Reprieve) -> None:
    newer = Reprieve("sqlite://:memory:", clock=app.clock)
    with newer.override(store=app.store):

        @newer.task(name="changed")
        def changed(words: list[str]) -> None: ...

        unfit = changed.enqueue(["a"])

    @app.task(name="changed")
    def before(number: int) -> None: ...

    assert drain(app).dead == 1
    job = app.job(unfit.id).fetch()
    assert (job.death, job.attempt) == ("undecodable", 1)
    assert job.cause is not None
    assert "does not fit" in job.cause.reason


# the store in foul weather


@pytest.mark.parametrize("point", ["before", "after"])
async def test_an_enqueue_rides_out_a_store_that_fails_once(
    app: Reprieve, send: Task[[int], None], point: Literal["before", "after"]
) -> None:
    assert isinstance(app.store, Faulty)
    app.store.inject(point)
    handle = await send.aenqueue(1)
    assert handle.is_new
    assert_enqueued(app, send, times=1)


@pytest.mark.parametrize("point", ["before", "after"])
def test_a_keyed_enqueue_whose_reply_was_lost_is_still_new(
    app: Reprieve, send: Task[[int], None], point: Literal["before", "after"]
) -> None:
    assert isinstance(app.store, Faulty)
    app.store.inject(point)
    assert send.using(key="a").enqueue(1).is_new
    assert_enqueued(app, send, times=1)


async def test_an_enqueue_does_not_wait_for_ever(
    app: Reprieve, send: Task[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gone(FaultyStore):
        async def enqueue(self, *_: object) -> list[str]:
            tries.append(1)
            message = "gone"
            raise StoreError(message)

    tries: list[int] = []
    monkeypatch.setattr("reprieve.producer.MAX_RETRY_SECONDS", 0.2)
    with app.override(store=Gone(app.store)), pytest.raises(StoreError, match="gone"):
        await send.aenqueue(1)
    assert len(tries) > 1


async def test_an_enqueue_does_not_wait_for_what_waiting_does_not_fix(app: Reprieve, send: Task[[int], None]) -> None:
    class Full(FaultyStore):
        async def enqueue(self, *_: object) -> list[str]:
            tries.append(1)
            message = "the disk is full"
            raise StoreFull(message)

    tries: list[int] = []
    with app.override(store=Full(app.store)), pytest.raises(StoreFull):
        await send.aenqueue(1)
    assert len(tries) == 1


FORKING = """
import json, os, sys
from reprieve import Reprieve
from reprieve.testing import drain, enqueued

app = Reprieve(f"sqlite:///{sys.argv[1]}")

@app.task(name="note")
def note(who: str) -> None: ...

note.enqueue("before")
children = []
for number in range(3):
    child = os.fork()
    if child == 0:
        note.enqueue(f"child {number}")
        app.close()
        os._exit(0)
    children.append(child)
    note.enqueue(f"parent {number}")
# The last process that closes a file removes its journal; another process must not be taken for closed.
app.close()
status = max(os.waitpid(child, 0)[1] for child in children)
words = sorted(one.arguments["who"] for one in enqueued(app))
print(json.dumps([status, words, drain(app).succeeded]), flush=True)
app.close()
"""


def test_an_app_that_was_open_works_on_both_sides_of_a_fork(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKING, str(tmp_path / "jobs.db")]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    status, words, succeeded = json.loads(answer.stdout.splitlines()[-1])
    expected = ["before", "child 0", "child 1", "child 2", "parent 0", "parent 1", "parent 2"]
    assert (status, words, succeeded) == (0, expected, 7)


# opening and closing


def test_nothing_is_opened_until_it_is_needed(tmp_path: Path) -> None:
    app = Reprieve(f"sqlite:///{tmp_path}/jobs.db")
    app.task(lambda: None)
    assert list(tmp_path.iterdir()) == []
    app.close()


def test_a_closed_app_opens_again_when_it_is_needed(tmp_path: Path) -> None:
    app = Reprieve(f"sqlite:///{tmp_path}/jobs.db")
    work = app.task(name="work")(lambda: None)
    with app:
        first = work.enqueue()
    app.close()
    assert first.fetch().state == "waiting"
    app.close()


async def test_a_closed_app_opens_again_in_coroutines(tmp_path: Path) -> None:
    app = Reprieve(f"sqlite:///{tmp_path}/jobs.db")
    work = app.task(name="work")(lambda: None)
    async with app:
        first = await work.aenqueue()
    assert (await first.afetch()).state == "waiting"
    await app.aclose()


def test_an_override_ends_and_leaves_everything_as_it_was(
    app: Reprieve, send: Task[[int], None], clock: FakeClock
) -> None:
    send.enqueue(1)
    store, other = app.store, FakeClock(0)
    with app.override(url="sqlite:///:memory:", clock=FakeClock()) as same:
        assert same is app
        assert app.store is not store
        assert enqueued(app) == []
        with app.override(clock=other):
            assert app.clock is other
        send.enqueue(2)
        used = app.store
    assert (app.store, app.clock, app.settings.url) == (store, clock, "sqlite://:memory:")
    assert numbers(app) == [1]
    with pytest.raises(StoreError, match="closed"):
        asyncio.run(used.find(Filter(), 0))


def test_an_override_leaves_a_store_open_that_it_was_handed(app: Reprieve, send: Task[[int], None]) -> None:
    store = open_store("sqlite://:memory:")
    with app.override(store=store):
        send.enqueue(1)
    assert len(asyncio.run(store.find(Filter(), 0)).jobs) == 1
    assert enqueued(app) == []
    asyncio.run(store.close())


def test_a_fault_at_an_enqueue_is_ridden_out(app: Reprieve, send: Task[[int], None]) -> None:
    faulty = FaultyStore(app.store, Fault(operation="enqueue", number=1, when="after"))
    with app.override(store=faulty):
        send.enqueue(1)
    assert faulty.has_failed
    assert numbers(app) == [1]


def test_backoff_of_a_task_is_its_policys(app: Reprieve, clock: FakeClock) -> None:
    @app.task(policy=Policy(max_attempts=2, backoff=fixed("7s")))
    def fail() -> None:
        raise REFUSED

    job = fail.enqueue()
    drain(app, within=0)
    assert job.fetch().due_at == clock.now() + 7_000
