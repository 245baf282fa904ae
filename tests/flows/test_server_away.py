"""The server away: it crashes under load and comes back, and nothing is lost, doubled or refused."""

import asyncio
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from reprieve.clock import ticks
from reprieve.stores.paginate import all_limit_states
from tests.flows.fleet import PATIENCE, SOON, Stage, Terms, on_all_terms, play
from tests.flows.ground import in_a_schema, in_keys
from tests.flows.workload import nap
from tests.servers import postgres, redis

PRODUCERS = 4


async def produce(stage: Stage, until: asyncio.Event) -> list[str]:
    """Enqueue one job after the other; whatever is refused fails the test."""
    ids = []
    async with stage.open_app() as app:
        while not until.is_set():
            ids.append((await app.aenqueue_many([nap.call(0.005)]))[0].id)
            await asyncio.sleep(0.01)
    return ids


async def crash(stage: Stage, server: postgres.Server | redis.Server) -> float:
    """Crash the server in the middle of work; answer how long after its return the first job began."""
    begun = len(stage.began())
    await stage.until(lambda: len(stage.began()) > begun + 50, "the load goes on")
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)
    back = ticks()
    first = await stage.until(lambda: [line for line in stage.began() if line.at > back], "a job begins", every=0.005)
    return first[0].at - back


@on_all_terms
@pytest.mark.parametrize("servers", [postgres, redis], ids=["postgres", "redis"])
async def test_a_crash_of_the_server_loses_doubles_and_refuses_nothing(
    servers: ModuleType, tmp_path: Path, terms: Terms
) -> None:
    with servers.own() as server:

        async def scene(stage: Stage) -> None:
            trees = [stage.hire(slots=8, lease=15.0, heartbeat=5.0) for _ in range(2)]
            quiet = asyncio.Event()
            producers = [asyncio.create_task(produce(stage, quiet)) for _ in range(PRODUCERS)]
            late = [await crash(stage, server) for _ in range(terms.times)]
            quiet.set()
            ids = [job for jobs in await asyncio.gather(*producers) for job in jobs]
            await stage.until(lambda: len({line.job for line in stage.finished()}) == len(ids), "all is done", PATIENCE)
            assert Counter(line.job for line in stage.began()) == Counter(ids)
            await stage.until(lambda: is_settled(stage), "all is settled")
            assert [tree.status() for tree in trees] == [None, None]
            stage.figure("first job after the server is back, at the latest", max(late), at_most=SOON)

        once = Terms(lease=terms.lease, heartbeat=terms.heartbeat, times=1)
        await play(scene, tmp_path, once, lambda _: in_keys(server) if servers is redis else in_a_schema(server.url))


async def is_settled(stage: Stage) -> bool:
    limit_states = await all_limit_states(stage.app.store, "queue")
    return [limit_state.running for limit_state in limit_states] == [0]
