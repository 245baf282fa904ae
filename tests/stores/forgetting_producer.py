"""A producer whose lanes are deleted meanwhile: `python -m tests.stores.forgetting_producer url count`.

It enqueues jobs on a few lanes, one after the other, and prints their ids. On PostgreSQL some are in transactions that
stay open for a while. Jobs come in bursts, so that their lanes are empty in between.
"""

import asyncio
import json
import sys

import psycopg

from reprieve.clock import ticks
from reprieve.stores.open import open_store
from reprieve.stores.postgres import PostgresStore
from reprieve.stores.protocol import Store
from reprieve.testing.conformance.stage import SECOND, START, new_job

LANES = 5
PAUSE_SECONDS = 0.01
OPEN_TRANSACTIONS = 3


async def produce(url: str, count: int) -> list[str]:
    """Enqueue so many jobs; return their ids."""
    store = open_store(url)
    ids: list[str] = []
    began = ticks()
    for number in range(count):
        # Time runs a thousand times as fast as the clock, so that names are searched for again and again.
        now = START + int((ticks() - began) * 1_000) * SECOND
        lane = {"tenant": f"t{number % LANES}", "task": f"k{number % LANES}", "group": f"g{number % LANES}"}
        job = new_job(store, now, due_at=now + SECOND * (number % 2), **lane)
        ids += await store.enqueue([job], now)
        await asyncio.sleep(PAUSE_SECONDS * (number % LANES))
    if url.startswith("postgres"):
        ids += await _in_transactions(store, url, count)
    await store.close()
    return ids


async def _in_transactions(store: Store, url: str, count: int) -> list[str]:
    """Enqueue jobs in transactions that overlap, each of them open while those before it end."""
    server, _, schema = url.partition("?schema=")
    ids: list[str] = []
    connections = [psycopg.connect(server) for _ in range(OPEN_TRANSACTIONS)]
    own = PostgresStore(f"{server}?schema={schema}")
    for number in range(count):
        connection = connections[number % OPEN_TRANSACTIONS]
        connection.commit()
        jobs = [new_job(store, START, tenant=f"t{number % LANES}", task=f"k{number % LANES}") for _ in range(2)]
        ids += own.enqueue_in(connection, jobs, START)
        await asyncio.sleep(PAUSE_SECONDS)
    for connection in connections:
        connection.commit()
        connection.close()
    await own.close()
    return ids


if __name__ == "__main__":
    print(json.dumps(asyncio.run(produce(sys.argv[1], int(sys.argv[2])))))  # noqa: T201 - how a program replies
