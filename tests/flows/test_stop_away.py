"""A worker that is told to stop while its store is away, and runs nothing, does not wait for the store."""

import asyncio
import signal
from pathlib import Path
from types import ModuleType

import pytest

from reprieve.clock import ticks
from tests.flows.fleet import ONCE, PATIENCE, Stage, Tree, calls, play
from tests.flows.ground import in_a_file, in_a_schema, in_keys
from tests.flows.workload import nap
from tests.servers import postgres, redis

MAX_STOP_SECONDS = 2.0


async def seconds_to_stop(stage: Stage, tree: Tree) -> float:
    began = ticks()
    tree.send(signal.SIGTERM)
    await stage.until(lambda: tree.status() is not None, "the worker has ended", 2 * PATIENCE)
    return ticks() - began


async def idle(stage: Stage) -> Tree:
    """Return a worker that has worked, and waits."""
    tree = stage.hire(slots=4)
    await stage.succeeded(*await stage.enqueue(*calls(nap, 3)))
    return tree


@pytest.mark.faults
@pytest.mark.parametrize("servers", [postgres, redis], ids=["postgres", "redis"])
async def test_an_idle_worker_stops_within_two_seconds_while_its_server_is_down(
    servers: ModuleType, tmp_path: Path
) -> None:
    with servers.own() as server:

        async def scene(stage: Stage) -> None:
            tree = await idle(stage)
            await asyncio.to_thread(server.kill)
            await stage.until(lambda: tree.said("store unavailable"), "the worker has noticed it")
            took = await seconds_to_stop(stage, tree)
            await asyncio.to_thread(server.start)
            assert took < MAX_STOP_SECONDS
            assert tree.status() == 0

        await play(scene, tmp_path, ONCE, lambda _: in_keys(server) if servers is redis else in_a_schema(server.url))


@pytest.mark.faults
async def test_an_idle_worker_stops_within_two_seconds_while_its_file_is_gone(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        tree = await idle(stage)
        for end in ("", "-wal", "-shm"):
            await asyncio.to_thread(Path(f"{stage.ground.url.removeprefix('sqlite:///')}{end}").unlink)
        await stage.until(lambda: tree.said("store unavailable"), "the worker has noticed it")
        took = await seconds_to_stop(stage, tree)
        assert took < MAX_STOP_SECONDS
        assert tree.status() == 0

    await play(scene, tmp_path, ONCE, in_a_file)
