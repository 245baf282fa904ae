"""Lifespans that take too long, block, or fail are bounded, and logged in one line each."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from reprieve.errors import LifespanFailed
from reprieve.worker import lifespans as module
from reprieve.worker.lifespans import START_FAILED_STATUS, Lifespans


@asynccontextmanager
async def hanging(*, at_start: bool) -> AsyncIterator[None]:
    if at_start:
        await asyncio.Event().wait()
    yield
    await asyncio.Event().wait()


async def test_a_start_that_hangs_is_given_up_and_shows_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLOW_AFTER_SECONDS", 0.01)
    with capture_logs() as lines, pytest.raises(LifespanFailed, match=r"it did not start within 0\.2 s"):
        await Lifespans(start_timeout=0.2).start(hanging(at_start=True))
    assert [line["event"] for line in lines] == ["lifespan is slow to start", "lifespan failed"]
    assert "await asyncio.Event().wait()" in lines[1]["traceback"]


async def test_a_stop_that_hangs_or_raises_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MIN_STOP_SECONDS", 0.05)

    @asynccontextmanager
    async def broken() -> AsyncIterator[None]:
        yield
        message = "token=hunter2 is stale"
        raise ConnectionError(message)

    with capture_logs() as lines:
        for entered in (hanging(at_start=False), broken()):
            lifespans = Lifespans()
            await lifespans.start(entered)
            await lifespans.stop(0)
    stopped = [line["errorReason"] for line in lines if line["event"] == "lifespan did not stop"]
    assert stopped == ["it did not stop within 0.05 s", "token=*** is stale"]


async def test_it_is_entered_and_left_by_the_same_task() -> None:
    tasks: list[asyncio.Task[object] | None] = []

    @asynccontextmanager
    async def noting() -> AsyncIterator[None]:
        tasks.append(asyncio.current_task())
        yield
        tasks.append(asyncio.current_task())

    lifespans = Lifespans()
    await lifespans.start(noting())
    await lifespans.stop(1)
    assert tasks[0] is tasks[1] is asyncio.current_task()


BLOCKED = """
import asyncio, threading
from contextlib import asynccontextmanager
from reprieve.worker import lifespans, logs

logs.configure(logs.Logs(style="json"))
lifespans.BLOCKED_AFTER_SECONDS = 0.1

@asynccontextmanager
async def blocking():
    threading.Event().wait(600)
    yield

asyncio.run(lifespans.Lifespans(start_timeout=0.1).start(blocking()))
"""


def test_a_start_that_blocks_its_loop_ends_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKED], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == START_FAILED_STATUS
    assert "it blocked the event loop for more than 0.1 s; await long calls" in done.stderr
