"""Limits and limiters of several partitions: never exceeded, the same everywhere, no hindrance when memory is short."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, get_args

import pytest
import redis
from msgspec.structs import replace

from reprieve.core.ids import partition_of
from reprieve.core.job import Job
from reprieve.core.rate import Rate
from reprieve.errors import StoreClosed, StoreError, StoreFull
from reprieve.stores.paginate import all_entries, all_limit_states
from reprieve.stores.protocol import LimitState, LimitUpdate, Subject
from reprieve.stores.redis import RedisStore
from reprieve.stores.redis.shared_limits import SharedLimits
from reprieve.stores.redis.tags import tag_of
from reprieve.testing.conformance.stage import START, Worker, enqueue, new_jobs, set_entry, succeed, update_limits
from tests.servers import redis as servers

PARTITIONS = 4
HELD = LimitUpdate(subject="dependency", name="ses", permits=0)
OPEN = LimitUpdate(subject="dependency", name="ses", permits=None)


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Server]:
    with servers.own() as server:
        yield server


@pytest.fixture
def client(server: servers.Server) -> Iterator[redis.Redis]:
    with server.client() as client:
        client.flushall()
        yield client


@asynccontextmanager
async def stores(server: servers.Server, count: int) -> AsyncIterator[list[RedisStore]]:
    """Return stores of processes that know nothing of each other."""
    opened = [RedisStore(f"{server.url}?partitions={PARTITIONS}") for _ in range(count)]
    try:
        yield opened
    finally:
        for store in opened:
            await store.close()


async def spread(store: RedisStore, count: int) -> None:
    """Enqueue as many jobs in each partition."""
    await enqueue(store, *new_jobs(store, count * PARTITIONS, dependency="ses"))


async def taken(store: RedisStore, session: str) -> int:
    """Return how many jobs a new worker gets, however often it asks."""
    worker = await Worker.open(store, session)
    await worker.heartbeat()
    return len(await worker.take(200)) + len(await worker.take(200))


def replace_telling(store: RedisStore, numbers: range, tell: Callable[..., Any]) -> None:
    """Let something happen when a process tells partitions what is wanted."""
    for number in numbers:
        partition = store._partitions[number]  # noqa: SLF001 - where it is told
        partition.update_limits = partial(tell, partition.update_limits)  # type: ignore[method-assign]


async def fill(store: RedisStore) -> None:
    """Enqueue until the store refuses."""
    while True:
        await store.enqueue(new_jobs(store, 20, dependency="ses", payload=b"x" * 40_000), START)


async def die(*_: object, **__: object) -> None:
    """Get no further, as a process that is killed."""
    message = "killed"
    raise StoreError(message)


async def test_full_server_with_a_shared_limit_gives_up_all_it_has() -> None:
    with servers.own(maxmemory="16mb") as server, server.client() as client:
        async with stores(server, 1) as (store,):
            await update_limits(store, LimitUpdate(subject="dependency", name="ses", max_running=8))
            worker = await Worker.open(store)
            with pytest.raises(StoreFull):
                await fill(store)
            stored = sum(client.hlen(f"{tag_of('reprieve', number)}:jobs") for number in range(PARTITIONS))
            client.config_set("maxmemory", "4mb")
            done = 0
            claimed = await worker.ask(100)
            while claimed.jobs:
                assert len(claimed.jobs) <= 8
                done += len(claimed.jobs)
                assert await worker.heartbeat(START + done)
                claimed = await worker.ask(100, changes=[succeed(job) for job in claimed.jobs])
            assert done == stored


async def test_division_that_fails_takes_nothing_from_a_claim_or_a_heartbeat(
    server: servers.Server, client: redis.Redis
) -> None:
    async with stores(server, 1) as (store,):
        await update_limits(store, LimitUpdate(subject="dependency", name="ses", max_running=8))
        await spread(store, 10)
        worker = await Worker.open(store)
        # A key of another kind fails every script that looks for what is wanted.
        wanted = client.dump(f"{tag_of('reprieve', 0)}:wanted_limits")
        assert wanted is not None
        client.set(f"{tag_of('reprieve', 0)}:wanted_limits", "another's")
        assert 0 < len((await worker.ask(100)).jobs) <= 8
        client.restore(f"{tag_of('reprieve', 0)}:wanted_limits", 0, wanted, replace=True)
        assert await worker.heartbeat()


async def test_rate_is_not_exceeded_before_it_is_divided(
    server: servers.Server, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.dbsize() == 0
    async with stores(server, 2) as (dying, living):
        await spread(dying, 20)
        worker = await Worker.open(living)
        assert await worker.heartbeat()
        with monkeypatch.context() as patched:
            patched.setattr(SharedLimits, "divide", die)
            with pytest.raises(StoreError):
                await update_limits(
                    dying, LimitUpdate(subject="dependency", name="ses", rate=Rate(count=8, window=60.0))
                )
        running = len((await worker.ask(100)).jobs)
        assert running <= 8
        assert await worker.heartbeat()
        assert running + len(await worker.take(100)) <= 8
        assert await taken(living, "another") + running <= 8


@pytest.mark.parametrize("at", [START, START + 1_000])
async def test_who_waits_for_what_others_have_keeps_nothing_from_those_who_can_go_on(
    server: servers.Server, client: redis.Redis, at: int
) -> None:
    async with stores(server, 1) as (store,):

        def job(partition: int, dependency: str) -> Job:
            jobs = new_jobs(store, PARTITIONS, dependency=dependency)
            return next(job for job in jobs if partition_of(job.id) == partition)

        worker = await Worker.open(store)
        await update_limits(store, LimitUpdate(subject="dependency", name="ses", max_running=1))
        await enqueue(store, job(0, "ses"))
        running = await worker.one()
        await enqueue(store, job(3, "ses"))
        assert await worker.take(2) == []
        # Here is room, but no partition may have any of it.
        await update_limits(store, LimitUpdate(subject="dependency", name="fax", max_running=5, permits=0))
        await enqueue(store, job(3, "fax"))
        assert await worker.take(2) == []
        # All of it goes to the partitions that want anything, though the last partition cannot have what it waits for.
        await update_limits(store, LimitUpdate(subject="dependency", name="smtp", max_running=1))
        other = job(1, "smtp")
        await enqueue(store, other)
        assert [found.id for found in await worker.take(2, at)] == [other.id]
        claimed = await worker.ask(2, at, [succeed(running, at)])
        assert [partition_of(found.id) for found in claimed.jobs] == [3]


async def test_limiter_is_the_same_everywhere_whatever_is_heard_last(
    server: servers.Server, client: redis.Redis
) -> None:
    assert client.dbsize() == 0
    async with stores(server, 2) as (slow, quick):
        await spread(quick, 5)
        worker = await Worker.open(quick)
        is_noted, may_tell = asyncio.Event(), asyncio.Event()

        async def wait(tell: Callable[..., Any], *call: object) -> None:
            is_noted.set()
            await may_tell.wait()
            await tell(*call)

        async def let_go(tell: Callable[..., Any], updates: Sequence[LimitUpdate], *rest: object) -> None:
            await tell(updates, *rest)
            if OPEN in updates:
                may_tell.set()
                await holding

        await update_limits(slow, OPEN)
        replace_telling(slow, range(1, PARTITIONS), wait)
        holding = asyncio.create_task(update_limits(slow, HELD))
        await is_noted.wait()
        replace_telling(quick, range(1, PARTITIONS), let_go)
        await update_limits(quick, OPEN)
        assert await worker.heartbeat()
        assert len(await worker.take(100)) == 5 * PARTITIONS


async def test_changes_made_at_once_are_all_kept(server: servers.Server, client: redis.Redis) -> None:
    assert client.dbsize() == 0
    async with stores(server, 3) as (one, two, three):
        for number in range(10):
            name = f"d-{number}"
            await asyncio.gather(
                update_limits(one, LimitUpdate(subject="dependency", name=name, permits=0)),
                update_limits(two, LimitUpdate(subject="dependency", name=name, max_running=5)),
                update_limits(three, LimitUpdate(subject="dependency", name=name, rate=Rate(count=3, window=60.0))),
            )
        found = {
            (limit_state.permits, limit_state.max_running, limit_state.rate)
            for limit_state in await all_limit_states(one, "dependency")
        }
        assert found == {(0, 5, Rate(count=3, window=60.0))}
        heeds = {client.hget(f"{tag_of('reprieve', number)}:meta", "applied_state") for number in range(PARTITIONS)}
        assert heeds == {client.hget(f"{tag_of('reprieve', 0)}:meta", "wanted_state")}


async def test_limiter_whose_holder_died_on_the_way_is_held_everywhere(
    server: servers.Server, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.dbsize() == 0
    async with stores(server, 2) as (dying, living):
        await spread(living, 5)
        await update_limits(dying, OPEN)
        first = dying._partitions[0]  # noqa: SLF001 - the last that it speaks to
        compare_and_set = first.compare_and_set

        async def swap_and_die(*call: Any, **options: Any) -> Any:  # noqa: ANN401 - as it answers
            entry = await compare_and_set(*call, **options)
            await dying.close()
            return entry

        monkeypatch.setattr(first, "compare_and_set", swap_and_die)
        with pytest.raises(StoreClosed):
            await set_entry(dying, "limiter:ses", 0, b"held", [HELD], START)
        assert [entry.value for entry in await all_entries(living)] == [b"held"]
        assert await taken(living, "worker") == 0


async def test_state_that_a_server_has_forgotten_is_told_anew(server: servers.Server, client: redis.Redis) -> None:
    assert client.dbsize() == 0
    async with stores(server, 1) as (store,):
        await spread(store, 5)
        for update in (HELD, OPEN, HELD):
            await update_limits(store, update)
        # The server of the first partition failed over to one that knew only the beginning.
        client.hset(f"{tag_of('reprieve', 0)}:meta", mapping={"wanted_state": 1, "applied_state": 1})
        await update_limits(store, OPEN)
        worker = await Worker.open(store)
        assert len(await worker.take(100)) == 5 * PARTITIONS


async def test_process_that_knows_of_one_partition_regulates_all(server: servers.Server, client: redis.Redis) -> None:
    assert client.dbsize() == 0
    small = RedisStore(f"{server.url}?partitions=1")
    await update_limits(small, OPEN)
    async with stores(server, 1) as (large,):
        await spread(large, 5)
        worker = await Worker.open(large)
        await update_limits(small, HELD)
        assert await worker.take(100) == []
    await small.close()


async def test_limiter_that_is_held_while_partitions_are_added_is_held_in_all(
    server: servers.Server, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.dbsize() == 0
    small = RedisStore(f"{server.url}?partitions=1")
    await update_limits(small, OPEN)
    async with stores(server, 1) as (large,):
        await spread(large, 5)
        first = large._partitions[0].reads  # noqa: SLF001 - whose rules are adopted
        limit_states = first.limit_states
        seen: list[str] = []

        async def hold_after(subject: Subject) -> list[LimitState]:
            found = await limit_states(subject)
            seen.append(subject)
            if len(seen) == len(get_args(Subject)):
                await update_limits(small, HELD)
            return found

        monkeypatch.setattr(first, "limit_states", hold_after)
        worker = await Worker.open(large)
        assert len(seen) > len(get_args(Subject))
        assert await worker.take(100) == []
    await small.close()


@pytest.mark.parametrize("partitions", [1, PARTITIONS])
async def test_deletion_whose_answer_was_lost_is_answered_as_the_first(
    partitions: int, server: servers.Server, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.dbsize() == 0
    store = RedisStore(f"{server.url}?partitions={partitions}")
    entry = await set_entry(store, "leader", 0, b"me")
    assert entry is not None
    connection = store._connections.current()  # noqa: SLF001 - where replies get lost
    run = connection._run  # noqa: SLF001 - as above
    lost: list[Any] = []

    async def lose(*call: Any) -> Any:  # noqa: ANN401 - as the script answers
        reply = await run(*call)
        if not lost:
            lost.append(reply)
            raise redis.ConnectionError
        return reply

    monkeypatch.setattr(connection, "_run", lose)
    assert await set_entry(store, "leader", entry.version, None) is not None
    assert lost
    assert await set_entry(store, "leader", entry.version, None) is None
    await store.close()


async def test_limits_that_are_taken_back_leave_nothing_behind(server: servers.Server, client: redis.Redis) -> None:
    async with stores(server, 1) as (store,):
        await update_limits(store, LimitUpdate(subject="task", name="send", max_running=4))
        fields = client.hlen(f"{tag_of('reprieve', 0)}:wanted_limits")
        for number in range(20):
            gate = LimitUpdate(subject="dependency", name=f"d{number}", permits=0)
            weight = LimitUpdate(subject="tenant", name=f"t{number}", queue="default", weight=3.0, max_running=2)
            every = LimitUpdate(subject="group", name=None, max_running=8)
            await update_limits(store, gate, weight, every)
            await update_limits(
                store,
                replace(gate, permits="default"),
                replace(weight, weight=1.0, max_running="default"),
                replace(every, max_running="default"),
            )
        assert client.hlen(f"{tag_of('reprieve', 0)}:wanted_limits") == fields
        (kept,) = await all_limit_states(store, "task")
        assert (kept.name, kept.max_running) == ("send", 4)


@pytest.mark.parametrize("is_default", [False, True])
async def test_limit_that_was_taken_back_on_the_way_is_gone_everywhere(
    is_default: bool, server: servers.Server, client: redis.Redis
) -> None:
    held = replace(HELD, name=None) if is_default else HELD
    async with stores(server, 2) as (dying, living):
        await spread(living, 5)
        await update_limits(dying, held)
        replace_telling(dying, range(1, PARTITIONS), die)
        with pytest.raises(StoreError):
            await update_limits(dying, replace(held, permits="default"))
        worker = await Worker.open(living)
        assert await worker.heartbeat()
        assert len(await worker.take(100)) == 5 * PARTITIONS
