"""Supervised loops: work beside the jobs goes on after any error, and is logged once."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import cast

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from reprieve.errors import StoreError, StoreReadOnly, StoreRefused
from reprieve.worker import supervised_loop
from reprieve.worker.sessions import open_store
from reprieve.worker.worker_context import WorkerContext

LOCKED = StoreError("locked")


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised_loop, "MIN_PAUSE_SECONDS", 0.0)


async def run_through(steps: Iterable[Exception | None]) -> list[EventDict]:
    """Fail so often, or succeed where there is no error, then end; return what was logged."""
    pending = list(steps)

    async def work() -> AsyncIterator[None]:
        while pending:
            if error := pending.pop(0):
                raise error
            yield

    with capture_logs() as logs:
        async with asyncio.timeout(10):
            await supervised_loop.run_supervised(work, "testing")
    assert not pending
    return logs


async def events_of(steps: Iterable[Exception | None]) -> list[str]:
    """Return what was logged, and at which level."""
    return [f"{line['log_level']}: {line['event']}" for line in await run_through(steps)]


async def test_an_unexpected_error_is_shown_once_and_work_goes_on() -> None:
    assert await events_of([ValueError("oh")] * 3) == ["error: unexpected error"]


async def test_a_store_that_is_away_is_spoken_of_once() -> None:
    assert await events_of([LOCKED] * 3) == ["warning: store unavailable"]


async def test_an_unexpected_error_is_shown_also_while_the_store_is_away() -> None:
    said = await events_of([LOCKED, ValueError("oh"), LOCKED, ValueError("oh"), KeyError("ah")])
    assert said == ["warning: store unavailable", "error: unexpected error", "error: unexpected error"]


async def test_an_unexpected_error_is_shown_with_its_traceback() -> None:
    error = ValueError("oh")
    (line,) = await run_through([error])
    assert line["exc_info"] is error


async def test_the_first_success_ends_an_outage() -> None:
    said = ["warning: store unavailable", "info: store is back"]
    assert await events_of([LOCKED, LOCKED, None]) == said
    assert await events_of([LOCKED, None, None, LOCKED, None]) == said
    assert await events_of([ValueError("oh"), None]) == ["error: unexpected error", "info: works again"]


async def test_loops_that_share_an_outage_speak_of_it_once_together() -> None:
    outage = supervised_loop.Outage()
    first, second = supervised_loop.LoopBackoff("claiming", outage), supervised_loop.LoopBackoff("pruning", outage)
    with capture_logs() as logs:
        await first.wait(LOCKED)
        await second.wait(LOCKED)
        first.succeed()
        await first.wait(LOCKED)
        first.succeed()
        second.succeed()
    assert [(line["event"], line["during"]) for line in logs] == [
        ("store unavailable", "claiming"),
        ("store is back", "pruning"),
    ]


async def test_a_child_leaves_it_to_its_supervisor_to_speak(monkeypatch: pytest.MonkeyPatch) -> None:
    at, told = [100.0], [False]
    monkeypatch.setattr(supervised_loop, "ticks", lambda: at[0])
    outage = supervised_loop.Outage(is_logged=lambda: told[0], silence=5.0)
    backoff = supervised_loop.LoopBackoff("claiming", outage)
    with capture_logs() as logs:
        await backoff.wait(LOCKED)
        told[0], at[0] = True, 200.0
        await backoff.wait(LOCKED)
        # The store is back for the supervisor, and a moment later for the child.
        told[0], at[0] = False, 204.0
        await backoff.wait(LOCKED)
        backoff.succeed()
        assert logs == []
        # A child that alone cannot reach the store says so.
        await backoff.wait(LOCKED)
        at[0] = 210.0
        await backoff.wait(LOCKED)
        backoff.succeed()
    assert [line["event"] for line in logs] == ["store unavailable", "store is back"]


async def test_a_cancelled_loop_ends() -> None:
    async def wait() -> AsyncIterator[None]:
        await asyncio.Event().wait()
        yield

    running = asyncio.create_task(supervised_loop.run_supervised(wait, "testing"))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_store_that_comes_and_goes_is_logged_once_in_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    at = [100.0]
    monkeypatch.setattr(supervised_loop, "ticks", lambda: at[0])
    backoff = supervised_loop.LoopBackoff("claiming", supervised_loop.Outage())
    with capture_logs() as logs:
        for second in range(25):
            at[0] = 100.0 + second
            await backoff.wait(LOCKED)
            backoff.succeed()
        assert [line["event"] for line in logs] == ["store unavailable", "store is back"] * 3
        # An outage that begins in silence is logged when it lasts.
        await backoff.wait(LOCKED)
        at[0] = 131.0
        await backoff.wait(LOCKED)
    assert logs[-1]["event"] == "store unavailable"


class Context:
    """An app whose store cannot be opened at first."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.opened = 0

    @property
    def store(self) -> None:
        if self._errors:
            raise self._errors.pop(0)
        self.opened += 1


async def test_a_worker_waits_for_a_store_that_is_read_only_or_locked_when_it_starts() -> None:
    context = Context(StoreReadOnly("jobs.db cannot be written"), LOCKED)
    with capture_logs() as logs:
        await open_store(cast("WorkerContext", context), supervised_loop.Outage())
    assert context.opened == 1
    assert [line["event"] for line in logs] == ["store unavailable", "store is back"]


async def test_a_worker_does_not_wait_for_a_store_that_only_a_person_can_correct() -> None:
    with pytest.raises(StoreRefused):
        await open_store(cast("WorkerContext", Context(StoreRefused("no such folder"))), supervised_loop.Outage())
