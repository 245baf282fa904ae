"""Persistence: what goes on beside the jobs goes on after any error, and speaks once."""

import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from reprieve.errors import StoreError
from reprieve.worker import persist

LOCKED = StoreError("locked")


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persist, "FIRST_PAUSE", 0.0)


async def persist_through(steps: Iterable[Exception | None]) -> list[EventDict]:
    """Fail so often, or do well where there is no error, then end; answer what was logged."""
    pending = list(steps)

    async def work() -> AsyncIterator[None]:
        while pending:
            if error := pending.pop(0):
                raise error
            yield

    with capture_logs() as logs:
        async with asyncio.timeout(10):
            await persist.persist(work, "testing")
    assert not pending
    return logs


async def events_of(steps: Iterable[Exception | None]) -> list[str]:
    """Return what was logged, and at which level."""
    return [f"{line['log_level']}: {line['event']}" for line in await persist_through(steps)]


async def test_an_unexpected_error_is_shown_once_and_work_goes_on() -> None:
    assert await events_of([ValueError("oh")] * 3) == ["error: unexpected error"]


async def test_a_store_that_is_away_is_spoken_of_once() -> None:
    assert await events_of([LOCKED] * 3) == ["warning: store unavailable"]


async def test_an_unexpected_error_is_shown_also_while_the_store_is_away() -> None:
    said = await events_of([LOCKED, ValueError("oh"), LOCKED, ValueError("oh"), KeyError("ah")])
    assert said == ["warning: store unavailable", "error: unexpected error", "error: unexpected error"]


async def test_an_unexpected_error_is_shown_with_its_traceback() -> None:
    error = ValueError("oh")
    (line,) = await persist_through([error])
    assert line["exc_info"] is error


async def test_all_is_well_again_as_soon_as_something_was_done_well() -> None:
    said = ["warning: store unavailable", "info: store is back"]
    assert await events_of([LOCKED, LOCKED, None]) == said
    assert await events_of([LOCKED, None, None, LOCKED, None]) == said * 2
    assert await events_of([ValueError("oh"), None]) == ["error: unexpected error", "info: works again"]


async def test_loops_that_share_an_outage_speak_of_it_once_together() -> None:
    outage = persist.Outage()
    first, second = persist.Patience("claiming", outage), persist.Patience("pruning", outage)
    with capture_logs() as logs:
        await first.wait(LOCKED)
        await second.wait(LOCKED)
        first.end()
        await first.wait(LOCKED)
        first.end()
        second.end()
    assert [(line["event"], line["during"]) for line in logs] == [
        ("store unavailable", "claiming"),
        ("store is back", "pruning"),
    ]


async def test_a_child_leaves_it_to_its_supervisor_to_speak(monkeypatch: pytest.MonkeyPatch) -> None:
    at, told = [100.0], [False]
    monkeypatch.setattr(persist, "ticks", lambda: at[0])
    outage = persist.Outage(is_told=lambda: told[0], told_within=5.0)
    patience = persist.Patience("claiming", outage)
    with capture_logs() as logs:
        await patience.wait(LOCKED)
        told[0], at[0] = True, 200.0
        await patience.wait(LOCKED)
        # The store is back for the supervisor, and a moment later for the child.
        told[0], at[0] = False, 204.0
        await patience.wait(LOCKED)
        patience.end()
        assert logs == []
        # A child that alone cannot reach the store says so.
        await patience.wait(LOCKED)
        at[0] = 210.0
        await patience.wait(LOCKED)
        patience.end()
    assert [line["event"] for line in logs] == ["store unavailable", "store is back"]


async def test_who_stops_a_keeper_is_obeyed() -> None:
    async def wait() -> AsyncIterator[None]:
        await asyncio.Event().wait()
        yield

    keeper = asyncio.create_task(persist.persist(wait, "testing"))
    await asyncio.sleep(0)
    keeper.cancel()
    with pytest.raises(asyncio.CancelledError):
        await keeper
