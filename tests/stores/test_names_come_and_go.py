"""Many names come and go: rows, keys and space return to where they were, and no claim takes longer for them."""

import gc
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import psycopg
import pytest
import redis

from reprieve.clock import ticks
from reprieve.stores.open import open_store
from reprieve.stores.postgres.address import address_of
from reprieve.stores.protocol import Retention, Store
from reprieve.stores.sql.lanes import CACHED_SECONDS
from reprieve.testing.conformance.stage import DAY, START, Worker, new_job, succeed

FEW_LANES, MANY_LANES = 300, 100_000
BATCH = 500
CLAIMS = 20
MAX_MORE_BLOCKS = 500_000
"""What caches of a fixed size may take: a third of what the names of 100,000 lanes would take."""
NAMES = ("lane", "tenant", "limiter", "queue")


class Size(NamedTuple):
    """What a store holds: rows or keys of names, and bytes."""

    names: int
    size: int


class Figures(NamedTuple):
    """What was measured, in the order in which it happened."""

    before: Size
    full: Size
    after: Size
    claims_ms: tuple[float, float, float]
    """The median claim before, with all lanes, and after."""
    blocks: tuple[int, int, int]
    """Blocks of memory that the interpreter has in use before, with all lanes, and after its caches were emptied."""


def _sqlite_size(path: Path) -> Size:
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("vacuum")
        file.execute("pragma wal_checkpoint(truncate)")
        rows = sum(file.execute(f"select count(*) from reprieve_{name}").fetchone()[0] for name in NAMES)  # noqa: S608 - our own tables
    return Size(rows, path.stat().st_size)


def _postgres_size(url: str) -> Size:
    server, _, schema = url.partition("?schema=")
    with psycopg.connect(server, autocommit=True) as admin:
        tables = [name for (name,) in admin.execute("select tablename from pg_tables where schemaname = %s", (schema,))]
        for name in tables:
            admin.execute(f"vacuum full {schema}.{name}")
    with address_of(url).connect() as tx:
        rows = sum((tx.execute(f"select count(*) from {name}").fetchone() or (0,))[0] for name in NAMES)  # noqa: S608 - our own tables
        found = tx.execute("select sum(pg_total_relation_size(c)) from unnest(%s::text[]) as c", (tables,)).fetchone()
    return Size(rows, int(found[0]) if found else 0)


def _redis_size(url: str, prefix: str) -> Size:
    with redis.Redis.from_url(url) as client:
        found = list(client.scan_iter(f"{{{prefix}:*", count=1_000))

        def of_each(command: str, keys: list[bytes]) -> list[int]:
            """Return the reply of a command for each key, in few round trips."""
            replies: list[int] = []
            for start in range(0, len(keys), 1_000):
                pipeline = client.pipeline(transaction=False)
                for key in keys[start : start + 1_000]:
                    pipeline.execute_command(*command.split(), key)
                replies += pipeline.execute()
            return replies

        # Series are kept by time, whatever the names.
        lasting = [key for key, ttl in zip(found, of_each("TTL", found), strict=True) if ttl < 0]
        keys = [key for key in lasting if b":series" not in key]
        hashes = [key for key in keys if key.endswith((b":tenants", b":lanes", b":limiters", b":queues"))]
        return Size(len(keys) + sum(of_each("HLEN", hashes)), sum(of_each("MEMORY USAGE", keys)))


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def measured(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Callable[[], Size]]:
    """Return the URL of an empty store of each kind, and how to measure it."""
    name = f"any_{uuid4().hex[:12]}"
    match request.param:
        case "sqlite":
            return f"sqlite:///{tmp_path}/jobs.db", lambda: _sqlite_size(tmp_path / "jobs.db")
        case "postgres":
            url = f"{request.getfixturevalue('postgres_url')}?schema={name}"
            return url, lambda: _postgres_size(url)
        case _:
            server = request.getfixturevalue("redis_url")
            return f"{server}?prefix={name}", lambda: _redis_size(server, name)


class History:
    """Jobs of many lanes are enqueued, run and pruned."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._worker: Worker | None = None

    async def worker(self) -> Worker:
        if self._worker is None:
            self._worker = await Worker.open(self._store, slots=2 * BATCH)
        return self._worker

    async def fill(self, lanes: int, at: int) -> None:
        """Enqueue a job for each of so many lanes."""
        for start in range(0, lanes, BATCH):
            jobs = [
                new_job(self._store, at, tenant=f"t{n}", task=f"k{n % 97}", group=f"g{n}", dependency=f"d{n % 1_009}")
                for n in range(start, min(start + BATCH, lanes))
            ]
            await self._store.enqueue(jobs, at)
        # PostgreSQL counts so many lanes with each call.
        while not (await self._store.prune(Retention(now=at))).is_all:
            pass

    async def claim_ms(self, at: int) -> float:
        """Return the median time of a claim of one job, which is settled."""
        worker, times = await self.worker(), []
        for _ in range(CLAIMS):
            await self._store.enqueue([new_job(self._store, at, tenant="steady")], at)
            began = ticks()
            taken = await worker.take(1, at)
            times.append((ticks() - began) * 1_000)
            await worker.settle(*(succeed(job, at) for job in taken), at=at)
        return sorted(times)[CLAIMS // 2]

    async def work_off(self, at: int) -> None:
        """Run every job that waits."""
        worker = await self.worker()
        while (claimed := await worker.ask(BATCH, at)).jobs or claimed.next_at == at:
            await worker.settle(*(succeed(job, at) for job in claimed.jobs), at=at)

    async def prune(self, at: int) -> None:
        retention = Retention(now=at, succeeded=0, succeeded_for=0)
        while not (await self._store.prune(retention)).is_all:
            pass


async def come_and_go(url: str, size: Callable[[], Size], lanes: int, monkeypatch: pytest.MonkeyPatch) -> Figures:
    store = open_store(url)
    history = History(store)
    first = await history.claim_ms(START)
    await history.prune(START + DAY)
    before, blocks = size(), _blocks()
    await history.fill(lanes, START + DAY)
    crowded = await history.claim_ms(START + DAY)
    full, blocks_when_full = size(), _blocks()
    await history.work_off(START + DAY)
    await history.prune(START + 2 * DAY)
    later = ticks() + CACHED_SECONDS
    monkeypatch.setattr("reprieve.stores.sql.lanes.ticks", lambda: later)
    last = await history.claim_ms(START + 2 * DAY)
    await history.prune(START + 3 * DAY)
    after = size()
    figures = Figures(before, full, after, (first, crowded, last), (blocks, blocks_when_full, _blocks()))
    await store.close()
    return figures


def _blocks() -> int:
    gc.collect()
    return sys.getallocatedblocks()


def check(figures: Figures, lanes: int) -> None:
    assert figures.full.names >= 2 * lanes
    assert figures.after.names == figures.before.names
    assert figures.after.size <= 1.5 * figures.before.size + 65_536
    assert figures.blocks[2] <= figures.blocks[0] + MAX_MORE_BLOCKS


async def test_names_come_and_go(measured: tuple[str, Callable[[], Size]], monkeypatch: pytest.MonkeyPatch) -> None:
    check(await come_and_go(*measured, FEW_LANES, monkeypatch), FEW_LANES)


@pytest.mark.faults
async def test_a_hundred_thousand_names_come_and_go(
    measured: tuple[str, Callable[[], Size]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = await come_and_go(*measured, MANY_LANES, monkeypatch)
    with capsys.disabled():
        print(figures)  # noqa: T201 - the figures are what a run is for
    check(figures, MANY_LANES)
