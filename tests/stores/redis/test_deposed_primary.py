"""A primary that was deposed and does not know: its replicas and Sentinels do not reach it, but clients do."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator

import pytest

from reprieve.clock import ticks
from reprieve.core.ids import id_to_bytes
from reprieve.core.job import Job
from reprieve.errors import StoreError, UnsafeStore
from reprieve.stores.protocol import Filter
from reprieve.stores.redis import RedisStore
from reprieve.stores.redis.sentinels import Primary, choose
from reprieve.stores.redis.server_checks import Durability
from reprieve.testing.conformance.stage import Worker, enqueue, find_all, new_job, new_jobs
from tests.servers import redis as servers

PATIENCE = 20.0
"""Seconds after which something that should happen counts as not happening."""


async def acknowledged(store: RedisStore) -> AsyncIterator[str]:
    """Enqueue one job after the other; yield the ids of those that are acknowledged."""
    while True:
        job = new_job(store)
        try:
            await enqueue(store, job)
        except StoreError:
            await asyncio.sleep(0.05)
        else:
            yield job.id
            await asyncio.sleep(0.01)


def has_job(server: servers.Server, job_id: str) -> bool:
    with server.client() as client:
        return bool(client.hexists("{reprieve:0}:jobs", id_to_bytes(job_id)))


async def test_client_leaves_a_deposed_primary_that_still_replies() -> None:
    with servers.sentinel_group() as group:
        store = RedisStore(group.url)
        jobs = acknowledged(store)
        assert has_job(group.primary, await anext(jobs))
        group.gateway.cut()
        heir = await asyncio.to_thread(group.wait_for_failover)
        deadline = ticks() + PATIENCE
        while not has_job(heir, await anext(jobs)):
            assert ticks() < deadline, "jobs still go to the primary that was deposed"
        assert servers.is_primary(group.primary)
        later = [await anext(jobs) for _ in range(100)]
        group.gateway.heal()
        later += [await anext(jobs) for _ in range(100)]
        assert [job_id for job_id in later if not has_job(heir, job_id)] == []
        await store.close()


async def test_call_goes_to_the_new_primary_while_the_old_one_is_frozen() -> None:
    with servers.sentinel_group() as group:
        store = RedisStore(group.url)
        await enqueue(store, new_job(store))
        group.primary.signal(signal.SIGSTOP)
        heir = await asyncio.to_thread(group.wait_for_failover)
        job_id = await anext(acknowledged(store))
        assert has_job(heir, job_id)
        # Threads read from the same server.
        assert len(await find_all(store, Filter())) == 2
        group.primary.signal(signal.SIGCONT)
        await store.close()


class Partition:
    """Producers that enqueue all the time, each as a process of its own would."""

    def __init__(self, group: servers.SentinelGroup, durability: Durability) -> None:
        self._group = group
        self._durability: Durability = durability
        self.acknowledged: dict[str, float] = {}
        self._is_over = False

    async def produce(self) -> None:
        store = RedisStore(self._group.url, durability=self._durability)
        jobs = acknowledged(store)
        # Not cancelled: before Python 3.12 the client may swallow that.
        while not self._is_over:
            self.acknowledged[await anext(jobs)] = ticks()
        await store.close()

    async def play(self, seconds: float) -> tuple[list[float], float, float]:
        """Cut the primary off, and heal it after so many seconds from its failover on.

        Return when jobs were acknowledged that are lost, and when the failover was, in seconds after the cut; and how
        long jobs were acknowledged after the cut.
        """
        producing = [asyncio.create_task(self.produce()) for _ in range(3)]
        await asyncio.sleep(1)
        cut = ticks()
        self._group.gateway.cut()
        heir = await asyncio.to_thread(self._group.wait_for_failover)
        promoted = ticks() - cut
        await asyncio.sleep(seconds)
        self._group.gateway.heal()
        await asyncio.sleep(seconds)
        self._is_over = True
        await asyncio.gather(*producing)
        with heir.client() as client:
            stored = set(client.hkeys("{reprieve:0}:jobs"))
        lost = [at - cut for job_id, at in self.acknowledged.items() if id_to_bytes(job_id) not in stored]
        return lost, promoted, max(self.acknowledged.values()) - cut


@pytest.mark.faults
@pytest.mark.parametrize(
    ("durability", "settings"),
    [
        ("full", {}),
        ("full", {"min_replicas_to_write": "1", "min_replicas_max_lag": "2"}),
        ("strict", {"appendfsync": "always"}),
    ],
    ids=["full", "with enough replicas", "strict"],
)
async def test_partition_loses_only_what_its_promise_says(durability: Durability, settings: dict[str, str]) -> None:
    with servers.sentinel_group(2, 500, **settings) as group:
        partition = Partition(group, durability)
        lost, promoted, last = await partition.play(10.0)
        latest = max(lost, default=0.0)
        print(f"{len(lost)} of {len(partition.acknowledged)} lost, the last {latest:.1f} s after the cut")  # noqa: T201 - a figure
        print(f"failover after {promoted:.1f} s")  # noqa: T201 - as above
        assert last > promoted + 15.0, "jobs are taken again"
        assert durability != "strict" or not lost
        # A second until the Sentinels are asked again, and what a busy machine takes for that.
        assert latest < promoted + 1.5
        assert min(lost, default=0.0) > -1.0


def test_latest_failover_counts() -> None:
    old, new = Primary("a", 1, 3), Primary("b", 2, 4)
    assert choose([old, new, old], None, 3) == new
    assert choose([old], new, 3) == new
    assert choose([], new, 3) == new
    assert choose([], None, 3) is None
    # The leader of a failover knows it before the others, under the same count.
    assert choose([new, new._replace(host="a"), new], old, 3) == new


def test_sentinels_that_were_set_up_anew_count() -> None:
    known, anew = Primary("a", 1, 7), Primary("b", 2, 0)
    assert choose([anew], known, 3) == known
    assert choose([anew, anew], known, 3) == anew


async def test_primary_that_needs_no_replica_is_refused_unless_the_url_insists() -> None:
    with servers.sentinel_group(down_after_ms=servers.NO_FAILOVER_MS) as group:
        url = group.url.removesuffix("?min_replicas=0")
        store = RedisStore(url)
        with pytest.raises(UnsafeStore, match=r"min-replicas-to-write 0.*or add \?min_replicas=0 to the URL"):
            await enqueue(store, new_job(store))
        with group.primary.client() as client:
            client.config_set("min-replicas-to-write", 1)
            client.config_set("min-replicas-max-lag", 60)
            with pytest.raises(UnsafeStore, match="min-replicas-max-lag 60"):
                await enqueue(store, new_job(store))
            client.config_set("min-replicas-max-lag", 2)
        await enqueue(store, new_job(store))
        await store.close()


async def test_enqueue_is_repeated_until_the_primary_has_its_replica_back() -> None:
    with servers.sentinel_group(down_after_ms=servers.NO_FAILOVER_MS, min_replicas_to_write="1") as group:
        store = RedisStore(group.url)
        await enqueue(store, new_job(store))
        (replica,) = group.replicas
        replica.kill()
        group.primary.wait_for_no_replica()
        starting = asyncio.create_task(asyncio.to_thread(replica.start))
        job = new_job(store)
        await enqueue(store, job)
        await starting
        assert has_job(group.primary, job.id)
        await store.close()


@pytest.mark.faults
async def test_session_never_reads_its_leases_from_a_node_that_was_deposed() -> None:
    with servers.cluster(replicas=1) as cluster:
        store = RedisStore(cluster.url + "?partitions=1")
        await enqueue(store, *new_jobs(store, 20))
        worker = await Worker.open(store)
        held = {job.id for job in await worker.take(10)}
        assert {job.id for job in await find_all(store, Filter(session=worker.session))} == held
        number = cluster.place_of("{reprieve:0}")
        cluster.masters[number].signal(signal.SIGSTOP)
        await asyncio.to_thread(cluster.wait_for_failover, number)
        held |= {job.id for job in await claimed(worker)}
        cluster.masters[number].signal(signal.SIGCONT)
        while servers.is_primary(cluster.masters[number]):
            assert {job.id for job in await find_all(store, Filter(session=worker.session))} == held
        await store.close()


async def claimed(worker: Worker) -> list[Job]:
    """Claim the rest, and repeat the call until it succeeds."""
    worker.number += 1
    while True:
        with contextlib.suppress(StoreError):
            return list((await worker.again(10)).jobs)
