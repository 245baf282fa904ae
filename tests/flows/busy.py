"""A program that enqueues, retries, cancels and prunes until it is killed: `python -m tests.flows.busy URL`.

What a store refuses because its server is away is tried again; nothing else is.
"""

import asyncio
import itertools
import os
import signal
import sys
import threading

from reprieve import Reprieve
from reprieve.call import Call
from reprieve.clock import now
from reprieve.config import Settings
from reprieve.core.job import Job
from reprieve.errors import InvalidRetryState, InvalidState, JobNotFound, StoreError
from reprieve.stores.protocol import Filter, Retention
from tests.flows import workload
from tests.flows.workload import fail_once, nap, relay

TENANTS = 5
CLOSED_PORT = 1
MAX_WAITING = 300
"""Jobs that wait at most: a worker must be able to work them off in the end."""


def end_with_the_test() -> None:
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGKILL)


def calls(number: int) -> list[Call[object]]:
    """Return calls of every outcome: success, a retry, a death, and a dependency that is away."""
    tenant = f"tenant-{number % TENANTS}"
    return [
        nap.using(tenant=tenant).call(),
        fail_once.using(tenant=tenant).call(0.1),
        fail_once.using(tenant=tenant).call(),
        nap.using(tenant=tenant, delay="1h").call(),
        *([relay.using(tenant=tenant).call(CLOSED_PORT)] if number % 4 == 0 else []),
    ]


async def act(app: Reprieve, number: int) -> None:
    """Do a little of everything."""
    counted = await app.store.tally("status", Filter(), now())
    if counted.counts.get("ready", 0) < MAX_WAITING:
        await app.aenqueue_many(calls(number))
    for job in await find(app, "dead"):
        await app.job(job.id).aretry(by="ana", reason="the provider is back")
    for job in await find(app, "scheduled"):
        await app.job(job.id).acancel(by="bea", reason="the customer left")
    if number % 5 == 0:
        await app.store.prune(Retention(now=now(), succeeded=50))


async def find(app: Reprieve, status: str) -> tuple[Job, ...]:
    """Return two jobs of a status."""
    return (await app.store.find(Filter(statuses=frozenset({status})), now(), limit=2)).jobs  # type: ignore[arg-type]  # a status


async def run(url: str) -> None:
    app = Reprieve(url, settings=Settings())
    for declaration in workload.app.registry:
        app.registry.add(declaration)
    for number in itertools.count():
        try:
            await act(app, number)
        except (JobNotFound, InvalidState, InvalidRetryState):
            continue  # another process was faster
        except StoreError as error:
            if not error.is_passing:
                raise
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    threading.Thread(target=end_with_the_test, daemon=True).start()
    asyncio.run(run(sys.argv[1]))
