"""The portal: code without a loop, and threads that wait while it is closed."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest

from reprieve import Reprieve
from reprieve.clock import SystemClock
from reprieve.errors import StoreClosed
from reprieve.portal import Portal

PATIENCE = 30.0


@pytest.fixture
def portal() -> Iterator[Portal]:
    portal = Portal()
    yield portal
    portal.close()


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


def test_a_call_that_waits_raises_when_the_portal_is_closed(portal: Portal) -> None:
    ended: list[str] = []
    started = threading.Barrier(4)

    async def wait() -> None:
        try:
            await asyncio.to_thread(started.wait, PATIENCE)
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("in good order")

    with ThreadPoolExecutor(3) as threads:
        waiting = [threads.submit(lambda: portal.run(wait())) for _ in range(3)]
        started.wait(PATIENCE)
        portal.close()
        for future in waiting:
            with pytest.raises(StoreClosed, match="the app was closed during this call"):
                future.result(PATIENCE)
    assert ended == ["in good order"] * 3


def test_a_closed_portal_opens_anew(portal: Portal) -> None:
    assert portal.run(double(2)) == 4
    portal.close()
    portal.close()
    assert portal.run(double(3)) == 6


def test_what_cancels_itself_is_cancelled(portal: Portal) -> None:
    async def give_up() -> None:
        raise asyncio.CancelledError

    with pytest.raises(CancelledError):
        portal.run(give_up())
    assert portal.run(double(2)) == 4


def test_calls_and_closes_at_the_same_time_all_end(portal: Portal) -> None:
    def call(number: int) -> int | None:
        try:
            return portal.run(double(number))
        except StoreClosed:
            return None

    with ThreadPoolExecutor(4) as threads:
        calls = [threads.submit(call, number) for number in range(200)]
        closes = [threads.submit(portal.close) for _ in range(50)]
        answers = [future.result(PATIENCE) for future in calls]
        for future in closes:
            future.result(PATIENCE)
    assert all(answer in (None, 2 * number) for number, answer in enumerate(answers))


def test_an_app_can_be_closed_while_other_threads_wait_for_a_result() -> None:
    app = Reprieve("sqlite://:memory:")

    @app.task(result_ttl="1h")
    def never() -> None: ...

    job = never.using(delay="1h").enqueue()
    begun = threading.Semaphore(0)

    class Watched(SystemClock):
        def now(self) -> int:
            begun.release()
            return super().now()

    with app.override(clock=Watched()), ThreadPoolExecutor(3) as threads:
        waiting = [threads.submit(job.result, timeout="1h") for _ in range(3)]
        for _ in range(3):
            assert begun.acquire(timeout=PATIENCE)
        app.close()
        for future in waiting:
            with pytest.raises(StoreClosed):
                future.result(PATIENCE)
