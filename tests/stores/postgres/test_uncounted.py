"""Jobs are found before any claim has counted them, however many there are."""

from reprieve.stores.postgres import PostgresStore
from reprieve.stores.postgres.find import MAX_UNCOUNTED
from reprieve.stores.protocol import Filter
from reprieve.testing.conformance.stage import HOUR, START, Worker, enqueue, find_all, new_job

TENANTS = 400
"""Each call adds a row that is not counted for each of them."""


async def test_lanes_and_queues_behind_thousands_of_uncounted_enqueues_are_found(store: PostgresStore) -> None:
    for _ in range(MAX_UNCOUNTED // TENANTS + 1):
        await enqueue(store, *(new_job(store, tenant=f"t{number}") for number in range(TENANTS)))
    last = [new_job(store, tenant="last"), new_job(store, queue="other", tenant="last")]
    later = [new_job(store, queue="third", due_at=START + HOUR)]
    await enqueue(store, *last, *later)
    found = await find_all(store, Filter(tenants=("last",), statuses=frozenset({"ready"})), START + 1)
    assert {job.id for job in found} == {job.id for job in last}
    found = await find_all(store, Filter(statuses=frozenset({"scheduled"})), START + 1)
    assert [job.id for job in found] == [job.id for job in later]
    worker = await Worker.open(store)
    assert await worker.take(1)
