"""Expired keys: those of kept jobs are not read in every prune, and those of deleted jobs go all the same."""

from reprieve.stores.protocol import Filter, Retention, Store
from reprieve.stores.sql.expired_keys import SWEEP_INTERVAL_MS, KeyPosition, KeySweep
from reprieve.testing.conformance.stage import (
    HOUR,
    MINUTE,
    SECOND,
    START,
    Worker,
    enqueue,
    find_all,
    kill,
    new_job,
    succeed,
)


async def test_keys_of_deleted_jobs_go_although_many_of_kept_jobs_expired_before(any_store: Store) -> None:
    worker = await Worker.open(any_store)
    for start in range(0, 2_500, 100):
        kept = [new_job(any_store, key=f"kept-{start + number}", key_ttl=1.0) for number in range(100)]
        await enqueue(any_store, *kept)
        await worker.settle(*map(kill, await worker.exactly(100)))
    await enqueue(any_store, new_job(any_store, key="gone", key_ttl=60.0))
    await worker.settle(succeed(await worker.one()))
    late = START + 2 * MINUTE
    pruned = [await any_store.prune(Retention(now=late, succeeded_for=0.0)) for _ in range(5)]
    assert sum(one.keys for one in pruned) == 1
    first = (await any_store.find(Filter(statuses=frozenset({"dead"})), late, limit=1)).jobs[0]
    again = new_job(any_store, late, key=first.key)
    assert await enqueue(any_store, again, at=late) == [first.id]
    await any_store.prune(Retention(now=late, archived=(first,)))
    assert await enqueue(any_store, again, at=late) == [again.id], "a key that is not swept yet is taken over"


async def test_key_of_a_job_that_is_deleted_after_its_key_expired_goes_within_two_hours(any_store: Store) -> None:
    await enqueue(any_store, new_job(any_store, key="k", key_ttl=1.0))
    worker = await Worker.open(any_store)
    await worker.settle(kill(await worker.one()))
    assert (await any_store.prune(Retention(now=START + MINUTE))).keys == 0
    (dead,) = await find_all(any_store, Filter(statuses=frozenset({"dead"})))
    await any_store.prune(Retention(now=START + MINUTE, archived=(dead,)))
    assert (await any_store.prune(Retention(now=START + 2 * HOUR))).keys == 1


def test_sweep_reads_on_where_it_was_and_begins_again_after_an_hour() -> None:
    sweep, first, second = KeySweep(), KeyPosition(START, b"a"), KeyPosition(START, b"b")
    assert sweep.position(START) == KeyPosition()
    sweep.advance(first)
    assert sweep.position(START) == KeyPosition(), "a transaction that was not committed is repeated"
    sweep.advance(second)
    sweep.confirm()
    assert sweep.position(START + SECOND) == second
    assert sweep.position(START + SWEEP_INTERVAL_MS) == KeyPosition()
    sweep.advance(first)
    sweep.confirm()
    assert sweep.position(START + SWEEP_INTERVAL_MS + SECOND) == first
    assert sweep.position(START - HOUR) == KeyPosition(), "a clock that was set back does not stop it"
