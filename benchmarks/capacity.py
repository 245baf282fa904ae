"""Measure how many bytes a job takes in each store, by payload size and state: `python -m benchmarks.capacity`.

With --fill, also enqueue into a Redis server with `maxmemory 512mb` until it refuses, and count. The results are the
numbers of docs/operate/capacity.md.
"""

import argparse
import asyncio
import contextlib
import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.flow import machine
from benchmarks.homes import Home, PostgresHome, RedisHome, SqliteHome
from benchmarks.store import LEASE, NOW, succeed
from reprieve.core import change
from reprieve.core.change import Change
from reprieve.core.job import Cause, Job
from reprieve.core.move import Dead, Retry
from reprieve.errors import StoreFull
from reprieve.stores.protocol import Claim, Heartbeat, Store
from reprieve.stores.redis import RedisStore
from tests.servers import postgres, redis

PAYLOADS = (200, 1_024, 10_240)
"""Bytes of the arguments of a job."""

JOBS = {200: 30_000, 1_024: 30_000, 10_240: 10_000}
"""Jobs that are stored to measure each size; more for small ones, so that what a store holds anyway weighs little."""

TENANTS = 100
MAXMEMORY = 512 * 1024 * 1024
RESULTS = Path(__file__).parent / "results" / "capacity.json"
CAUSE = Cause(
    reason="451 4.7.1 Service unavailable - try again later (mx3.example.net)",
    code="451",
    kind="transient",
    fingerprint="3f9ac41b2d7e5a60",
)
console = Console()


class Filler:
    """Stores jobs with payloads of one size, and works them off."""

    def __init__(self, store: Store, payload: int) -> None:
        """Take an empty store, and the bytes of a payload."""
        self._store = store
        self._payload = payload
        # Random bytes: what a store saves by compressing depends on the payload, so none is counted.
        self._random = random.Random(payload)
        self._number = 0

    async def open(self) -> None:
        """Open the session that claims."""
        await self._store.heartbeat(Heartbeat(session="capacity", now=NOW, lease=LEASE, slots=1_000, is_new=True))

    async def enqueue(self, count: int, key: str = "") -> None:
        """Enqueue jobs, with a unique key each if its prefix is given."""
        for start in range(0, count, 500):
            jobs = [self._job(number, key) for number in range(start, min(count, start + 500))]
            await self._store.enqueue(jobs, NOW)

    def _job(self, number: int, key: str) -> Job:
        return Job(
            id=self._store.new_id(NOW, "mail"),
            task="shop.jobs.send_welcome",
            queue="mail",
            tenant=f"tenant-{number % TENANTS}",
            dependency="smtp.example.net",
            key=f"{key}{number:08}" if key else "",
            payload=self._random.randbytes(self._payload),
            max_attempts=5,
            created_at=NOW,
            due_at=NOW,
        )

    async def settle(self, kind: str) -> None:
        """Claim every job once, and settle it."""
        changes: tuple[Change, ...] = ()
        while True:
            self._number += 1
            claim = Claim(
                session="capacity", number=self._number, now=NOW, queues=("mail",), limit=100, changes=changes
            )
            claimed = await self._store.claim(claim)
            if not claimed.jobs and not claimed.results:
                return
            changes = tuple(_settled(job, kind) for job in claimed.jobs)


def _settled(job: Job, kind: str) -> Change:
    match kind:
        case "retrying":
            return change.settle(job, Retry(due_at=NOW + 3_600_000, cause=CAUSE, delay=3_600.0), NOW)
        case "dead":
            return change.settle(job, Dead(cause=CAUSE, death="exhausted", charged=True), NOW)
        case _:
            return succeed(job)


async def _weigh(home: Home, payload: int, kind: str, count: int) -> float:
    """Return the bytes that a job of this kind takes."""
    store = home.open(is_fast=False)
    try:
        filler = Filler(store, payload)
        await filler.open()
        before = await home.size()
        await filler.enqueue(count, "order-" if kind == "with a key" else "")
        if kind in ("retrying", "dead"):
            await filler.settle(kind)
        return (await home.size() - before) / count
    finally:
        await store.close()
        home.remove()


KINDS = ("waiting", "with a key", "retrying", "dead")


async def _measure(home: Home, scale: float) -> dict[str, dict[str, int]]:
    return {
        kind: {str(size): round(await _weigh(home, size, kind, round(JOBS[size] * scale))) for size in PAYLOADS}
        for kind in KINDS
    }


@contextlib.contextmanager
def _homes() -> Iterator[dict[str, Home]]:
    with tempfile.TemporaryDirectory() as folder, postgres.running() as database, redis.running() as server:
        yield {"sqlite": SqliteHome(Path(folder)), "postgres": PostgresHome(database), "redis": RedisHome(server)}


async def _fill(payload: int) -> int:
    """Enqueue into a server with 512 MB until it refuses; return how many jobs it holds."""
    with redis.own(maxmemory=str(MAXMEMORY)) as server:
        store = RedisStore(server.url)
        filler = Filler(store, payload)
        stored = 0
        with contextlib.suppress(StoreFull):
            while True:
                await filler.enqueue(500)
                stored += 500
        await store.close()
        return stored


def _print(results: dict[str, dict[str, dict[str, int]]]) -> None:
    table = Table("store", "job", *(f"{size:,} B" for size in PAYLOADS), title="bytes of a job, by its payload")
    for name, kinds in results.items():
        for kind, sizes in kinds.items():
            table.add_row(name, kind, *(f"{sizes[str(size)]:,}" for size in PAYLOADS))
    console.print(table)


def main(arguments: list[str] | None = None) -> None:
    """Measure, print a table, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="part of the jobs; less is faster and less exact")
    parser.add_argument("--fill", action="store_true", help="also fill a Redis server with 512 MB")
    parser.add_argument("--output", type=Path, default=RESULTS, help="where the results are written")
    chosen = parser.parse_args(arguments)
    with _homes() as homes:
        found = {name: asyncio.run(_measure(home, chosen.scale)) for name, home in homes.items()}
    _print(found)
    results: dict[str, object] = {
        "command": "python -m benchmarks.capacity" + (" --fill" if chosen.fill else ""),
        "commit": machine.commit(),
        "jobs": {str(size): round(count * chosen.scale) for size, count in JOBS.items()},
        "bytes": found,
    }
    if chosen.fill:
        results["filled"] = {str(size): asyncio.run(_fill(size)) for size in PAYLOADS}
        console.print("jobs in 512 MB of Redis:", results["filled"])
    chosen.output.write_text(json.dumps(results, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
