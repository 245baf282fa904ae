"""What waits for a prune is taken over once and then gone, however much there is, and whatever is damaged."""

from collections.abc import Iterator, Sequence
from struct import Struct
from uuid import UUID

import pytest
import redis

from reprieve.core import change
from reprieve.stores.protocol import AuditFilter, CauseRequest, Retention, SeriesRequest, Store
from reprieve.stores.redis import RedisStore
from reprieve.stores.redis.series import MAX_DELTAS_PER_ROLL_UP
from reprieve.testing.conformance.stage import DAY, HOUR, MINUTE, OPERATOR, START, enqueue, new_jobs
from tests.servers import redis as servers

TAG = "{reprieve:0}"
MANY = 25 * MAX_DELTAS_PER_ROLL_UP
"""More counts than one scan looks at."""

SEEN = Struct(">dd16s")


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Server]:
    with servers.own() as server:
        yield server


@pytest.fixture
def client(server: servers.Server) -> Iterator[redis.Redis]:
    with server.client() as client:
        client.flushall()
        yield client


@pytest.fixture
async def store(server: servers.Server, client: redis.Redis) -> RedisStore:
    store = RedisStore(server.url)
    await store.prune(Retention(now=START))
    return store


def write_hash(client: redis.Redis, key: str, items: dict[str, bytes | int]) -> None:
    for part in parts(list(items)):
        client.hset(f"{TAG}:{key}", mapping={field: items[field] for field in part})


def parts(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), 5_000):
        yield names[start : start + 5_000]


def lane(number: int) -> str:
    """Return the field of a count of enqueues: a minute and a lane."""
    return "\0".join((str(START // MINUTE), "default", f"tenant-{number}", "send", "", "", "2"))


async def prune_all(store: Store, at: int) -> int:
    """Prune until nothing is left to do; return how many calls it took."""
    for calls in range(1, 1_000):
        if (await store.prune(Retention(now=at))).is_all:
            return calls
    return 1_000


async def enqueues(store: Store) -> int:
    request = SeriesRequest(subject="queue", names=("default",), since_at=START - HOUR, until_at=START + HOUR)
    (line,) = await store.series(request, START)
    return sum(point.counts.get("enqueued", 0) for point in line.points)


async def test_every_count_of_enqueues_gets_into_the_series(store: RedisStore, client: redis.Redis) -> None:
    write_hash(client, "series_enqueued", {lane(number): 1 for number in range(MANY)})
    calls = await prune_all(store, START)
    assert await enqueues(store) == MANY
    assert not client.exists(f"{TAG}:series_enqueued")
    assert calls < 3 * MANY // MAX_DELTAS_PER_ROLL_UP


async def test_count_of_enqueues_that_is_damaged_stops_no_prune(store: RedisStore, client: redis.Redis) -> None:
    write_hash(client, "series_enqueued", {"soon\0default\0a\0send\0\0": 1, "7\0default": 2, lane(1): 3})
    await prune_all(store, START)
    assert await enqueues(store) == 3
    assert not client.exists(f"{TAG}:series_enqueued")


async def test_every_count_of_an_old_hour_of_failures_is_forgotten(store: RedisStore, client: redis.Redis) -> None:
    hour = START // HOUR
    codes = [f"code-{number}" for number in range(MANY)]
    write_hash(client, f"cause_hours:l{hour}", {f"c{code}": 2 for code in codes})
    write_hash(client, "failing", {f"c{code}": SEEN.pack(START, START, bytes(16)) for code in codes})
    client.zadd(f"{TAG}:cause_hours", {f"l{hour}": hour})
    for part in parts(codes):
        client.zadd(f"{TAG}:causes:lc", dict.fromkeys(part, 2))
        client.zadd(f"{TAG}:causes_last:lc", dict.fromkeys(part, START))
    assert (await store.causes(CauseRequest(by="code", of="living"), START)).total == MANY
    later = START + 3 * DAY
    await prune_all(store, later)
    assert (await store.causes(CauseRequest(by="code", of="living"), later)).total == 0
    kept = [key for key in client.scan_iter(count=1_000) if b":cause" in key or b":failing" in key]
    assert kept == []
    assert "hour_cursor" not in repr(client.hkeys(f"{TAG}:meta"))


async def test_damaged_audit_entry_stops_no_prune_and_leaves_nothing(store: RedisStore, client: redis.Redis) -> None:
    jobs = new_jobs(store, 3, tenant="acme")
    await enqueue(store, *jobs)
    for number, job in enumerate(jobs):
        await store.apply([change.cancel(job, OPERATOR, START + number)], START + number)
    first, second, _ = sorted(client.hkeys(f"{TAG}:audit"))
    client.hset(f"{TAG}:audit", first, b"\xc1\0\0\1\0torn")
    client.hdel(f"{TAG}:audit", second)
    (entry,) = (await store.audit_log(AuditFilter(tenant="acme"))).entries
    assert entry.name == jobs[2].id
    assert (await store.prune(Retention(now=START + 500 * DAY))).audit == 3
    assert set(client.keys(f"{TAG}:audit*")) == {f"{TAG}:audit_subject:job:{job.id}".encode() for job in jobs[:2]}


async def test_cancelled_job_whose_record_is_damaged_leaves_the_list_of_all(
    store: RedisStore, client: redis.Redis
) -> None:
    jobs = new_jobs(store, 2)
    await enqueue(store, *jobs)
    await store.apply([change.cancel(job, OPERATOR, START) for job in jobs], START)
    client.hset(f"{TAG}:jobs", UUID(jobs[0].id).bytes, b"torn")
    await prune_all(store, START + 30 * DAY)
    assert not client.exists(f"{TAG}:cancelled_by:a")
    assert not client.exists(f"{TAG}:cancelled:default")
