"""Many changes in one call: they are applied some at a time, and claims go on in between."""

import asyncio

import pytest

from reprieve.clock import ticks
from reprieve.core import change
from reprieve.core.change import Change
from reprieve.stores.protocol import ChangeResult, Store
from reprieve.testing.conformance.stage import OPERATOR, START, Worker, enqueue, new_jobs

MANY = 3_000
MAX_SECONDS = 0.05


async def claims_beside(store: Store, worker: Worker, changes: list[Change]) -> tuple[list[float], list[ChangeResult]]:
    """Apply changes, and claim until they are applied; return how long each claim took, and the results."""
    applying = asyncio.ensure_future(store.apply(changes, START))
    times = []
    while not applying.done():
        began = ticks()
        await worker.take(1)
        if not applying.done():
            times.append(ticks() - began)
    return times, await applying


async def cancels(store: Store) -> list[Change]:
    jobs = new_jobs(store, MANY, queue="bulk")
    for start in range(0, MANY, 500):
        await enqueue(store, *jobs[start : start + 500])
    return [change.cancel(job, OPERATOR, START) for job in jobs]


async def test_claims_go_on_while_many_changes_are_applied(any_store: Store) -> None:
    changes = await cancels(any_store)
    worker = await Worker.open(any_store)
    for result in ("applied", "already"):
        times, results = await claims_beside(any_store, worker, changes)
        assert results == [result] * MANY
        assert len(times) > 5, "claims ended before the changes were all applied"


@pytest.mark.faults
async def test_claim_waits_for_a_part_of_many_changes_at_most(any_store: Store) -> None:
    changes = await cancels(any_store)
    worker = await Worker.open(any_store)
    for _ in range(2):
        times, _ = await claims_beside(any_store, worker, changes)
        assert sorted(times)[int(0.95 * len(times))] < MAX_SECONDS
