"""A slot that is moved to another node: its partition waits until it has arrived, and no job is lost or left behind."""

import asyncio
from collections.abc import Iterator

import pytest

from reprieve import clock
from reprieve.errors import StoreError
from reprieve.stores.open import diagnostics_for
from reprieve.stores.protocol import Filter
from reprieve.stores.redis import RedisStore
from reprieve.testing.conformance.stage import Worker, enqueue, find_all, new_jobs, succeed
from tests.servers import redis as servers
from tests.stores.redis.load import Load
from tests.stores.redis.recount import complaints

TAG = "{reprieve:0}"


class Move:
    """A slot on its way from one node to the other."""

    def __init__(self, cluster: servers.Cluster) -> None:
        place = cluster.place_of(TAG)
        self.source, self.target = cluster.masters[place], cluster.masters[1 - place]
        self.slot = int(self.ask(self.source, "KEYSLOT", TAG))  # type: ignore[call-overload] # a number

    @staticmethod
    def ask(server: servers.Server, *words: object) -> object:
        with server.client() as client:
            return client.execute_command("CLUSTER", *words)

    def begin(self) -> None:
        self.ask(self.target, "SETSLOT", self.slot, "IMPORTING", self.ask(self.source, "MYID"))
        self.ask(self.source, "SETSLOT", self.slot, "MIGRATING", self.ask(self.target, "MYID"))

    def carry(self) -> None:
        with self.source.client() as client:
            keys = client.keys(f"{TAG}*")
            client.execute_command("MIGRATE", "127.0.0.1", self.target.port, "", 0, 5_000, "KEYS", *keys)

    def end(self) -> None:
        for server in (self.target, self.source):
            self.ask(server, "SETSLOT", self.slot, "NODE", self.ask(self.target, "MYID"))


@pytest.fixture
def cluster() -> Iterator[servers.Cluster]:
    with servers.cluster(masters=2) as cluster:
        yield cluster


async def test_partition_whose_slot_is_moved_waits_and_is_never_split(cluster: servers.Cluster) -> None:
    url = f"{cluster.url}?partitions=1"
    store, hasty = RedisStore(url), RedisStore(url)
    hasty._connections._retry_seconds = 0.1  # noqa: SLF001 - not to wait for five seconds
    await enqueue(store, *new_jobs(store, 5))
    worker = await Worker.open(store)
    running = await worker.take(2)
    move = Move(cluster)
    move.begin()
    with pytest.raises(StoreError, match="is being moved"):
        await enqueue(hasty, *new_jobs(hasty, 5))
    move.carry()
    with pytest.raises(StoreError, match="is being moved"):
        await find_all(hasty, Filter())
    with move.source.client() as client:
        assert client.keys(f"{TAG}*") == [], "nothing is made anew where the partition was"
    more = asyncio.create_task(enqueue(store, *new_jobs(store, 5)))
    move.end()
    assert len(await more) == 5
    assert await worker.settle(*map(succeed, running)) == ["applied"] * 2
    assert len(await find_all(store, Filter())) == 10
    await store.close()
    await hasty.close()


async def test_doctor_tells_of_slots_that_are_moved(cluster: servers.Cluster) -> None:
    def found() -> list[tuple[str, str]]:
        findings = diagnostics_for(cluster.url).examine(clock.now())
        return [(finding.level, finding.seen) for finding in findings if finding.name == "slots"]

    assert found() == [("ok", "none is being moved")]
    move = Move(cluster)
    move.begin()
    assert found() == [("warn", f"{move.slot} is being moved")]
    move.carry()
    move.end()
    assert found() == [("ok", "none is being moved")]


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.faults)])
async def test_slot_that_is_moved_under_load_loses_and_doubles_nothing(cluster: servers.Cluster, times: int) -> None:
    store = RedisStore(f"{cluster.url}?partitions=1")
    load = Load(store)

    async def reshard() -> None:
        move = Move(cluster)
        for _ in range(times):
            await load.reach(len(load.settled) + 200)
            for step in (move.begin, move.carry, move.end):
                await asyncio.to_thread(step)
            move.source, move.target = move.target, move.source
        await load.reach(len(load.settled) + 200)

    await load.run(asyncio.create_task(reshard()))
    assert set(load.settled) == set(load.acknowledged)
    assert set(load.runs.values()) == {1}
    with Move(cluster).source.client() as client:
        assert complaints(client, TAG) == []
    await store.close()
