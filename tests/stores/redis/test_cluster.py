"""A Cluster of three: the whole suite in one partition, and in four whatever does not speak of the order among all."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator

import pytest
import redis
from msgspec.structs import replace

from reprieve.clock import ticks
from reprieve.core import change
from reprieve.core.ids import make_id, partition_of
from reprieve.errors import ForeignStore, ReprieveError, StoreError, StoreLocked, ValidationError
from reprieve.stores.capabilities import FaultPoint
from reprieve.stores.checked import checked
from reprieve.stores.paginate import all_limit_states
from reprieve.stores.protocol import EntryWrite, EventQuery, Filter, LimitUpdate, Store
from reprieve.stores.redis import RedisStore, merged_events
from reprieve.stores.redis.limit_shares import divide
from reprieve.stores.redis.tags import tag_of
from reprieve.testing.conformance import CHECKS
from reprieve.testing.conformance.stage import (
    OPERATOR,
    PROGRAM,
    START,
    Worker,
    enqueue,
    enqueued,
    find_all,
    new_job,
    new_jobs,
    succeed,
    update_limits,
)
from tests.servers import redis as servers
from tests.stores.redis.load import Load
from tests.stores.redis.recount import complaints

ORDER = {
    "queues_are_served_in_order",
    "jobs_wait_for_a_limit_in_their_order",
    "better_priority_comes_first",
    "equal_priorities_are_served_oldest_first",
    "equal_lanes_are_served_in_turn",
    "every_sixteenth_pick_takes_what_was_served_longest_ago",
    "jobs_are_taken_in_the_order_in_which_they_became_ready",
    "jobs_that_became_ready_together_are_taken_by_id",
    "job_given_back_before_its_start_keeps_its_place",
    "job_given_back_after_its_start_goes_behind_those_that_wait",
    "job_that_is_cancelled_in_the_middle_changes_no_order",
    "excluded_jobs_stay_in_their_order",
    "lane_comes_back_with_its_order_and_counts",
    "jobs_with_an_sla_are_taken_by_it",
    "jobs_with_the_same_sla_are_taken_by_id",
    "sla_orders_jobs_that_wait_again",
    "jobs_with_an_sla_come_before_others_of_their_priority",
    "jobs_with_an_sla_do_not_starve_others",
    "limit_state_says_what_is_ready_and_since_when",
    "limit_state_has_no_oldest_job_with_an_sla",
}
"""Who comes first is decided in each partition by itself."""

FAIRNESS = {
    "equal_tenants_take_turns",
    "equal_tenants_take_turns_when_nothing_runs",
    "tenant_with_fewest_slots_is_first",
    "slots_are_shared_by_weight",
    "new_weight_counts_for_backlog_at_once",
    "no_tenant_gets_more_than_three_in_a_row_while_another_is_below_its_share",
    "tenant_without_jobs_has_no_share",
    "streak_counts_across_sessions",
    "no_tenant_takes_more_than_nine_tenths_while_others_wait",
    "no_tenant_takes_more_than_nine_tenths_while_others_run",
    "ceiling_holds_for_a_minute_after_the_others_were_active",
    "slots_of_dead_sessions_do_not_count",
    "only_sessions_that_serve_a_queue_count_for_its_nine_tenths",
    "queue_that_a_session_names_twice_has_its_slots_once",
    "jobs_that_are_fetched_ahead_take_none_of_the_nine_tenths",
    "flood_does_not_starve_a_small_tenant",
    "flood_in_large_batches_does_not_starve_a_small_tenant",
    "priority_is_a_matter_inside_a_tenant",
    "sla_changes_no_share_between_tenants",
    "every_one_of_many_tenants_gets_its_turn",
    "several_limits_all_count",
    "tenant_that_was_just_served_keeps_its_place",
}
"""Slots are shared in each partition by itself."""

LATER = {
    "prune_forgets_events_by_age",
    "events_come_in_order",
    "events_rebuild_the_job",
    "notices_are_told_among_events",
    "job_that_cannot_be_read_dies_as_others_do_and_is_counted_once",
    "long_cancel_request_is_cut_and_the_store_stays_readable",
    "batch_that_tells_all_is_told_once_and_in_order",
    "events_of_many_writes_are_read_in_either_order",
}
"""Events of several partitions are kept back for a second."""

MERGED = {
    "events_are_read_backwards",
    "newest_position_is_where_a_reader_begins",
    "events_are_found_by_what_they_say_of_their_job",
    "reader_that_fell_behind_is_told_so",
    "position_from_the_future_is_refused",
    "notices_are_found_by_what_they_say",
    "sessions_are_told_once",
    "limits_are_told_with_their_change",
    "gate_is_told_with_its_entry_and_only_once",
    "only_the_job_that_has_a_key_tells_its_enqueue",
}
"""The same, which hold where events are not kept back."""

WIDER = {
    "search_for_events_says_how_far_it_got",
    "search_that_finds_nothing_looks_at_few_jobs_and_says_how_far_it_got",
    "many_jobs_of_one_millisecond_come_page_by_page",
}
"""A search looks at so many jobs, or events, of each partition."""

ROUNDED = {
    "prune_keeps_so_many_succeeded_jobs_of_each_queue",
    "default_number_is_that_of_each_name",
    "default_of_a_queue_comes_before_that_of_all",
    "default_of_pairs_counts_what_runs_already",
    "rate_of_a_default_is_that_of_each_name",
    "what_the_rate_of_a_default_has_granted_outlives_a_prune",
}
"""A number is split among partitions, and rounded up."""

ANYWHERE = [name for name in CHECKS if name not in ORDER | FAIRNESS | LATER | MERGED | WIDER | ROUNDED]


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[servers.Server]]:
    with servers.cluster() as cluster:
        yield cluster.masters


@pytest.fixture
def url(nodes: list[servers.Server]) -> str:
    for node in nodes:
        with node.client() as client:
            client.flushall()
    return f"redis+cluster://127.0.0.1:{nodes[0].port}"


async def check(store: Store, name: str) -> None:
    try:
        await CHECKS[name](store)
    finally:
        await store.close()


@pytest.mark.parametrize("name", CHECKS)
async def test_one_partition(name: str, url: str) -> None:
    await check(checked(RedisStore(f"{url}?partitions=1")), name)


@pytest.mark.parametrize("name", ANYWHERE)
async def test_four_partitions(name: str, url: str) -> None:
    await check(checked(RedisStore(f"{url}?partitions=4")), name)


@pytest.mark.parametrize("name", sorted(MERGED))
async def test_events_of_four_partitions_are_merged(name: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merged_events, "MAX_SKEW_MS", -1_000)
    await check(checked(RedisStore(f"{url}?partitions=4")), name)


async def test_events_of_the_last_second_are_held_back_in_both_directions(url: str) -> None:
    store = checked(RedisStore(f"{url}?partitions=4"))
    jobs = new_jobs(store, 8)
    await store.enqueue(jobs, START)
    await store.apply([change.cancel(job, OPERATOR, START) for job in jobs], START)
    for newest_first in (False, True):
        page = await store.read_events(EventQuery(newest_first=newest_first))
        assert (page.events, page.newest) == ((), page.position - newest_first)
    while len(await store.events()) < len(jobs):
        await store.wait((), 0.2)
    page = await store.read_events(EventQuery(newest_first=True, limit=3))
    assert list(page.events) == (await store.events())[:-4:-1]
    await store.close()


@pytest.mark.parametrize("turn", range(8))
async def test_retry_is_told_to_others_if_another_partition_fills_its_worker(turn: int, url: str) -> None:
    # The partitions of the two jobs, and which of them is asked first, differ from turn to turn.
    name = "waiters_are_notified_of_a_retry_that_its_own_worker_has_no_room_for"
    await check(checked(RedisStore(f"{url}?partitions=4&prefix=turn{turn}")), name)


async def test_jobs_are_spread_and_all_of_them_run_once(url: str, nodes: list[servers.Server]) -> None:
    store = RedisStore(f"{url}?partitions=8")
    load = Load(store)

    await load.run(asyncio.create_task(load.reach(1_000)))
    assert load.settled.keys() == load.acknowledged.keys()
    assert set(load.runs.values()) == {1}
    spread = Counter(map(partition_of, load.acknowledged))
    assert sorted(spread) == list(range(8))
    assert max(spread.values()) <= 1.3 * min(spread.values())
    with redis.RedisCluster(host="127.0.0.1", port=nodes[0].port, protocol=2) as client:
        assert [line for number in range(8) for line in complaints(client, tag_of("reprieve", number))] == []
    for node in nodes:
        with node.client() as client:
            assert "errorstat_CROSSSLOT" not in client.info("errorstats")
    await store.close()


async def test_partitions_are_shared_evenly_by_the_nodes(url: str, nodes: list[servers.Server]) -> None:
    store = RedisStore(url)
    jobs = new_jobs(store, 1)
    await enqueue(store, *jobs)
    await enqueue(store, *new_jobs(store, 239))
    counts = []
    for node in nodes:
        with node.client() as client:
            counts.append(sum(client.hlen(key) for key in client.scan_iter("*:jobs")))
    assert sum(counts) == 240
    assert max(counts) <= 1.3 * 240 / len(nodes)
    await store.close()


@pytest.mark.parametrize("point", ["before", "after"])
async def test_claim_that_failed_in_one_partition_and_is_repeated_leases_no_job_twice(
    url: str, point: FaultPoint
) -> None:
    store = RedisStore(f"{url}?partitions=4")
    await enqueue(store, *new_jobs(store, 40))
    worker = await Worker.open(store)
    store.inject(point)
    with pytest.raises(StoreError):
        await worker.ask(100)
    jobs = (await worker.again(100)).jobs
    assert len({job.id for job in jobs}) == len(jobs) == 40
    assert await worker.settle(*map(succeed, jobs)) == ["applied"] * 40
    await store.close()


async def test_partitions_can_be_added_while_jobs_wait_and_workers_work(url: str) -> None:
    small = RedisStore(f"{url}?partitions=2")
    jobs = new_jobs(small, 10)
    keyed = new_job(small, key="k")
    await enqueue(small, *jobs, keyed)
    worker = await Worker.open(small)
    large = RedisStore(f"{url}?partitions=5")
    await enqueued(large)
    more = new_jobs(large, 20)
    await enqueue(large, *more)
    assert max(partition_of(job.id) for job in more) == 4
    again = new_job(large, key="k")
    assert await enqueue(large, again) == [keyed.id], "growth admits no duplicate"
    assert await worker.heartbeat(), "the session goes on in the old partitions, and in the new"
    taken = await worker.take(100)
    assert len(taken) == 32
    assert len(await find_all(small, Filter())) == 32
    assert set(await worker.settle(*map(succeed, taken))) == {"applied"}
    await small.close()
    await large.close()


async def test_added_partitions_honour_what_was_regulated_before(url: str) -> None:
    small = RedisStore(f"{url}?partitions=1")
    await update_limits(small, LimitUpdate(subject="dependency", name="ses", permits=0))
    await update_limits(small, LimitUpdate(subject="task", name="slow", max_running=2))
    large = RedisStore(f"{url}?partitions=4")
    await enqueue(large, *new_jobs(large, 8, dependency="ses"), *new_jobs(large, 20, task="slow"))
    await enqueue(large, *new_jobs(large, 8, dependency="ses"), *new_jobs(large, 20, task="slow"))
    worker = await Worker.open(large)
    taken = await worker.take(100)
    assert [job.task for job in taken] == ["slow", "slow"]
    await update_limits(large, LimitUpdate(subject="dependency", name="ses", permits=None))
    assert len(await worker.take(100)) == 16
    await small.close()
    await large.close()


async def test_key_that_was_reserved_by_a_producer_that_died_is_free_after_a_minute(url: str) -> None:
    store = RedisStore(f"{url}?partitions=4")
    dead, living = new_job(store, key="k"), new_job(store, key="k")
    await enqueued(store)
    await store._enqueuer._keys.reserve([dead], START)  # noqa: SLF001 - as far as it got
    with pytest.raises(StoreLocked):
        await enqueue(store, living)
    assert await enqueue(store, living, at=START + 61_000) == [living.id]
    assert await enqueue(store, dead, at=START + 61_000) == [living.id]
    await store.close()


async def test_limit_holds_for_all_partitions_together(url: str) -> None:
    store = RedisStore(f"{url}?partitions=4")
    await update_limits(store, LimitUpdate(subject="dependency", name="ses", max_running=7))
    await enqueue(store, *new_jobs(store, 60, dependency="ses"))
    workers = [await Worker.open(store, f"worker-{number}") for number in range(3)]
    running = []
    for _ in range(12):
        for worker in workers:
            taken = (await worker.ask(5)).jobs
            running += [(worker, job) for job in taken]
            assert len(running) <= 7
        worker, job = running.pop(0)
        assert await worker.settle(succeed(job)) == ["applied"]
    (limit_state,) = [
        limit_state for limit_state in await all_limit_states(store, "dependency") if limit_state.name == "ses"
    ]
    assert limit_state.max_running == 7
    assert limit_state.running == len(running)
    await store.close()


async def test_wait_on_four_partitions_that_is_notified_by_one_leaves_the_others(url: str) -> None:
    store = RedisStore(f"{url}?partitions=4")
    await enqueued(store)
    waiting = asyncio.create_task(store.wait(("later",), 30.0))
    while not waiting.done():
        await enqueued(store, queue="later")
    assert await waiting
    await asyncio.sleep(0)
    connection = store._connections.current()  # noqa: SLF001 - not to be seen from outside
    listeners = [connection.listener(tag_of("reprieve", number)) for number in range(4)]
    assert [listener._waiting for listener in listeners] == [set()] * 4  # noqa: SLF001 - as above
    await store.close()


@pytest.mark.faults
@pytest.mark.parametrize("partitions", [1, 4])
async def test_store_that_was_just_notified_closes_at_once(partitions: int, url: str) -> None:
    for _ in range(5):
        store = RedisStore(f"{url}?partitions={partitions}")
        await enqueued(store)
        waiting = asyncio.create_task(store.wait(("later",), 30.0))
        while not waiting.done():
            await enqueued(store, queue="later")
        closing = ticks()
        await store.close()
        assert ticks() - closing < 2.0


async def test_threads_that_read_at_once_share_one_client(url: str) -> None:
    store = RedisStore(url)
    ready = threading.Barrier(4)

    def read() -> object:
        ready.wait()
        return store._connections._shared_client()  # noqa: SLF001 - not to be seen from outside

    assert len({id(client) for client in await asyncio.gather(*(asyncio.to_thread(read) for _ in range(4)))}) == 1
    await store.close()


def test_a_limit_is_never_divided_into_more_than_there_is() -> None:
    assert divide(7, [1, 0, 2], [True, False, False]) == [5, 0, 2]
    assert divide(7, [0, 0, 0], [False, False, False]) == [3, 2, 2]
    assert divide(2, [1, 1, 1], [True, True, True]) == [0, 0, 0]
    assert sum(divide(10, [3, 0, 1], [False, True, True])) == 10


async def test_cluster_named_as_a_single_server_is_told(nodes: list[servers.Server]) -> None:
    store = RedisStore(nodes[0].url)
    with pytest.raises(ForeignStore, match=r"redis\+cluster"):
        await enqueued(store)
    await store.close()


async def test_single_server_named_as_a_cluster_is_told() -> None:
    with servers.own() as server:
        store = RedisStore(f"redis+cluster://127.0.0.1:{server.port}")
        with pytest.raises(ReprieveError, match="redis://"):
            await enqueued(store)
        await store.close()


async def test_job_of_another_partition_is_refused_with_an_entry(url: str) -> None:
    store = checked(RedisStore(f"{url}?partitions=4"))
    try:
        job = replace(new_job(store), id=make_id(START, 5, 1))
        write = EntryWrite(key="tick", version=0, value=b"1", jobs=(job,))
        with pytest.raises(ValidationError, match="beside=key"):
            await store.compare_and_set(write, START, PROGRAM)
        assert await store.entry("tick") is None
        beside = replace(job, id=store.new_id(START, "default", beside="tick"))
        written = await store.compare_and_set(replace(write, jobs=(beside,)), START, PROGRAM)
        assert written.ids == (beside.id,)
    finally:
        await store.close()
