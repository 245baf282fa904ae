"""Enqueueing without a loop: with one trip of the calling thread where that does, and safely where it does not."""

import asyncio
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from reprieve import Reprieve, Task
from reprieve.errors import StoreClosed, StoreFull
from reprieve.stores.capabilities import Immediate
from reprieve.stores.paginate import find_all
from reprieve.stores.protocol import Filter
from tests.servers import redis as servers


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Server]:
    with servers.own(appendfsync="always") as server:
        yield server


@pytest.fixture
def app(server: servers.Server, request: pytest.FixtureRequest) -> Iterator[Reprieve]:
    with server.client() as client:
        client.flushall()
        client.config_set("maxmemory", 0)
    with closing(Reprieve(server.url + getattr(request, "param", ""))) as app:
        yield app


@pytest.fixture
def work(app: Reprieve) -> Task[[int], None]:
    @app.task
    def work(number: int) -> None: ...

    return work


class Interrupted(BaseException):
    """Ctrl-C was pressed."""


def stored(app: Reprieve) -> set[str]:
    return {job.id for job in app.portal.run(find_all(app.store, Filter(), app.clock.now()))}


def here(app: Reprieve, *tasks: Task[[int], None]) -> list[str] | None:
    """Enqueue with one trip, or not at all."""
    store = app.store
    assert isinstance(store, Immediate)
    return store.enqueue_sync([app.producer.job_of(task.call(0)) for task in tasks], app.clock.now())


def test_a_job_takes_one_trip_once_the_server_was_looked_at(app: Reprieve, work: Task[[int], None]) -> None:
    assert here(app, work) is None
    first = work.enqueue(1).id
    known = here(app, work)
    assert known is not None
    assert stored(app) == {first, *known}
    assert here(app, work, work) is None


@pytest.mark.parametrize("app", ["", "?partitions=3"], indirect=True)
def test_keys_are_seen_whichever_way_a_job_comes(app: Reprieve, work: Task[[int], None]) -> None:
    keyed = work.using(key="once")
    first = keyed.enqueue(1)
    others = [keyed.enqueue(number) for number in range(5)]
    assert {other.id for other in others} == {first.id}
    assert not any(other.is_new for other in others)
    plain = {work.enqueue(number).id for number in range(20)}
    assert stored(app) == {first.id, *plain}


def test_keys_are_seen_when_others_add_partitions(
    server: servers.Server, app: Reprieve, work: Task[[int], None]
) -> None:
    first = work.using(key="once").enqueue(1)
    with closing(Reprieve(f"{server.url}?partitions=4")) as other:
        other.registry.add(next(iter(app.registry)))
        asyncio.run(other.store.tally("status", Filter(), 0))
        assert work.using(key="once").enqueue(2).id == first.id
        assert work.using(key="twice").enqueue(2).is_new
        assert not work.using(key="twice").enqueue(2).is_new


def test_threads_that_come_at_once_all_have_their_jobs(app: Reprieve, work: Task[[int], None]) -> None:
    barrier = threading.Barrier(8)

    def enqueue(_: int) -> list[str]:
        barrier.wait()
        return [work.enqueue(number).id for number in range(40)]

    with ThreadPoolExecutor(8) as threads:
        ids = [name for some in threads.map(enqueue, range(8)) for name in some]
    assert len(set(ids)) == len(ids) == 320
    assert stored(app) == set(ids)


def test_a_server_that_was_restarted_is_ridden_out(
    server: servers.Server, app: Reprieve, work: Task[[int], None]
) -> None:
    before = {work.enqueue(number).id for number in range(3)}
    server.kill()
    server.start()
    after = {work.enqueue(number).id for number in range(3)}
    assert stored(app) == before | after


def test_scripts_that_were_forgotten_are_sent_again(
    server: servers.Server, app: Reprieve, work: Task[[int], None]
) -> None:
    first = work.enqueue(1).id
    with server.client() as client:
        client.script_flush()
    assert here(app, work) is None
    second = work.enqueue(2).id
    assert stored(app) == {first, second}


def test_a_reply_that_comes_too_late_is_not_taken_for_the_next(
    server: servers.Server, app: Reprieve, work: Task[[int], None]
) -> None:
    taken = work.using(key="once").enqueue(1).id
    assert here(app, work) is not None

    def interrupt(_: int, __: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with server.client() as client:
            client.client_pause(3_000, all=False)
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(Interrupted):
                here(app, work.using(key="once"))
            client.client_unpause()
    finally:
        signal.signal(signal.SIGALRM, before)
    known = here(app, work)
    assert known is not None
    assert known[0] != taken


def test_a_server_that_fills_up_takes_no_more(server: servers.Server, app: Reprieve, work: Task[[int], None]) -> None:
    ids = {work.enqueue(1).id}
    assert here(app, work) is not None
    with server.client() as client:
        client.config_set("maxmemory", int(client.info("memory")["used_memory"] * 1.05))

    def fill() -> None:
        for number in range(100_000):
            ids.add(work.enqueue(number).id)

    with pytest.raises(StoreFull):
        fill()
    assert ids <= stored(app)


def test_a_closed_store_says_so(app: Reprieve, work: Task[[int], None]) -> None:
    work.enqueue(1)
    store = app.store
    assert isinstance(store, Immediate)
    app.close()
    with pytest.raises(StoreClosed):
        store.enqueue_sync([app.producer.job_of(work.call(1))], 0)
