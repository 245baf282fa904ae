"""Counts: processes and servers are killed in the middle of everything, and every kept count equals a recount."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from reprieve.stores.protocol import Filter, Retention
from reprieve.testing.conformance.recount import differences, series_differences
from tests.flows.fleet import ROOT, Stage, Terms, Tree, on_all_terms, play
from tests.flows.ground import Ground, in_a_file, in_a_schema, in_keys
from tests.flows.workload import LOG
from tests.servers import postgres, redis

QUEUES = ("default", "relay")
BEGUN = 20
"""Attempts that begin before the next kill."""


class Busy:
    """Processes that enqueue, retry, cancel and prune."""

    def __init__(self, stage: Stage, count: int) -> None:
        self._stage = stage
        self._processes: list[subprocess.Popen[bytes]] = []
        for _ in range(count):
            self.start()

    def start(self) -> None:
        number = len(list(self._stage.folder.glob("busy-*")))
        with (self._stage.folder / f"busy-{number}").open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.flows.busy", self._stage.ground.url],
                cwd=ROOT,
                env=os.environ | {LOG: str(self._stage.log)},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
            )
        self._processes.append(process)

    def kill(self) -> None:
        """Kill the oldest."""
        process = self._processes.pop(0)
        assert process.poll() is None, self.said()
        process.kill()
        process.communicate()

    def kill_all(self) -> None:
        while self._processes:
            self.kill()

    def end(self) -> None:
        """Kill those that still run, whatever happened."""
        for process in self._processes:
            with suppress(ProcessLookupError):
                process.kill()
            process.communicate()
        self._processes.clear()

    def said(self) -> str:
        return "\n".join(path.read_text()[-2_000:] for path in sorted(self._stage.folder.glob("busy-*")))


@contextmanager
def ground_of(kind: str, folder: Path) -> Iterator[tuple[Ground, postgres.Server | redis.Server | None]]:
    """Return a store on a server of its own, which can be killed; a file has none."""
    with ExitStack() as stack:
        match kind:
            case "sqlite":
                yield stack.enter_context(in_a_file(folder)), None
            case "postgres":
                database = stack.enter_context(postgres.own())
                yield stack.enter_context(in_a_schema(database.url)), database
            case _:
                server = stack.enter_context(redis.own())
                yield stack.enter_context(in_keys(server)), server


async def work_goes_on(stage: Stage) -> None:
    begun = len(stage.began())
    await stage.until(lambda: len(stage.began()) >= begun + BEGUN, "the work goes on")


async def restart(server: postgres.Server | redis.Server | None) -> None:
    if server is not None:
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)


def hire(stage: Stage) -> Tree:
    return stage.hire(queues=QUEUES, slots=8)


@on_all_terms
@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis"])
async def test_counts_equal_a_recount_whatever_is_killed(kind: str, tmp_path: Path, terms: Terms) -> None:
    with ground_of(kind, tmp_path) as (ground, server):

        async def scene(stage: Stage) -> None:
            workers = [hire(stage), hire(stage)]
            busy = Busy(stage, 2)
            try:
                for _ in range(terms.times):
                    await work_goes_on(stage)
                    workers.pop(0).send_all(signal.SIGKILL)
                    busy.kill()
                    workers.append(hire(stage))
                    busy.start()
                    await work_goes_on(stage)
                    await restart(server)
                await work_goes_on(stage)
                busy.kill_all()
                for tree in workers:
                    tree.end()
            finally:
                busy.end()
            await restart(server)
            await equal_a_recount(stage, "after everything was killed")
            survivor = hire(stage)
            await stage.until(lambda: nothing_runs(stage), "what was lost has run again", terms.lease + 30.0)
            survivor.end()
            await equal_a_recount(stage, "after the jobs were recovered")
            await series_equal_the_events(stage)

        @contextmanager
        def standing(_: Path) -> Iterator[Ground]:
            yield ground

        once = Terms(lease=terms.lease, heartbeat=terms.heartbeat, times=1)
        await play(scene, tmp_path, once, standing)


async def equal_a_recount(stage: Stage, when: str) -> None:
    assert await differences(stage.app.store, stage.app.clock.now()) == [], when


async def series_equal_the_events(stage: Stage) -> None:
    """Compare the numbers of the last hour, which a prune adds to the series first."""
    store, now = stage.app.store, stage.app.clock.now()
    while not (await store.prune(Retention(now=now, succeeded=1_000_000))).is_all:
        pass
    assert await series_differences(store, now - 3_600_000, now + 60_000, whole_queues=("relay",)) == []


async def nothing_runs(stage: Stage) -> bool:
    counted = await stage.app.store.tally("status", Filter(), stage.app.clock.now())
    return not any(counted.counts.get(status, 0) for status in ("ready", "running", "stuck", "retrying"))
