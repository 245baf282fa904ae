"""What a store costs a job, by itself: `python -m benchmarks.store`, or with `--store` and the URL of a server.

Through the store's own API, in one process: no worker, no tasks. Sizes are those of the claims in the documents; give a
smaller scale with `--scale 0.1` to try it out.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.homes import Home, PostgresHome, RedisHome, SqliteHome
from reprieve.core import change
from reprieve.core.change import Change, Request
from reprieve.core.job import Cause, Job, Wait
from reprieve.core.move import Dead, Retry, Succeed
from reprieve.stores.protocol import Claim, Heartbeat, LimitUpdate
from reprieve.testing.conformance.stage import PROGRAM

NOW = 1_760_000_000_000
PAYLOAD = b"x" * 200
LEASE = 10_000_000
MANY = 1_000_000
CAUSE = Cause(reason="421 try again", code="421", kind="transient")
console = Console()


class Bench:
    """One empty store, and a session that works on it."""

    def __init__(self, home: Home, durability: str = "full") -> None:
        """Open an empty store."""
        self.home = home
        self.store = home.open(is_fast=durability == "fast")
        self.number = 0

    async def open(self, slots: int = 1_000) -> None:
        """Open the session."""
        await self.store.heartbeat(Heartbeat(session="bench", now=NOW, lease=LEASE, slots=slots, is_new=True))

    async def fill(
        self, count: int, tenants: int = 1, *, due_in: int = 0, wait: Wait = "turn", chunk: int = 1_000
    ) -> float:
        """Enqueue jobs in bulk; return jobs per second."""
        started = time.perf_counter()
        for start in track(
            range(0, count, chunk), f"enqueue {count:,}", console=console, transient=True, disable=count < 100_000
        ):
            jobs = [
                self.job(f"tenant-{number % tenants}", due_in=due_in and due_in + number, wait=wait)
                for number in range(start, min(count, start + chunk))
            ]
            await self.store.enqueue(jobs, NOW)
        return count / (time.perf_counter() - started)

    def job(self, tenant: str, *, due_in: int = 0, wait: Wait = "turn") -> Job:
        """Make a job."""
        return Job(
            id=self.store.new_id(NOW, "mail"),
            task="send",
            queue="mail",
            tenant=tenant,
            dependency="ses",
            payload=PAYLOAD,
            created_at=NOW,
            due_at=NOW + due_in,
            waiting_for=wait,
        )

    async def drain(self, count: int, batch: int, settle: Callable[[Job], Change]) -> tuple[float, float]:
        """Claim and settle so many jobs; return jobs per second, and microseconds of processor time for each."""
        done = 0
        changes: tuple[Change, ...] = ()
        started, cpu = time.perf_counter(), time.process_time() + self.home.cpu()
        while done < count:
            self.number += 1
            now = NOW + round(1_000 * (time.perf_counter() - started))
            claim = Claim(session="bench", number=self.number, now=now, queues=("mail",), limit=batch, changes=changes)
            claimed = await self.store.claim(claim)
            done += claimed.results.count("applied")
            changes = tuple(map(settle, claimed.jobs))
            if not claimed.jobs and not claimed.results:
                break
        elapsed = time.perf_counter() - started
        return done / elapsed, (time.process_time() + self.home.cpu() - cpu) / done * 1e6

    async def close(self) -> None:
        """Close and remove the store."""
        await self.store.close()
        self.home.remove()


def succeed(job: Job) -> Change:
    """Settle a success."""
    return change.settle(job, Succeed(), NOW)


def retry(job: Job) -> Change:
    """Settle a first failure with a retry that is due at once, and then a success."""
    if job.attempt > 1:
        return succeed(job)
    return change.settle(job, Retry(due_at=NOW, cause=CAUSE, delay=0.001), NOW)


def bury(job: Job) -> Change:
    """Settle a failure that is not retried."""
    return change.settle(job, Dead(cause=CAUSE, death="permanent"), NOW)


async def by_batch(home: Home, scale: float) -> Table:
    """Claim and settle by batch size."""
    table = Table("batch", "full: jobs/s", "µs CPU", "fast: jobs/s", "µs CPU", title="Claim + settle, 100 tenants")
    for batch in (1, 10, 100, 250):
        entries = [str(batch)]
        for durability in ("full", "fast"):
            bench = Bench(home, durability)
            await bench.open()
            count = round(min(30_000, 3_000 * batch) * scale)
            await bench.fill(count, 100)
            speed, cpu = await bench.drain(count, batch, succeed)
            entries += [f"{speed:,.0f}", f"{cpu:.1f}"]
            await bench.close()
        table.add_row(*entries)
    return table


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a store holds when jobs are claimed from it."""

    name: str
    waiting: int = 30_000
    tenants: int = 100
    beside: int = 0
    """Jobs that are not ready."""
    of: Wait | None = "schedule"
    """What these wait for; none is dead."""
    settle: Callable[[Job], Change] = succeed

    async def fill(self, bench: Bench) -> None:
        """Make it so."""
        if self.of is not None:
            await bench.fill(self.beside, self.tenants, due_in=3_600_000, wait=self.of)
        elif self.beside:
            await bench.fill(self.beside, self.tenants)
            await bench.drain(self.beside, 1_000, bury)
        await bench.fill(self.waiting, self.tenants)


async def by_shape(home: Home, scale: float) -> Table:
    """Claim and settle by tenants and backlog, batches of 100, full durability."""
    many, dead, crowd = (round(count * scale) for count in (MANY, MANY // 10, MANY // 10))
    shapes = [
        Shape(name="1 tenant", tenants=1),
        Shape(name="10 tenants", tenants=10),
        Shape(name="100 tenants"),
        Shape(name="1,000 tenants", tenants=1_000),
        Shape(name="10,000 tenants", tenants=10_000),
        Shape(name=f"{crowd:,} tenants", waiting=max(30_000, 2 * crowd), tenants=crowd),
        Shape(name="100 tenants, 1,000 waiting", waiting=1_000),
        Shape(name=f"100 tenants, {many:,} waiting", waiting=many),
        Shape(name=f"100 tenants, and {many:,} delayed", beside=many),
        Shape(name=f"100 tenants, and {many:,} parked", beside=many, of="gate"),
        Shape(name=f"100 tenants, and {dead:,} dead", beside=dead, of=None),
        Shape(name=f"10,000 tenants, {many:,} waiting", waiting=many, tenants=10_000),
        Shape(name="10 tenants, each job fails once", waiting=15_000, tenants=10, settle=retry),
    ]
    table = Table("shape", "jobs/s", "of 100 tenants", "µs CPU", "rows written", "bytes a job", title="Claim + settle")
    base = 0.0
    for shape in shapes:
        bench = Bench(home)
        await bench.open()
        await shape.fill(bench)
        size = await home.size() / (shape.waiting + shape.beside)
        before = await home.writes()
        attempts = 2 if shape.settle is retry else 1
        count = min(30_000, shape.waiting)
        speed, cpu = await bench.drain(attempts * count, 100, shape.settle)
        speed, cpu = speed / attempts, cpu * attempts
        after = await home.writes()
        rows = "" if before is None or after is None else f"{(after - before) / count:.2f}"
        base = speed if shape.name == "100 tenants" else base
        ratio = f"{speed / base:.0%}" if base else ""
        table.add_row(shape.name, f"{speed:,.0f}", ratio, f"{cpu:.1f}", rows, f"{size:.0f}")
        await bench.close()
    return table


async def enqueueing(home: Home, scale: float) -> Table:
    """Enqueue one by one, by many callers at once, and in bulk."""
    table = Table("enqueue", "full: jobs/s", "fast: jobs/s", title="Enqueue, 10 tenants")
    rows: dict[str, list[str]] = {"one by one": [], "100 callers at once": [], "bulk of 1,000, built beforehand": []}
    for durability in ("full", "fast"):
        bench = Bench(home, durability)
        await bench.open()
        count = round(2_000 * scale)
        rows["one by one"].append(f"{await _paced(bench, count):,.0f}")
        started = time.perf_counter()
        each = round(200 * scale)
        await asyncio.gather(*(_enqueue_many(bench, each) for _ in range(100)))
        rows["100 callers at once"].append(f"{100 * each / (time.perf_counter() - started):,.0f}")
        rows["bulk of 1,000, built beforehand"].append(f"{await _bulk(bench, round(100 * scale)):,.0f}")
        await bench.close()
    for name, entries in rows.items():
        table.add_row(name, *entries)
    return table


async def pinned(home: Home, scale: float) -> Table | None:
    """Run jobs while a transaction holds a snapshot; return nothing where that makes no difference."""
    table = Table(
        "tenants", "first tenth: p50 ms", "last tenth", "ratio", title="Claim + settle, with a snapshot pinned"
    )
    for tenants in (1, 10, 100):
        bench = Bench(home)
        await bench.open()
        count = round(100_000 * scale)
        await bench.fill(count, tenants)
        snapshot = home.pinned()
        if snapshot is None:
            await bench.close()
            return None
        with snapshot:
            first, last = await _tenths(bench, count)
        table.add_row(str(tenants), f"{first * 1e3:.1f}", f"{last * 1e3:.1f}", f"{last / first:.2f}×")
        await bench.close()
    return table


async def _tenths(bench: Bench, count: int) -> tuple[float, float]:
    """Claim and settle everything; return the median seconds of a claim in the first tenth and in the last."""
    times: list[float] = []
    changes: tuple[Change, ...] = ()
    for _ in range(count // 100):
        bench.number += 1
        claim = Claim(session="bench", number=bench.number, now=NOW, queues=("mail",), limit=100, changes=changes)
        started = time.perf_counter()
        claimed = await bench.store.claim(claim)
        times.append(time.perf_counter() - started)
        changes = tuple(map(succeed, claimed.jobs))
    tenth = max(1, len(times) // 10)
    return statistics.median(times[:tenth]), statistics.median(times[-tenth:])


async def operations(home: Home, scale: float) -> Table:
    """Single operations on a large store."""
    table = Table("operation", "p50 ms", "p99 ms", title="Single operations, full durability")
    bench = Bench(home)
    await bench.open()
    await bench.fill(round(100_000 * scale), 1)
    hold = LimitUpdate(subject="dependency", name="ses", permits=0)
    release = LimitUpdate(subject="dependency", name="ses", permits=None)
    times = []
    for _ in range(20):
        started = time.perf_counter()
        await bench.store.update_limits([hold], NOW, PROGRAM)
        await bench.store.update_limits([release], NOW, PROGRAM)
        times.append(time.perf_counter() - started)
    table.add_row(f"hold + release, {round(100_000 * scale):,} jobs in one lane", *_percentiles(times))
    await bench.close()
    bench = Bench(home)
    await bench.open()
    many = round(MANY * scale)
    await bench.fill(many, 100, due_in=3_600_000, wait="schedule")
    jobs = [bench.job("tenant-0", due_in=3_600_000 + 7 * number, wait="schedule") for number in range(200)]
    failed = [
        change.settle(change.lease(job, "x", NOW).job, Retry(due_at=job.due_at, cause=CAUSE, delay=1), NOW).job
        for job in jobs
    ]
    await bench.store.enqueue(failed, NOW)
    times = []
    for job in failed:
        made = change.retry(job, Request(by="ana", reason="now"), NOW, 1_800)
        started = time.perf_counter()
        assert await bench.store.apply([made], NOW) == ["applied"]
        times.append(time.perf_counter() - started)
    table.add_row(f"retry now among {many:,} delayed", *_percentiles(times))
    await bench.close()
    return table


def _percentiles(times: list[float]) -> Iterator[str]:
    ordered = sorted(times)
    yield f"{statistics.median(ordered) * 1e3:.2f}"
    yield f"{ordered[int(len(ordered) * 0.99)] * 1e3:.2f}"


async def _enqueue_many(bench: Bench, count: int) -> None:
    for number in range(count):
        await bench.store.enqueue([bench.job(f"tenant-{number % 10}")], NOW)


async def _bulk(bench: Bench, calls: int) -> float:
    """Enqueue in bulk; return jobs per second, without the time that it takes to build them."""
    bulks = [[bench.job(f"tenant-{number % 10}") for number in range(1_000)] for _ in range(calls)]
    started = time.perf_counter()
    for jobs in bulks:
        await bench.store.enqueue(jobs, NOW)
    return 1_000 * calls / (time.perf_counter() - started)


async def _paced(bench: Bench, count: int) -> float:
    started = time.perf_counter()
    await _enqueue_many(bench, count)
    return count / (time.perf_counter() - started)


def _home(url: str, folder: Path) -> Home:
    match url.partition("://")[0]:
        case "postgresql" | "postgres":
            return PostgresHome(url)
        case "redis" | "rediss" | "valkey" | "valkeys":
            return RedisHome(url)
        case _:
            return SqliteHome(folder)


async def run(url: str, scale: float) -> None:
    """Print every table."""
    with tempfile.TemporaryDirectory() as folder:
        home = _home(url, Path(folder))
        for measure in (by_batch, by_shape, enqueueing, operations, pinned):
            if (table := await measure(home, scale)) is not None:
                console.print(table)


def main() -> None:
    """Measure a store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="a share of the full sizes")
    parser.add_argument("--store", default="sqlite", help="the URL of a server; SQLite unless given")
    arguments, _ = parser.parse_known_args()
    asyncio.run(run(arguments.store, arguments.scale))


if __name__ == "__main__":
    main()
