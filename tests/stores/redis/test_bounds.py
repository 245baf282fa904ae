"""What one call of a script may do: no more than others can wait for, however much there is."""

import re
from collections import Counter
from collections.abc import Iterator, Sized

import pytest
import redis
from msgspec.structs import replace

from reprieve.core import change
from reprieve.core.ids import id_to_bytes, partition_of
from reprieve.stores.protocol import Filter, LimitUpdate, Retention
from reprieve.stores.redis import RedisStore
from reprieve.stores.redis.find import MAX_JOBS_PER_PAGE
from reprieve.stores.redis.store import MAX_JOBS_PER_CLAIM, MAX_TENANTS_PER_CLAIM
from reprieve.stores.redis.tags import tag_of
from reprieve.testing.conformance.stage import (
    OPERATOR,
    START,
    Worker,
    enqueue,
    find_all,
    new_job,
    new_jobs,
    snooze,
    succeed,
    update_limits,
)
from tests.servers import redis as servers
from tests.stores.redis.recount import complaints

TAG = "{reprieve:0}"

MAX_CALLS_OF_A_PAGE = 20
"""Reads of sorted sets: halving takes as many as the number of jobs has bits."""


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Server]:
    with servers.own() as server:
        yield server


@pytest.fixture
def client(server: servers.Server) -> Iterator[redis.Redis]:
    with server.client() as client:
        client.flushall()
        yield client
        assert complaints(client, TAG) == []


@pytest.fixture
async def store(server: servers.Server, client: redis.Redis) -> RedisStore:
    return RedisStore(server.url)


def calls(client: redis.Redis, command: str) -> int:
    """Return how often a command was called since the last time, by scripts too."""
    found = client.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"]
    client.config_resetstat()
    return int(found)


async def test_claim_leases_so_many_at_a_time_and_says_that_there_is_more(store: RedisStore) -> None:
    await enqueue(store, *new_jobs(store, 2 * MAX_JOBS_PER_CLAIM + 1))
    worker = await Worker.open(store)
    first = await worker.ask(10_000)
    assert (len(first.jobs), first.next_at) == (MAX_JOBS_PER_CLAIM, START)
    assert (await worker.again(10_000)).jobs == first.jobs
    assert len(await worker.take(10_000)) == MAX_JOBS_PER_CLAIM
    last = await worker.ask(10_000)
    assert (len(last.jobs), last.next_at) == (1, None)
    await store.close()


async def test_claim_leases_fewer_when_every_job_is_another_tenants(store: RedisStore) -> None:
    await enqueue(store, *(new_job(store, tenant=f"t{number}") for number in range(200)))
    worker = await Worker.open(store)
    jobs = await worker.take(250)
    claimed = await worker.ask(250, changes=map(succeed, jobs))
    assert (len(claimed.jobs), claimed.next_at) == (MAX_TENANTS_PER_CLAIM, START)
    await store.close()


async def test_thousands_that_expire_at_once_are_all_buried(store: RedisStore) -> None:
    count = 5_000
    await enqueue(store, *new_jobs(store, count, deadline_at=START + 1))
    worker = await Worker.open(store)
    while (await worker.ask(count, at=START + 2)).next_at is not None:
        pass
    assert (await store.tally("status", Filter(), START + 2)).counts.get("dead") == count
    assert len(await store.events(limit=2 * count)) == count
    await store.close()


async def test_what_is_due_and_was_not_promoted_is_counted_in_few_calls(store: RedisStore, client: redis.Redis) -> None:
    await enqueue(store, *new_jobs(store, 2 * MAX_JOBS_PER_PAGE + 50, due_at=START + 1_000, tenant="a"))
    await enqueue(store, *new_jobs(store, 10, due_at=START + 1_000, tenant="b"))
    await enqueue(store, *new_jobs(store, 5, due_at=START + 9_000, tenant="b"))
    calls(client, "evalsha")
    counts = (await store.tally("status", Filter(), START + 1_000)).counts
    assert (counts["ready"], counts["scheduled"]) == (2 * MAX_JOBS_PER_PAGE + 60, 5)
    assert calls(client, "evalsha") <= 3
    assert (await store.tally("tenant", Filter(statuses=frozenset({"ready"})), START + 1_000)).counts == {
        "a": 2 * MAX_JOBS_PER_PAGE + 50,
        "b": 10,
    }
    await store.close()


async def test_running_jobs_are_found_session_by_session(store: RedisStore, client: redis.Redis) -> None:
    await enqueue(store, *new_jobs(store, 450))
    workers = [await Worker.open(store, f"worker-{number}") for number in range(20)]
    held = {worker.session: {job.id for job in await worker.take(22)} for worker in workers[1:]}
    held["worker-0"] = {job.id for job in await workers[0].take(50)}
    found = await find_all(store, Filter(statuses=frozenset({"running"})), limit=30)
    assert {job.id for job in found} == set().union(*held.values())
    assert len(found) == 450
    calls(client, "hkeys")
    mine = await find_all(store, Filter(session="worker-7"))
    assert {job.id for job in mine} == held["worker-7"]
    assert calls(client, "hkeys") <= 2, "only its own leases are looked at"
    await store.close()


async def test_many_cancels_ask_every_session_once(store: RedisStore, client: redis.Redis) -> None:
    jobs = new_jobs(store, 200)
    await enqueue(store, *jobs)
    for number in range(20):
        await (await Worker.open(store, f"worker-{number}")).take(5)
    calls(client, "hmget")
    answers = await store.apply([change.cancel(job, OPERATOR, START) for job in jobs], START)
    assert calls(client, "hmget") <= 60
    assert sorted(answers) == ["applied"] * 100 + ["refused"] * 100
    await store.close()


async def test_prune_forgets_a_thousand_at_a_time_of_everything_together(store: RedisStore) -> None:
    later, gone = START + 30 * 86_400_000, 0
    for number in range(3):
        jobs = new_jobs(store, 500, queue=f"q{number}")
        await enqueue(store, *jobs)
        await store.apply([change.cancel(job, OPERATOR, START) for job in jobs], START)
    while not (pruned := await store.prune(Retention(now=later))).is_all:
        assert pruned.cancelled <= 1_000
        assert pruned.cancelled + pruned.events <= 1_500
        gone += pruned.cancelled + pruned.events
    assert gone == 3_000
    assert await find_all(store, Filter()) == []
    await store.close()


async def test_repeat_is_looked_for_among_the_latest_events_of_a_job(store: RedisStore, client: redis.Redis) -> None:
    await enqueue(store, new_job(store))
    worker = await Worker.open(store)
    for _ in range(40):
        leased = await worker.one()
        last = snooze(leased, due_at=START)
        assert await worker.settle(last) == ["applied"]
    calls(client, "xrange")
    assert await worker.settle(last) == ["already"]
    assert calls(client, "xrange") == 1
    assert await worker.settle(snooze(leased, at=START + 5)) == ["refused"]
    assert calls(client, "xrange") <= 20
    await store.close()


async def test_events_beyond_the_most_go_by_their_number(store: RedisStore, client: redis.Redis) -> None:
    for _ in range(4):
        jobs = new_jobs(store, 50)
        await enqueue(store, *jobs)
        for job in jobs[:10]:
            await store.apply([change.cancel(job, OPERATOR, START)], START)
        client.hset(f"{TAG}:meta", "event_count", 100_000)
        await store.apply([change.cancel(job, OPERATOR, START) for job in jobs[10:]], START)
        assert int(client.hget(f"{TAG}:meta", "event_count") or 0) <= 100_000
    await store.close()


@pytest.mark.parametrize("partitions", [1, 3])
async def test_session_that_has_ended_is_forgotten(
    partitions: int, server: servers.Server, client: redis.Redis
) -> None:
    store = RedisStore(f"{server.url}?partitions={partitions}")
    for number in range(5):
        await enqueue(store, *new_jobs(store, 10))
        worker = await Worker.open(store, f"worker-{number}")
        await worker.settle(*map(succeed, await worker.take(10)))
        await store.wait(("default",), 0.0, worker.session)
        await worker.heartbeat(lease=0)
    parts = store._partitions.all()  # noqa: SLF001 - not to be seen from outside
    kept: list[Sized] = [store._sessions._states]  # noqa: SLF001 - as above
    kept += [part._sessions for part in parts]  # noqa: SLF001 - as above
    assert [len(sessions) for sessions in kept] == [0] * len(kept)
    await store.close()


async def test_new_default_costs_the_same_however_many_tenants_wait_for_it(
    store: RedisStore, client: redis.Redis
) -> None:
    every = LimitUpdate(subject="tenant", name=None, permits=0)
    await update_limits(store, every)
    jobs = [new_job(store, tenant=f"t{number}") for number in range(2_000)]
    await enqueue(store, *jobs)
    worker = await Worker.open(store)
    for _ in range(1_000):
        if client.zcount(f"{TAG}:rechecks", "inf", "inf") == len(jobs):
            break
        assert await worker.take(100) == []
    await update_limits(store, replace(every, permits="default"))
    waiting = client.zcount(f"{TAG}:rechecks", "inf", "inf")
    assert waiting == len(jobs), "the update itself moves nothing"
    claimed = await worker.ask(100)
    assert claimed.next_at is not None
    assert waiting - 1_000 < client.zcount(f"{TAG}:rechecks", "inf", "inf") < waiting, "a claim moves some"
    # A further change begins the search again, and nothing is missed.
    await update_limits(store, replace(every, permits="default", max_running=5))
    done = len(claimed.jobs)
    for _ in range(1_000):
        if done == len(jobs):
            break
        done += len(await worker.take(100))
    assert done == len(jobs)
    last = await worker.ask(100)
    assert (last.jobs, last.next_at) == ((), None)
    assert client.zcard(f"{TAG}:rechecks") == 0


def records_read(monitor: redis.client.Monitor, client: redis.Redis) -> int:
    """Return how many records of jobs scripts have asked for since the monitor began."""
    client.echo("the end")
    count, line = 0, b""
    while b'"the end"' not in line:
        found = monitor.connection.read_response(disable_decoding=True)
        line = found if isinstance(found, bytes) else str(found).encode()
        if f'"HMGET" "{TAG}:jobs"'.encode() in line:
            count += len(re.findall(rb'"(?:[^"\\]|\\.)*"', line)) - 2
    return count


async def test_expiry_reads_no_more_jobs_than_it_ends_and_a_few(store: RedisStore, client: redis.Redis) -> None:
    lanes = 20
    late = [new_job(store, tenant=f"t{number}", deadline_at=START + 1_000) for number in range(lanes)]
    await enqueue(store, *late)
    fine = [new_job(store, tenant=f"t{n % lanes}", deadline_at=START + 90_000) for n in range(100 * lanes)]
    await enqueue(store, *fine)
    with client.monitor() as monitor:  # type: ignore[no-untyped-call]  # the library's own
        expired = await store.expire(START + 5_000)
        assert records_read(monitor, client) <= 4 * lanes
    assert ({job.id for job in expired.jobs}, expired.has_more) == ({job.id for job in late}, False)
    await store.close()


async def test_expiry_looks_at_so_many_jobs_at_a_time_and_says_that_there_is_more(
    store: RedisStore, client: redis.Redis
) -> None:
    await enqueue(store, *new_jobs(store, 1_500, deadline_at=START + 1_000))
    worker = await Worker.open(store, slots=2_000)
    jobs = [job for _ in range(15) for job in await worker.take(100)]
    assert len(jobs) == 1_500
    client.zadd(f"{TAG}:expiring", {id_to_bytes(job.id): START + 1_000 for job in jobs})
    late = new_job(store, deadline_at=START + 2_000)
    await enqueue(store, late)
    calls, ended, has_more = 0, [], True
    while has_more:
        with client.monitor() as monitor:  # type: ignore[no-untyped-call]  # as above
            expired = await store.expire(START + 5_000)
            assert records_read(monitor, client) <= 200
        calls, has_more = calls + 1, expired.has_more
        ended += [job.id for job in expired.jobs]
    assert calls > 5
    assert ended == [late.id]
    await store.close()


async def test_expiry_removes_the_leftovers_between_the_jobs_that_it_ends(
    store: RedisStore, client: redis.Redis
) -> None:
    jobs = new_jobs(store, 2_600, deadline_at=START + 1_000)
    await enqueue(store, *jobs)
    gone = [job for number, job in enumerate(jobs[1_050:1_550]) if number % 50]
    await store.apply([change.cancel(job, OPERATOR, START) for job in gone], START)
    assert client.hlen(f"{TAG}:leftovers") > 0
    ended, has_more = set(), True
    while has_more:
        expired = await store.expire(START + 5_000)
        ended |= {job.id for job in expired.jobs}
        has_more = expired.has_more
    assert ended == {job.id for job in jobs} - {job.id for job in gone}
    assert client.keys(f"{TAG}:fresh:*") == client.keys(f"{TAG}:leftover*") == []
    await store.close()


async def test_expiry_asks_every_partition_in_turn(server: servers.Server, client: redis.Redis) -> None:
    partitions = 4
    store = RedisStore(f"{server.url}?partitions={partitions}")
    jobs = [new_job(store, queue=f"q{number}", deadline_at=START + 1_000) for number in range(80)]
    await enqueue(store, *jobs)
    per_partition = Counter(partition_of(job.id) for job in jobs)
    assert min(per_partition[number] for number in range(partitions)) > 2
    for _ in range(2):
        calls = [await store.expire(START + 5_000, 1) for _ in range(partitions)]
        assert {partition_of(job.id) for expired in calls for job in expired.jobs} == set(range(partitions))
        assert all(expired.has_more for expired in calls)
    await store.close()
    assert [complaints(client, tag_of("reprieve", number)) for number in range(partitions)] == [[]] * partitions


async def test_page_behind_thousands_of_jobs_of_its_millisecond_takes_few_commands(
    store: RedisStore, client: redis.Redis
) -> None:
    jobs = new_jobs(store, 3_000)
    for start in range(0, len(jobs), 500):
        await enqueue(store, *jobs[start : start + 500])
        await store.apply([change.cancel(job, OPERATOR, START) for job in jobs[start : start + 500]], START)
    wanted, cursor, pages = Filter(statuses=frozenset({"cancelled"})), "", 0
    while pages == 0 or cursor:
        client.config_resetstat()
        page = await store.find(wanted, START, cursor)
        cursor, pages = page.cursor, pages + 1
        stats = client.info("commandstats")
        ranges = [name for name in stats if name.startswith("cmdstat_z")]
        assert sum(stats[name]["calls"] for name in ranges) <= MAX_CALLS_OF_A_PAGE
    assert pages <= len(jobs) // 100 + 1
