"""Programs that tests run in processes of their own: `python -m tests.stores.sqlite.programs name argument …`.

Each prints lines of JSON.
"""

import asyncio
import json
import os
import resource
import sys
import tempfile
import warnings
from collections.abc import Callable, Coroutine
from pathlib import Path

from reprieve.core import change
from reprieve.core.move import Succeed
from reprieve.errors import StoreError, StoreFull, StoreReplaced
from reprieve.stores.protocol import ChangeResult
from reprieve.stores.sqlite import SqliteStore
from reprieve.testing.conformance.stage import START, Worker, new_job, new_jobs

UNPRIVILEGED_ID = 65_534


def say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)  # noqa: T201 - how a program answers


async def open_unprivileged(path: str) -> None:
    """Open a store without root's rights to everything; say how that ended."""
    # Whatever is imported or read from the source must be so before the rights are gone.
    with tempfile.TemporaryDirectory() as folder:
        await SqliteStore(Path(folder) / "warm.db").close()
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(UNPRIVILEGED_ID)
        os.setuid(UNPRIVILEGED_ID)
    try:
        store = SqliteStore(Path(path))
    except Exception as error:  # noqa: BLE001 - the test judges its kind
        say(error=type(error).__name__, message=str(error))
    else:
        await store.close()
        say(error="")


async def fill_up(path: str, size: str) -> None:
    """Enqueue until no file may grow any more; then have room again and go on."""
    store = SqliteStore(Path(path))
    worker = await Worker.open(store)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), resource.RLIM_INFINITY))
    stored: list[str] = []
    refused: list[str] = []
    while not refused:
        jobs = new_jobs(store, 20, payload=b"x" * 500)
        try:
            stored += await store.enqueue(jobs, START)
        except StoreFull as error:
            refused = [job.id for job in jobs]
            say(refused=refused, message=str(error), code=error.code)
    try:
        early = list(await worker.take(5))
    except StoreFull:
        early = []
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    stored += await store.enqueue([new_job(store)], START)
    answers: list[ChangeResult] = []
    taken: list[str] = []
    jobs = early
    while True:
        changes = [change.settle(job, Succeed(), START) for job in jobs]
        claimed = await worker.ask(100, changes=changes)
        answers += claimed.results
        taken += [job.id for job in jobs]
        jobs = list(claimed.jobs)
        if not jobs:
            break
    await store.close()
    say(stored=stored, taken=taken, results=sorted(set(answers)))


async def take_turns(path: str, session: str) -> None:
    """Claim and settle until a job says that it is the last; say which jobs were run."""
    store = SqliteStore(Path(path))
    worker = await Worker.open(store, session, slots=10)
    say(ready=session)
    ran: list[str] = []
    jobs = await worker.take(3)
    while not any(job.task == "last" for job in jobs):
        ran += [job.id for job in jobs]
        claimed = await worker.ask(3, changes=[change.settle(job, Succeed(), START) for job in jobs])
        jobs = list(claimed.jobs)
        if not jobs:
            await store.wait(("default",), 1.0)
    await worker.settle(*(change.settle(job, Succeed(), START) for job in jobs))
    await store.close()
    say(ran=ran)


async def enqueue_when_told(path: str) -> None:
    """Enqueue a job for every line that is read, and say when its call was made."""
    store = SqliteStore(Path(path))
    say(ready="producer")
    while await asyncio.to_thread(sys.stdin.readline):
        await store.enqueue([new_job(store)], START)
        say(enqueued=True)
    await store.close()


async def enqueue_until_stored(path: str) -> None:
    """Enqueue a job for every line that is read, as often as it takes, and say which."""
    store = SqliteStore(Path(path))
    say(ready="producer")
    while await asyncio.to_thread(sys.stdin.readline):
        job = new_job(store)
        stored: list[str] = []
        while not stored:
            try:
                stored = await store.enqueue([job], START)
            except StoreReplaced:
                await asyncio.sleep(0.05)
        say(stored=stored)
    await store.close()


async def make_ids(path: str, count: str) -> None:
    """Make so many ids at one moment."""
    store = SqliteStore(Path(path))
    say(ids=[store.new_id(START, "default") for _ in range(int(count))])
    await store.close()


async def hold_the_lock(path: str) -> None:
    """Hold the write lock until a line is read."""
    store = SqliteStore(Path(path))

    def hold(tx: object) -> None:
        say(ready="holder")
        sys.stdin.readline()

    await asyncio.wrap_future(store.submit(hold))
    await store.close()


def fork_with_an_open_store(path: str) -> None:
    """Fork while a store is open; say what child and parent can do with it."""
    warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads is what this is about
    store = SqliteStore(Path(path))
    asyncio.run(enqueue_one(store))
    child = os.fork()
    if not child:
        try:
            asyncio.run(enqueue_one(store))
        except StoreError as error:
            say(inherited=str(error))
        asyncio.run(store.close())
        own = SqliteStore(Path(path))
        say(own=asyncio.run(enqueue_one(own)))
        asyncio.run(own.close())
        os._exit(0)
    _, status = os.waitpid(child, 0)
    say(child=status, parent=asyncio.run(enqueue_one(store)))
    asyncio.run(store.close())


async def enqueue_one(store: SqliteStore) -> str:
    (job_id,) = await asyncio.wait_for(store.enqueue([new_job(store)], START), 30)
    return job_id


PROGRAMS: dict[str, Callable[..., Coroutine[None, None, None]]] = {
    program.__name__: program
    for program in (
        *(open_unprivileged, fill_up, take_turns, enqueue_when_told, enqueue_until_stored, make_ids, hold_the_lock),
    )
}

if __name__ == "__main__":
    if sys.argv[1] == "fork_with_an_open_store":
        fork_with_an_open_store(sys.argv[2])
    else:
        asyncio.run(PROGRAMS[sys.argv[1]](*sys.argv[2:]))
