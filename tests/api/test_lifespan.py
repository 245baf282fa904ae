"""Lifespans: what is opened once before jobs run, found by its type, and closed after them."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Self

import pytest

from reprieve import Policy, Reprieve
from reprieve.errors import InvalidLifespan, ResourceUnavailable
from reprieve.testing import FakeClock, adrain, drain, inline


class Pool:
    """Something that is open for a while."""

    is_open = True


class SmtpPool(Pool): ...


class HttpPool(Pool): ...


@pytest.fixture
def app() -> Iterator[Reprieve]:
    with Reprieve("sqlite://:memory:", clock=FakeClock()) as app:
        yield app


def add(app: Reprieve, resource: object, said: list[str] | None = None, name: str = "") -> None:
    """Give an app a lifespan that yields a resource, and writes down when it begins and ends."""
    notes = [] if said is None else said

    @app.lifespan
    async def resources() -> AsyncIterator[object]:
        notes.append(f"open {name}")
        yield resource
        notes.append(f"close {name}")


async def test_a_resource_is_found_by_its_type_while_the_lifespan_lasts(app: Reprieve) -> None:
    pool = SmtpPool()
    add(app, pool)
    async with app.lifespan_context():
        assert app.resource(SmtpPool) is pool
        assert app.resource(Pool) is pool
        assert await asyncio.to_thread(app.resource, SmtpPool) is pool
        assert await asyncio.create_task(asyncio.to_thread(lambda: app.resource(SmtpPool))) is pool
    with pytest.raises(ResourceUnavailable, match="have not been entered"):
        app.resource(SmtpPool)


async def test_a_thread_without_a_context_finds_it_too(app: Reprieve) -> None:
    add(app, SmtpPool())
    found: list[object] = []
    async with app.lifespan_context():
        thread = threading.Thread(target=lambda: found.append(app.resource(SmtpPool)))
        thread.start()
        thread.join()
    assert len(found) == 1


async def test_lifespans_are_entered_in_order_and_left_in_reverse(app: Reprieve) -> None:
    said: list[str] = []
    add(app, SmtpPool(), said, "smtp")
    add(app, HttpPool(), said, "http")
    add(app, None, said, "nothing")
    async with app.lifespan_context():
        assert app.resource(HttpPool).is_open
    assert said == ["open smtp", "open http", "open nothing", "close nothing", "close http", "close smtp"]


async def test_a_lifespan_can_use_the_resources_of_those_before_it(app: Reprieve) -> None:
    add(app, SmtpPool())
    found: list[Pool] = []

    @app.lifespan
    @asynccontextmanager
    async def more() -> AsyncIterator[None]:
        found.append(app.resource(SmtpPool))
        yield

    async with app.lifespan_context():
        assert len(found) == 1


async def test_the_exact_class_goes_before_its_subclasses(app: Reprieve) -> None:
    add(app, pool := Pool())
    add(app, SmtpPool())
    async with app.lifespan_context():
        assert app.resource(Pool) is pool


async def test_what_is_missing_or_ambiguous_is_told_with_what_there_is(app: Reprieve) -> None:
    with pytest.raises(ResourceUnavailable, match="this app has no lifespan; write `async def resources"):
        app.resource(Pool)
    add(app, SmtpPool())
    add(app, HttpPool())
    with pytest.raises(ResourceUnavailable, match=r"async with app\.lifespan_context"):
        app.resource(Pool)
    async with app.lifespan_context():
        with pytest.raises(ResourceUnavailable, match="2 resources are a Pool; the lifespans yield SmtpPool, HttpPool"):
            app.resource(Pool)
        with pytest.raises(ResourceUnavailable, match=r"no resource is a FakeClock; .* yield SmtpPool, HttpPool"):
            app.resource(FakeClock)


async def test_a_block_inside_of_another_shares_its_resources(app: Reprieve) -> None:
    said: list[str] = []
    add(app, SmtpPool(), said)
    async with app.lifespan_context():
        async with app.lifespan_context():
            assert said == ["open "]
        assert app.resource(SmtpPool).is_open
    assert said == ["open ", "close "]


async def test_blocks_that_begin_together_enter_it_once(app: Reprieve) -> None:
    said: list[str] = []
    add(app, SmtpPool(), said)

    async def use() -> Pool:
        async with app.lifespan_context():
            await asyncio.sleep(0)
            return app.resource(SmtpPool)

    first, second = await asyncio.gather(use(), use())
    assert first is second
    assert said == ["open ", "close "]


async def test_what_was_entered_is_left_when_a_later_lifespan_fails(app: Reprieve) -> None:
    said: list[str] = []
    add(app, SmtpPool(), said)

    @app.lifespan
    async def broken() -> AsyncIterator[None]:
        if said:
            raise ConnectionRefusedError
        yield

    with pytest.raises(ConnectionRefusedError):
        async with app.lifespan_context():
            pytest.fail("it was entered")
    assert said == ["open ", "close "]
    with pytest.raises(ResourceUnavailable):
        app.resource(SmtpPool)


async def test_a_lifespan_learns_what_ended_its_block(app: Reprieve) -> None:
    ended: list[str] = []

    @app.lifespan
    async def transaction() -> AsyncIterator[None]:
        try:
            yield
        except LookupError as error:
            ended.append(f"rolled back: {error}")
            raise
        else:
            ended.append("committed")

    async with app.lifespan_context():
        pass
    with pytest.raises(LookupError):
        async with app.lifespan_context():
            raise LookupError("no such order")  # noqa: EM101, TRY003 - what a block may raise
    assert ended == ["committed", "rolled back: no such order"]


def test_any_async_context_manager_will_do(app: Reprieve) -> None:
    class Client:
        def __init__(self) -> None:
            self.is_open = False

        async def __aenter__(self) -> Self:
            self.is_open = True
            return self

        async def __aexit__(self, *_: object) -> None:
            self.is_open = False

    app.lifespan(Client)

    @app.task(result_ttl="1h")
    async def look() -> bool:
        return app.resource(Client).is_open

    job = look.enqueue()
    drain(app)
    assert job.result() is True


async def returns() -> None: ...


def is_plain() -> Iterator[int]:
    yield 1


async def takes(request: object) -> AsyncIterator[object]:
    yield request


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (returns, "lifespan returns returns instead of yielding"),
        (is_plain, "lifespan is_plain is not async"),
        (takes, r"lifespan takes takes arguments \(request\)"),
        (42, "42 is not a function"),
    ],
)
def test_what_cannot_be_a_lifespan_is_refused_where_it_is_declared(app: Reprieve, wrong: Any, message: str) -> None:  # noqa: ANN401 - whatever people try
    with pytest.raises(InvalidLifespan, match=message):
        app.lifespan(wrong)


async def test_a_function_that_returns_no_context_manager_is_told_when_it_is_entered(app: Reprieve) -> None:
    app.lifespan(lambda: 42)  # type: ignore[type-var]  # that is the mistake
    with pytest.raises(InvalidLifespan, match="returned a int, not an async context manager"):
        await app.lifespan_context().__aenter__()


@pytest.mark.parametrize("executor", ["async", "thread", "process"])
def test_a_drain_enters_it_for_tasks_of_every_kind(app: Reprieve, executor: str) -> None:
    said: list[str] = []
    add(app, SmtpPool(), said)

    def plain() -> None:
        said.append(type(app.resource(Pool)).__name__)

    async def loops() -> None:
        plain()

    task = app.task(loops) if executor == "async" else app.task(executor=executor)(plain)  # type: ignore[call-overload]  # the words above
    task.enqueue()
    task.enqueue()
    assert drain(app).succeeded == 2
    assert said == ["open ", "SmtpPool", "SmtpPool", "close "]


async def test_a_drain_inside_of_a_block_uses_the_resources_of_the_block(app: Reprieve) -> None:
    said: list[str] = []
    add(app, SmtpPool(), said)

    @app.task
    async def send() -> None:
        said.append("send")

    async with app.lifespan_context():
        await send.aenqueue()
        await adrain(app)
        await send.aenqueue()
        await adrain(app)
    assert said == ["open ", "send", "send", "close "]


async def test_inline_in_another_loop_has_resources_of_its_own(app: Reprieve) -> None:
    class Bound:
        def __init__(self) -> None:
            self.loop = asyncio.get_running_loop()

    loops: list[asyncio.AbstractEventLoop] = []

    @app.lifespan
    async def resources() -> AsyncIterator[Bound]:
        yield Bound()

    @app.task(policy=Policy(max_attempts=1))
    async def send() -> None:
        loops.append(app.resource(Bound).loop)
        assert loops[-1] is asyncio.get_running_loop()

    async with app.lifespan_context():
        with inline(app, raises=True):
            await send.aenqueue()
            # Without await it runs in a loop of its own.
            send.enqueue()
            assert app.resource(Bound).loop is asyncio.get_running_loop()
    assert len(set(map(id, loops))) == 2


def test_a_lifespan_that_fails_fails_the_drain(app: Reprieve) -> None:
    @app.lifespan
    async def broken() -> AsyncIterator[None]:
        if not app.registry.find("nothing"):
            raise ConnectionRefusedError
        yield

    with pytest.raises(ConnectionRefusedError):
        drain(app)
