"""Two lanes with the same number: what came to them is put aside, and everybody else goes on."""

import pytest
from msgspec.structs import replace

from reprieve import clock
from reprieve.stores.open import diagnostics_for
from reprieve.stores.postgres import PostgresStore
from reprieve.stores.postgres.address import address_of
from reprieve.stores.protocol import LimitUpdate, Subject
from reprieve.testing.conformance.stage import PROGRAM, START, Worker, new_job

OTHER = """
    update uncounted_enqueue set tenant = 'another name' where lowest_id = %s
"""


def rename(url: str, job_id: str) -> None:
    """Let what was enqueued be of a tenant whose number is the same."""
    with address_of(url).connect() as connection:
        assert connection.execute(OTHER, [job_id]).rowcount == 1


async def test_lane_with_the_id_of_another_stops_no_other(url: str, store: PostgresStore) -> None:
    worker = await Worker.open(store)
    first, between = new_job(store), new_job(store, tenant="b")
    await store.enqueue([first], START)
    assert (await worker.one()).id == first.id
    wrong, delayed = new_job(store), new_job(store, due_at=START + 1)
    for job in (wrong, delayed):
        await store.enqueue([job], START)
        rename(url, job.id)
        assert await worker.take(10, at=START + 1) == []
    await store.enqueue([between], START)
    right = new_job(store)
    await store.enqueue([right], START)
    assert {job.id for job in await worker.take(10, at=START + 1)} == {between.id, right.id}
    (found,) = [finding for finding in diagnostics_for(url).examine(clock.now()) if finding.name == "lanes"]
    assert found.level == "bad"
    assert "2 enqueues set aside, of task 'send' and tenant 'another name'" in found.seen


async def test_jobs_among_those_put_aside_are_counted_no_more(url: str, store: PostgresStore) -> None:
    worker = await Worker.open(store)
    jobs = [new_job(store) for _ in range(3)]
    await store.enqueue([jobs[1]], START)
    assert await worker.take(0) == []
    await store.update_limits([], START, PROGRAM)
    await store.enqueue([jobs[0], jobs[2]], START)
    rename(url, jobs[0].id)
    assert await worker.take(10) == []
    after = new_job(store)
    await store.enqueue([after], START)
    assert [job.id for job in await worker.take(10)] == [after.id]


async def test_two_new_lanes_with_one_number_are_both_put_aside(url: str, store: PostgresStore) -> None:
    worker = await Worker.open(store)
    first, second, other = new_job(store), new_job(store), new_job(store, tenant="b")
    await store.enqueue([first], START)
    await store.enqueue([second], START)
    await store.enqueue([other], START)
    rename(url, second.id)
    assert [job.id for job in await worker.take(10)] == [other.id]


@pytest.mark.parametrize("subject", ["queue", "tenant", "task", "dependency"])
async def test_id_of_a_tenant_or_a_limiter_that_another_has_stops_no_other(
    url: str, store: PostgresStore, subject: Subject
) -> None:
    queue = "default" if subject == "tenant" else ""
    await store.update_limits([LimitUpdate(subject=subject, name="mine", queue=queue, permits=None)], START, PROGRAM)
    table = "tenant" if subject == "tenant" else "limiter"
    with address_of(url).connect() as connection:
        connection.execute(f"update {table} set name = 'another name' where name = 'mine'")  # noqa: S608 - one of two
    wrong, right = replace(new_job(store), **{subject: "mine"}), new_job(store)
    for job in (wrong, right):
        await store.enqueue([job], START)
    worker = await Worker.open(store)
    assert [job.id for job in await worker.take(10, queues=("default", "mine"))] == [right.id]
    (found,) = [finding for finding in diagnostics_for(url).examine(clock.now()) if finding.name == "lanes"]
    assert found.level == "bad"
