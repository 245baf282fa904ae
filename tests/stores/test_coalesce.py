"""Concurrent enqueues that are combined: whatever goes wrong with one batch, every caller gets a result or an error."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from reprieve.core.ids import make_id
from reprieve.core.job import Job
from reprieve.errors import StoreClosed
from reprieve.stores.calls import Calls
from reprieve.stores.coalesce import Coalescer

NOW = 1_800_000_000_000
BUG = TypeError("a bug in a store")

Send = Callable[[Sequence[Job], int], Awaitable[list[str]]]


def job(number: int) -> Job:
    return Job(
        id=make_id(NOW, number), task="send", queue="mail", payload=b"[[],{}]", created_at=NOW, due_at=NOW, timeout=60.0
    )


class Gate:
    """Sends nothing until it is opened; a batch with an offending job raises an error that no store should raise."""

    def __init__(self, *offending: Job) -> None:
        self.offending = {one.id for one in offending}
        self.opened = asyncio.Event()
        self.batches: list[list[str]] = []

    async def send(self, jobs: Sequence[Job], now: int) -> list[str]:
        assert now == NOW
        ids = [one.id for one in jobs]
        self.batches.append(ids)
        await self.opened.wait()
        if not self.offending.isdisjoint(ids):
            raise BUG
        return ids


async def test_callers_that_wait_behind_an_unexpected_error_are_sent() -> None:
    first, *later = [job(number) for number in range(4)]
    gate = Gate(first)
    coalescer = Coalescer(gate.send, Calls())
    failing = coalescer.enqueue([first], NOW)
    await asyncio.sleep(0)
    waiting = [coalescer.enqueue([one], NOW) for one in later]
    gate.opened.set()
    with pytest.raises(TypeError, match="a bug in a store"):
        await failing
    async with asyncio.timeout(60):
        assert await asyncio.gather(*waiting) == [[one.id] for one in later]


async def test_unexpected_error_of_one_caller_is_not_that_of_the_others_in_its_batch() -> None:
    first, offending, other = [job(number) for number in range(3)]
    gate = Gate(offending)
    coalescer = Coalescer(gate.send, Calls())
    under_way = coalescer.enqueue([first], NOW)
    await asyncio.sleep(0)
    batch = [coalescer.enqueue([one], NOW) for one in (offending, other)]
    gate.opened.set()
    async with asyncio.timeout(60):
        assert await under_way == [first.id]
        assert await asyncio.gather(*batch, return_exceptions=True) == [BUG, [other.id]]


@pytest.mark.parametrize("has_begun", [True, False])
async def test_callers_behind_a_call_that_is_cancelled_get_an_error_and_later_ones_are_sent(*, has_begun: bool) -> None:
    gate, calls = Gate(), Calls()
    coalescer = Coalescer(gate.send, calls)
    before = asyncio.all_tasks()
    waiting = [coalescer.enqueue([job(0)], NOW)]
    if has_begun:
        await asyncio.sleep(0)
    waiting.append(coalescer.enqueue([job(1)], NOW))
    for sender in asyncio.all_tasks() - before:
        sender.cancel()
    async with asyncio.timeout(60):
        for ids in waiting:
            with pytest.raises(StoreClosed, match="the enqueue was interrupted"):
                await ids
        gate.opened.set()
        assert await coalescer.enqueue([job(2)], NOW) == [job(2).id]
        await asyncio.sleep(0)
    assert calls.under_way == 0
