"""Ask the queries in a process of their own: `python -m benchmarks.queries.asker`, which a benchmark starts.

The first line of its input is the facts, as JSON. Every other line is a number of seconds to ask for, and is answered
by a line: how many milliseconds each query took, each time. One query at a time, so that a slow one spoils no other.
"""

import asyncio
import json
import sys
import time
from collections import defaultdict

import msgspec

from benchmarks.flow.loop import new_loop
from benchmarks.queries.catalog import QUERIES
from benchmarks.queries.facts import Facts
from reprieve.clock import now
from reprieve.stores.open import open_store

PER_SECOND = 20
WARM_UP = 3
"""Queries of an opened store that do not count: it connects."""


async def ask() -> None:
    """Ask for as long as each line says."""
    facts = msgspec.json.decode(await _line(), type=Facts)
    store = open_store(facts.url)
    for number in range(WARM_UP):
        await QUERIES[number].ask(store, facts, now())
    asked = 0
    while line := await _line():
        took: dict[str, list[float]] = defaultdict(list)
        began = time.monotonic()
        for number in range(round(float(line) * PER_SECOND)):
            await asyncio.sleep(began + number / PER_SECOND - time.monotonic())
            query = QUERIES[asked % len(QUERIES)]
            asked += 1
            started = time.perf_counter()
            await query.ask(store, facts, now())
            took[query.name].append((time.perf_counter() - started) * 1e3)
            if time.monotonic() - began > float(line):
                break
        print(json.dumps(took), flush=True)
    await store.close()


async def _line() -> str:
    return await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(ask())
