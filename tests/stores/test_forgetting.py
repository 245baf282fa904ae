"""Names come and go, in stores and in processes: a producer whose lanes are deleted meanwhile loses no job."""

import asyncio
import json
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from reprieve.clock import ticks
from reprieve.stores.open import open_store
from reprieve.stores.postgres import PostgresStore
from reprieve.stores.protocol import NAMES_INTERVAL_SECONDS, Filter, Retention, Store
from reprieve.stores.sqlite import SqliteStore
from reprieve.testing.conformance.stage import SECOND, START, Worker, new_job, succeed

ROOT = Path(__file__).parents[2]
JOBS = 60
PRODUCERS = 2
DEADLINE_SECONDS = 120.0


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty store of each kind."""
    name = f"any_{uuid4().hex[:12]}"
    match request.param:
        case "sqlite":
            return f"sqlite:///{tmp_path}/jobs.db"
        case "postgres":
            return f"{request.getfixturevalue('postgres_url')}?schema={name}"
        case _:
            return f"{request.getfixturevalue('redis_url')}?prefix={name}"


class Fleet:
    """A worker that runs jobs and deletes names at every moment."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._now = START
        self.ran: list[str] = []
        self.forgotten = 0

    async def run(self, producers: "asyncio.Future[list[list[str]]]") -> None:
        """Run jobs and prune until the producers are done and nothing is left to run."""
        worker = await Worker.open(self._store)
        until = ticks() + DEADLINE_SECONDS
        while ticks() < until:
            is_over = producers.done()
            self._now += int(NAMES_INTERVAL_SECONDS) * 2 * SECOND
            jobs = await worker.take(10, self._now)
            await worker.settle(*(succeed(job, self._now) for job in jobs), at=self._now)
            self.ran += [job.id for job in jobs]
            pruned = await self._store.prune(Retention(now=self._now, succeeded=0, succeeded_for=0))
            self.forgotten += pruned.names
            if is_over and not jobs and not await self._left():
                return
        message = f"{await self._left()} jobs are left"
        raise AssertionError(message)

    async def _left(self) -> int:
        tally = (await self._store.tally("status", Filter(), self._now)).counts
        return sum(tally.values())


async def _producer(url: str) -> list[str]:
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.stores.forgetting_producer",
        url,
        str(JOBS),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await program.communicate()
    ids: list[str] = json.loads(said)
    return ids


async def test_producers_whose_lanes_are_deleted_lose_no_job(any_url: str) -> None:
    store = open_store(any_url)
    fleet = Fleet(store)
    producers = asyncio.gather(*(_producer(any_url) for _ in range(PRODUCERS)))
    await fleet.run(producers)
    wanted = sorted(job for ids in await producers for job in ids)
    assert sorted(fleet.ran) == wanted
    assert fleet.forgotten > 0
    await store.close()


async def test_process_forgets_the_lanes_that_it_does_not_use(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [ticks()]
    monkeypatch.setattr("reprieve.stores.sql.lanes.ticks", lambda: now[0])
    sqlite = SqliteStore(tmp_path / "jobs.db")
    postgres = PostgresStore(f"{postgres_url}?schema=any_{uuid4().hex[:12]}")
    stores: list[Store] = [sqlite, postgres]
    for store in stores:
        worker = await Worker.open(store)
        for number in range(50):
            await store.enqueue([new_job(store, tenant=f"t{number}")], START)
        await worker.settle(*(succeed(job) for job in await worker.exactly(50)))
    assert _cached_lanes(sqlite, postgres) == (50, 50)
    now[0] += 1_000.0
    for store in stores:
        await store.enqueue([new_job(store, tenant="last")], START)
        job = await (await Worker.open(store, "worker-2")).one()
        assert job.tenant == "last"
        await store.close()
    assert _cached_lanes(sqlite, postgres) == (1, 1)


def _cached_lanes(sqlite: SqliteStore, postgres: PostgresStore) -> tuple[int, int]:
    return len(sqlite._lanes._by_id), len(postgres._known_lanes)  # noqa: SLF001 - what a process keeps shows nowhere else
