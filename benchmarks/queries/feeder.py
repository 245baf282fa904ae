"""Keep a worker busy: `python -m benchmarks.queries.feeder` enqueues jobs that do nothing, as many as end."""

import asyncio

from benchmarks.flow.sides.reprieve import Producer, app
from benchmarks.flow.track import counted, folder

BACKLOG = 3_000
"""Jobs that wait: enough for the worker to fetch ahead."""

CHUNK = 500
TENANTS = 100
LOOK_SECONDS = 0.02


async def feed(producer: Producer) -> None:
    """Enqueue for as long as this process lives."""
    enqueued = 0
    while True:
        if enqueued - counted(folder()) < BACKLOG:
            await producer.put_many("nothing", CHUNK, TENANTS)
            enqueued += CHUNK
        else:
            await asyncio.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    running = Producer()
    try:
        running.loop.run_until_complete(feed(running))
    except KeyboardInterrupt:
        app.close()
