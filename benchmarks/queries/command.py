"""How long queries take beside a worker at full load, and what they cost it: `python -m benchmarks queries`.

Each store is filled with jobs in every state. Then a worker works off jobs that do nothing, which another process
enqueues without end, and a third process asks every query in turn, twenty a second. Windows with and without queries
alternate: the worker's processor time for a job is compared pair by pair.
"""

import argparse
import asyncio
import contextlib
import json
import signal
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.flow import machine, processor
from benchmarks.flow.home import Home, Place, PostgresHome, RedisHome, SqliteHome
from benchmarks.flow.side import REPRIEVE, ROOT
from benchmarks.flow.track import counted
from benchmarks.flow.worker import working
from benchmarks.queries.asker import PER_SECOND
from benchmarks.queries.catalog import QUERIES
from benchmarks.queries.facts import Facts, Sizes
from benchmarks.queries.fill import Filler
from reprieve.clock import now
from reprieve.stores.open import open_store
from tests.servers import postgres, redis

STORES = ("sqlite", "postgres", "redis")
PAIRS = 7
ASKED = 30
"""How often each query is asked at least."""

ASKED_ALONE = 5
"""How often each query is asked before the worker begins."""

MAX_MEDIAN_MS, MAX_P99_MS = 10.0, 50.0
MAX_LOSS = 0.05
WARM_UP_SECONDS = 3.0
RESULTS = ROOT / "benchmarks" / "results"
console = Console()


class Window(NamedTuple):
    """What a worker did for some seconds."""

    rate: float
    """Jobs a second."""
    cost: float
    """Microseconds of the worker's processor time for a job."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks queries", description=__doc__)
    parser.add_argument("--store", choices=STORES, action="append", help="one of the stores; all unless given")
    parser.add_argument("--jobs", type=int, default=1_000_000, help="jobs that each store is filled with")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="windows with and without queries")
    parser.add_argument("--seconds", type=float, default=0.0, help="of a window; enough for all queries unless given")
    parser.add_argument("--output", type=Path, default=None, help="where results go; benchmarks/results if full")
    wanted = parser.parse_args(arguments)
    output = wanted.output or (RESULTS if wanted.jobs >= Sizes().jobs else None)
    seconds = wanted.seconds or max(5.0, len(QUERIES) * ASKED / PER_SECOND / wanted.pairs)
    for name in wanted.store or STORES:
        with _home(name) as home, home.empty() as place:
            result = measure(place, Sizes(jobs=wanted.jobs), wanted.pairs, seconds)
        show(name, result)
        if output is not None:
            facts = {"commit": machine.commit(), "machine": asdict(machine.facts()), "server": home.server}
            (output / f"queries-{name}.json").write_text(json.dumps(facts | result, indent=1) + "\n", "utf-8")


@contextmanager
def _home(store: str) -> Iterator[Home]:
    if store == "sqlite":
        yield SqliteHome()
    elif store == "postgres":
        with postgres.running() as url:
            yield PostgresHome(url)
    else:
        with redis.running() as url:
            yield RedisHome(url)


def measure(place: Place, sizes: Sizes, pairs: int, seconds: float) -> dict[str, object]:
    """Fill a store, and measure; return what was found."""
    started = time.monotonic()
    facts = asyncio.run(_fill(place, sizes))
    elapsed, megabytes = time.monotonic() - started, place.weigh() / 1e6
    console.print(f"filled with {sizes.jobs:,} jobs in {elapsed:.0f} s, {megabytes:,.0f} MB")
    took: dict[str, list[float]] = defaultdict(list)
    quiet: list[Window] = []
    asked: list[Window] = []
    with ExitStack() as stack:
        asker = stack.enter_context(_asker(place, facts))
        asker.begin(len(QUERIES) * ASKED_ALONE / PER_SECOND)
        alone = asker.end()
        worker = stack.enter_context(_load(place))
        worker.window(WARM_UP_SECONDS)
        for number in range(pairs):
            console.print(f"pair {number + 1} of {pairs}, {2 * seconds:.0f} s", style="dim")
            # Which of the two comes first alternates, so that a drift favours neither.
            for is_asked in (False, True) if number % 2 else (True, False):
                if is_asked:
                    asker.begin(seconds)
                (asked if is_asked else quiet).append(worker.window(seconds))
                if is_asked:
                    for name, times in asker.end().items():
                        took[name] += times
    return {
        "jobs": sizes.jobs,
        "pairs": pairs,
        "window_seconds": seconds,
        "worker": {
            "quiet": [window._asdict() for window in quiet],
            "asked": [window._asdict() for window in asked],
            "loss": statistics.median(b.cost / a.cost - 1 for a, b in zip(quiet, asked, strict=True)),
        },
        "queries": {name: _figures(times, alone.get(name, [])) for name, times in took.items()},
    }


def _figures(times: list[float], alone: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {
        "times": len(ordered),
        "alone_ms": round(statistics.median(alone), 2) if alone else -1.0,
        "p50_ms": round(statistics.median(ordered), 2),
        "p99_ms": round(ordered[min(len(ordered) - 1, round(0.99 * len(ordered)))], 2),
    }


async def _fill(place: Place, sizes: Sizes) -> Facts:
    store = open_store(place.url, durability="fast")
    try:
        return await Filler(store, place.url, sizes, now(), console).fill()
    finally:
        await store.close()


class Load:
    """A worker at full load."""

    def __init__(self, worker: int, place: Place) -> None:
        """Take the process of the worker."""
        self._worker = worker
        self._place = place

    def window(self, seconds: float) -> Window:
        """Return what the worker does in the next seconds."""
        before, began = self._sample(), time.monotonic()
        time.sleep(seconds)  # noqa: TID251 - the window is real
        after, elapsed = self._sample(), time.monotonic() - began
        jobs = after[0] - before[0]
        if not jobs:
            message = f"the worker ran nothing:\n{(self._place.folder / 'worker.log').read_text('utf-8')[-2_000:]}"
            raise RuntimeError(message)
        return Window(rate=jobs / elapsed, cost=(after[1] - before[1]) / jobs * 1e6)

    def _sample(self) -> tuple[int, float]:
        own, children = processor.seconds(self._worker)
        return counted(self._place.folder), (own or 0.0) + (children or 0.0)


@contextmanager
def _load(place: Place) -> Iterator[Load]:
    """Run a worker, and a process that enqueues without end."""
    with working(REPRIEVE, place) as worker, _process("benchmarks.queries.feeder", place):
        worker.wait_for(1_000)
        yield Load(worker.pid, place)


class Asker:
    """The process that asks."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        """Take the process, which knows the facts."""
        self._process = process

    def begin(self, seconds: float) -> None:
        """Let it ask for some seconds."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()

    def end(self) -> dict[str, list[float]]:
        """Return how many milliseconds each query took, each time."""
        assert self._process.stdout is not None
        return msgspec.json.decode(self._process.stdout.readline(), type=dict[str, list[float]])


@contextmanager
def _asker(place: Place, facts: Facts) -> Iterator[Asker]:
    with _process("benchmarks.queries.asker", place) as process:
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(facts).decode() + "\n")
        process.stdin.flush()
        yield Asker(process)


@contextmanager
def _process(module: str, place: Place) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(  # noqa: S603 - a module of ours
        [sys.executable, "-m", module],
        cwd=ROOT,
        env=REPRIEVE.environ_in(place),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()
        process.communicate()


def show(name: str, result: dict[str, object]) -> None:
    """Print what was found, and what misses its bound."""
    queries = msgspec.convert(result["queries"], dict[str, dict[str, float]])
    table = Table("query", "times", "alone ms", "p50 ms", "p99 ms", "", title=f"{name}, {result['jobs']:,} jobs")
    for query, figures in sorted(queries.items(), key=lambda item: -item[1]["p50_ms"]):
        misses = [
            bound
            for bound, key, most in (("p50", "p50_ms", MAX_MEDIAN_MS), ("p99", "p99_ms", MAX_P99_MS))
            if figures[key] > most
        ]
        row = (f"{figures['times']:.0f}", *(f"{figures[name]:.2f}" for name in ("alone_ms", "p50_ms", "p99_ms")))
        table.add_row(query, *row, f"✗ {', '.join(misses)}" if misses else "✓")
    console.print(table)
    worker = msgspec.convert(result["worker"], dict[str, object])
    loss = msgspec.convert(worker["loss"], float)
    quiet = msgspec.convert(worker["quiet"], list[dict[str, float]])
    rate, cost = (statistics.median(window[key] for window in quiet) for key in ("rate", "cost"))
    console.print(
        f"worker: {rate:,.0f} jobs/s at {cost:.0f} µs of processor time each; queries add {loss:+.1%} "
        f"({'✓' if loss <= MAX_LOSS else '✗'}, at most {MAX_LOSS:.0%})"
    )
