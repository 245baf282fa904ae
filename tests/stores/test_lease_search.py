"""Searches for the jobs of a session and for jobs by their ids, beside many jobs that other sessions run."""

import pytest

from reprieve.clock import ticks
from reprieve.stores.protocol import Annotation, Filter, Store
from reprieve.testing.conformance.stage import START, Worker, enqueue, new_jobs

LEASED = 5_000
MAX_SECONDS = 0.025
"""For one search; reading all 5,000 leased jobs takes at least 40 ms on SQLite and 100 ms on PostgreSQL."""


@pytest.mark.faults
async def test_leases_of_one_session_and_of_one_job_are_found_without_reading_the_others(any_store: Store) -> None:
    store = any_store
    many = await Worker.open(store, "many", slots=LEASED)
    for _ in range(0, LEASED, 100):
        await enqueue(store, *new_jobs(store, 100))
        await many.exactly(100)
    few = await Worker.open(store, "few")
    await enqueue(store, *new_jobs(store, 3))
    held = await few.exactly(3)
    progress = Annotation(job_id=held[0].id, now=START, session="few", progress=b"1")

    async def best(wanted: Filter) -> float:
        times = []
        for _ in range(10):
            began = ticks()
            page = await store.find(wanted, START)
            assert {(job.session, job.state) for job in page.jobs} == {("few", "running")}
            assert await store.annotate([progress]) == [True]
            times.append(ticks() - began)
        return min(times)

    assert await best(Filter(session="few")) < MAX_SECONDS
    assert await best(Filter(ids=tuple(job.id for job in held))) < MAX_SECONDS
