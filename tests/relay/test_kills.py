"""Kills: a relay dies without a word, wherever it is, and every job runs once."""

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random

import pytest

from reprieve.relay import BATCH
from reprieve.testing import adrain
from tests.flows.fleet import PATIENCE, ROOT, Stage, Terms, on_all_terms
from tests.flows.ground import in_keys
from tests.flows.workload import nap
from tests.relay.doomed import STEPS
from tests.relay.shop import Database, Databases, Shop
from tests.servers import redis

POINTS = [f"{step}-{when}" for step in STEPS for when in ("before", "after")]


@pytest.mark.parametrize("point", POINTS)
async def test_a_relay_that_is_killed_there_loses_and_doubles_nothing(shop: Shop, point: str) -> None:
    ids = shop.send(2 * BATCH + 1)
    async with doomed(shop, point, signal.SIGKILL) as relay, asyncio.timeout(PATIENCE):
        assert await relay.wait() == -signal.SIGKILL
    # What has arrived runs and is forgotten; what comes again would be taken for new, if nothing else told.
    ran = await run_all(shop)
    assert len(ran) in (BATCH, 2 * BATCH)
    await shop.forget_all()
    await shop.drain()
    ran += await run_all(shop)
    assert ran == Counter(ids)
    assert (await shop.outbox().look()).waiting == 0


@pytest.mark.parametrize("point", ["deliver-before", "deliver-after", "settle-after"])
async def test_a_relay_that_stops_and_goes_on_when_others_have_done_its_work_doubles_nothing(
    shop: Shop, point: str
) -> None:
    ids = shop.send(2 * BATCH)
    async with doomed(shop, point, signal.SIGSTOP) as relay:
        async with asyncio.timeout(PATIENCE):
            while Path(f"/proc/{relay.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":  # noqa: ASYNC110, ASYNC240 - so the kernel tells
                await asyncio.sleep(0.02)
            # A relay that stops keeps rows of PostgreSQL for a few seconds.
            while (await shop.outbox().look()).waiting:
                await shop.drain()
                await asyncio.sleep(0.2)
        ran = await run_all(shop)
        await shop.forget_all()
        relay.send_signal(signal.SIGCONT)
        later = shop.send()
        ran += await run_until_ran(shop, later)
    assert ran == Counter(ids + later)


async def run_until_ran(shop: Shop, ids: list[str]) -> Counter[str]:
    """Run everything that arrives until these jobs have."""
    ran: Counter[str] = Counter()
    async with asyncio.timeout(PATIENCE):
        while not ran.keys() >= set(ids):
            ran += await run_all(shop)
            await asyncio.sleep(0.1)
    return ran


@asynccontextmanager
async def doomed(shop: Shop, point: str, how: signal.Signals) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a relay that ends itself there, and that is killed in the end if it lives."""
    command = ("-m", "tests.relay.doomed", shop.url, shop.database.url, point, how.name)
    relay = await asyncio.create_subprocess_exec(
        sys.executable, *command, cwd=ROOT, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        yield relay
    finally:
        if relay.returncode is None:
            relay.kill()
            await relay.wait()


async def run_all(shop: Shop) -> Counter[str]:
    """Run everything that has arrived; answer how often each job was run."""
    return Counter(attempted.job.id for attempted in (await adrain(shop.app)).attempts)


class Relays:
    """Relays in processes of their own, one after the other."""

    def __init__(self, stage: Stage, outbox: str) -> None:
        self._stage = stage
        self._command = ("-m", "reprieve", "relay", "tests.flows.workload:app")
        self._ends = ("--store", stage.ground.url, "--outbox", outbox)
        self._count = 0

    @asynccontextmanager
    async def one(self) -> AsyncIterator[asyncio.subprocess.Process]:
        """Start a relay, which is killed in the end if it lives."""
        self._count += 1
        with self._log.open("wb") as log:
            relay = await asyncio.create_subprocess_exec(
                *(sys.executable, *self._command, *self._ends), cwd=ROOT, stderr=log, stdout=log
            )
        try:
            yield relay
        finally:
            if relay.returncode is None:
                relay.kill()
                await relay.wait()

    @property
    def _log(self) -> Path:
        return self._stage.folder / f"relay-{self._count}"

    async def started(self) -> None:
        """Wait until the newest knows what to do when it is told to end."""
        await self._stage.until(lambda: "relay started" in self._log.read_text(), "the relay has started")


async def produce(stage: Stage, database: Database, until: asyncio.Event) -> list[str]:
    """Send jobs in many small transactions, some of which do not commit."""
    app = stage.open_app(outbox=database.url)
    ids: list[str] = []

    def one(number: int) -> list[str]:
        with database.transaction() as connection:
            task = nap.using(connection=connection, key=f"order-{number}" if number % 3 == 0 else "")
            handles = app.enqueue_many(task.call(0.0) for _ in range(1 if number % 3 == 0 else 5))
            if number % 7 == 0:
                connection.rollback()
                if "sqlite" in database.url:
                    connection.execute("begin")
                return []
        return [handle.id for handle in handles]

    number = 0
    async with app:
        while not until.is_set():
            number += 1
            ids += await asyncio.to_thread(one, number)
            await asyncio.sleep(0.002)
    return ids


def has_begun_more(stage: Stage, than: int) -> bool:
    return len(stage.began()) > than


@on_all_terms
async def test_a_relay_that_is_killed_again_and_again_under_load_loses_and_doubles_nothing(
    databases: Databases, tmp_path: Path, terms: Terms
) -> None:
    chance = Random(terms.times)
    with redis.own() as server, in_keys(server) as ground, databases(tmp_path) as database:
        stage = Stage(tmp_path, Terms(lease=15.0, heartbeat=5.0, times=1), ground)
        stage.hire(slots=50)
        relays = Relays(stage, database.url)
        quiet = asyncio.Event()
        producer = asyncio.create_task(produce(stage, database, quiet))
        try:
            for _ in range(4 if terms.times == 1 else 60):
                async with relays.one() as relay:
                    await relays.started()
                    begun = len(stage.began())
                    await stage.until(partial(has_begun_more, stage, begun), "the relay works", every=0.001)
                    await asyncio.sleep(chance.uniform(0.0, 0.1))
                    os.kill(relay.pid, signal.SIGKILL)
                    await relay.wait()
            quiet.set()
            ids = await producer
            async with relays.one() as relay:
                await stage.until(lambda: len({line.job for line in stage.finished()}) >= len(ids), "all is done")
                await relays.started()
                await stage.let_pass(0.5)
                relay.terminate()
                assert await relay.wait() == 0
            stage.figure(f"jobs of {len(ids)} that ran, of those killed in the middle", len(stage.began()))
            assert Counter(line.job for line in stage.began()) == Counter(ids)
        finally:
            quiet.set()
            await asyncio.gather(producer, return_exceptions=True)
            await stage.close()
