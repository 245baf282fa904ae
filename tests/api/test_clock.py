"""The clock of a server: what it says counts, whatever the machine thinks that the time is."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from uuid import uuid4

import psycopg
import pytest

from reprieve import Reprieve, Task, clock
from reprieve.clock import ServerClock
from reprieve.errors import StoreUnreachable
from reprieve.testing import FakeClock
from tests.servers import redis as servers
from tests.servers.postgres import drop_schema

HOUR = 3_600_000
AHEAD = 7 * HOUR * 1_000


class Server:
    """A server far ahead of us, in virtual time: a call takes a while before and after it reads its clock."""

    def __init__(self) -> None:
        self.ahead = AHEAD
        self.steady = 1_000_000_000
        """The steady clock of both machines, in microseconds."""
        self.before = self.after = 0.0
        self.asked = self.answered = 0
        self.is_away = self.is_silent = False

    async def ask(self) -> int:
        self.asked += 1
        if self.is_away:
            message = "there is no server"
            raise StoreUnreachable(message)
        if self.is_silent:
            await asyncio.Event().wait()
        self.let_pass(self.before)
        said = self.time()
        self.let_pass(self.after)
        self.answered += 1
        return said

    def time(self) -> int:
        return self.steady + self.ahead

    def let_pass(self, seconds: float) -> None:
        self.steady += int(seconds * 1_000_000)


def wrong(clock: ServerClock, server: Server) -> tuple[float, float]:
    """Return by how many milliseconds what the clock says is too early, and too late; neither may be negative."""
    before = server.time()
    now, following = clock.now(), clock.next()
    return server.time() / 1_000 - now, following - before / 1_000


async def retune(clock: ServerClock, server: Server) -> None:
    """Tune a clock that knows something already, and wait until it has heard the answer."""
    answered = server.answered
    await clock.tune()
    while server.answered == answered:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0)
    await asyncio.sleep(0)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr(clock, "_microseconds", lambda: server.steady)
    return server


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "TUNE_EVERY_SECONDS", 0.0)
    monkeypatch.setattr(clock, "FIRST_READS", 1)


async def test_a_clock_says_what_has_surely_come_and_what_has_surely_not_passed(server: Server) -> None:
    for server.before, server.after in ((0.0, 0.03), (0.03, 0.0), (0.01, 0.02)):
        heard = ServerClock(server.ask)
        await heard.tune()
        early, late = wrong(heard, server)
        assert 0 <= early <= 31
        assert 0 <= late <= 31


async def test_quick_answers_make_up_for_slow_ones(server: Server, always: None) -> None:
    heard = ServerClock(server.ask)
    server.before = server.after = 0.1
    await heard.tune()
    assert min(wrong(heard, server)) > 90
    server.before = server.after = 0.0
    for _ in range(20):
        await retune(heard, server)
    assert max(wrong(heard, server)) <= 2
    server.before = server.after = 0.1
    await retune(heard, server)
    assert max(wrong(heard, server)) <= 2
    assert min(wrong(heard, server)) >= 0


async def test_a_server_that_was_set_anew_is_believed(server: Server, always: None) -> None:
    heard = ServerClock(server.ask)
    await heard.tune()
    server.ahead -= HOUR * 1_000
    await retune(heard, server)
    early, late = wrong(heard, server)
    assert 0 <= early <= 1
    assert 0 <= late <= 1


async def test_a_server_is_asked_once_in_a_while_by_all_together(server: Server) -> None:
    heard = ServerClock(server.ask)
    assert heard.is_stale
    server.after = 0.01
    await asyncio.gather(*(heard.tune() for _ in range(100)))
    await heard.tune()
    while server.answered < server.asked:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0)
    assert server.asked <= clock.FIRST_READS
    assert not heard.is_stale


async def test_nothing_is_known_before_a_server_answers(server: Server) -> None:
    heard = ServerClock(server.ask)
    server.is_away = True
    for _ in range(2):
        with pytest.raises(StoreUnreachable):
            await heard.tune()
        before = clock.now()
        assert before <= heard.now() <= heard.next() <= clock.now() + 1
        assert heard.is_stale
    server.is_away = False
    await heard.tune()
    assert max(wrong(heard, server)) <= 1


async def test_what_is_known_does_while_a_server_does_not_answer(server: Server, always: None) -> None:
    heard = ServerClock(server.ask)
    await heard.tune()
    server.is_away = True
    await heard.tune()
    await asyncio.sleep(0)
    server.is_away, server.is_silent = False, True
    # This would never end if it waited for the server.
    await heard.tune()
    assert max(wrong(heard, server)) <= 1
    await heard.close()


async def test_an_unexpected_error_is_shown(server: Server, always: None) -> None:
    heard, shown = ServerClock(server.ask), list[object]()
    await heard.tune()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: shown.append(context["exception"]))
    server.is_away = True
    await heard.tune()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert shown == []
    server.is_away, server.ahead = False, None  # type: ignore[assignment]  # nothing that could be added to
    await heard.tune()
    while not shown:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0)
    assert isinstance(shown[0], TypeError)


async def test_a_clock_that_is_closed_asks_nothing_more(server: Server, always: None) -> None:
    heard = ServerClock(server.ask)
    await heard.tune()
    server.is_silent = True
    await heard.tune()
    await asyncio.sleep(0)
    await heard.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_what_was_heard_long_ago_counts_no_more(server: Server) -> None:
    heard = ServerClock(server.ask)
    await heard.tune()
    server.let_pass(clock.VALID_SECONDS + 1)
    before = clock.now()
    assert before <= heard.now() <= clock.now()
    assert heard.is_stale


@pytest.fixture(params=["postgres", "redis"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with ExitStack() as stack:
        if request.param == "redis":
            yield stack.enter_context(servers.own()).url
            return
        server: str = request.getfixturevalue("postgres_url")
        schema = f"clock_{uuid4().hex[:12]}"
        yield f"{server}?schema={schema}"
        drop_schema(server, schema)


@pytest.fixture
def app(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reprieve]:
    """Return an app on a machine whose clock is an hour ahead of the server's."""
    right = time.time_ns  # noqa: TID251 - the machine's own, which is about to be wrong
    monkeypatch.setattr(time, "time_ns", lambda: right() + HOUR * 1_000_000)
    with closing(Reprieve(url)) as app:
        yield app


@pytest.fixture
def work(app: Reprieve) -> Task[[], None]:
    @app.task
    def work() -> None: ...

    return work


def right() -> int:
    """Return the time of the server, which is on this machine."""
    return clock.now() - HOUR


def test_jobs_are_made_by_the_time_of_the_server(app: Reprieve, work: Task[[], None]) -> None:
    before = right()
    one = work.enqueue()
    many = app.enqueue_many([work.call(), work.using(delay="1m").call()])
    *created, due = [handle.fetch() for handle in (one, *many)]
    after = right()
    for job in created:
        assert before - 1_000 < job.created_at <= after
        assert (job.due_at, job.waiting_for) == (job.created_at, "turn")
    assert before + 60_000 <= due.due_at < after + 61_000


async def test_jobs_are_made_by_the_time_of_the_server_in_a_loop(app: Reprieve, work: Task[[], None]) -> None:
    before = right()
    one = await work.aenqueue()
    job = await one.afetch()
    assert before - 1_000 < job.created_at <= right()
    await app.aclose()
    (many,) = await app.aenqueue_many([work.call()])
    job = await many.afetch()
    assert before - 1_000 < job.created_at <= right()
    await app.aclose()


async def test_people_act_by_the_time_of_the_server(app: Reprieve, work: Task[[], None]) -> None:
    one = await work.using(delay="1h").aenqueue()
    await app.aclose()
    before = right()
    await one.acancel(by="ann", reason="not wanted")
    job = await one.afetch()
    assert job.finished_at is not None
    assert before - 1_000 < job.finished_at <= right()
    await app.aclose()


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_jobs_in_a_transaction_are_made_by_the_time_of_the_server(
    app: Reprieve, work: Task[[], None], postgres_url: str
) -> None:
    before = right()
    with psycopg.connect(postgres_url) as connection:
        one = work.using(connection=connection).enqueue()
    assert before - 1_000 < one.fetch().created_at <= right()


def test_a_clock_that_was_handed_in_goes_before_the_servers(url: str) -> None:
    mine = FakeClock()
    with closing(Reprieve(url, clock=mine)) as app:

        @app.task
        def work() -> None: ...

        assert work.enqueue().fetch().created_at == mine.now()


@pytest.mark.parametrize("way", ["enqueue", "aenqueue", "enqueue_many", "aenqueue_many"])
@pytest.mark.parametrize("wait", ["delay", "at"])
async def test_job_with_a_wait_is_dated_by_a_clock_that_was_set_back_just_before(
    server: Server, way: str, wait: str
) -> None:
    app, server.ahead = Reprieve("sqlite://:memory:"), 1_760_000_000_000_000

    @app.task(name="work")
    def work() -> None: ...

    async with app:
        with app.override(clock=ServerClock(server.ask)):
            await work.aenqueue()
            server.ahead -= HOUR * 1_000
            server.let_pass(clock.RECENT_SECONDS)
            due_at = server.time() // 1_000 + 5_000
            at = datetime.fromtimestamp(due_at / 1_000, UTC)
            task = work.using(delay=5) if wait == "delay" else work.using(at=at)
            match way:
                case "enqueue":
                    handle = await asyncio.to_thread(task.enqueue)
                case "aenqueue":
                    handle = await task.aenqueue()
                case "enqueue_many":
                    (handle,) = await asyncio.to_thread(app.enqueue_many, [task.call()])
                case _:
                    (handle,) = await app.aenqueue_many([task.call()])
            job = await handle.afetch()
    assert due_at <= job.due_at <= due_at + 1


async def test_many_jobs_with_a_wait_share_a_reading_of_the_time(server: Server) -> None:
    heard = ServerClock(server.ask)
    await heard.tune()
    asked = server.asked
    for _ in range(10):
        await heard.tune(waits=True)
    assert server.asked == asked
    server.let_pass(clock.RECENT_SECONDS)
    await asyncio.gather(*(heard.tune(waits=True) for _ in range(10)))
    assert server.asked == asked + 1


async def test_job_with_a_wait_is_refused_without_the_time(server: Server) -> None:
    heard = ServerClock(server.ask)
    await heard.tune()
    server.let_pass(clock.RECENT_SECONDS)
    server.is_away = True
    with pytest.raises(StoreUnreachable):
        await heard.tune(waits=True)
