"""What a running worker tells the store of itself, for `reprieve workers` and for the fair choice."""

import os
import signal
import socket

from reprieve import __version__
from reprieve.stores.protocol import Session
from tests.flows.fleet import Stage, flow
from tests.flows.workload import nap, stay

TASKS = ("first", "second")


async def sessions(stage: Stage) -> list[Session]:
    return await stage.app.store.sessions(stage.app.clock.now())


@flow
async def test_a_worker_is_listed_from_its_start_to_its_end(stage: Stage) -> None:
    began = stage.app.clock.now()
    tree = stage.hire(processes=2, slots=3, tasks=TASKS, queues=("default", "other"))

    async def both() -> bool:
        return len(await sessions(stage)) == 2

    await stage.until(both, "both processes are listed")
    for session in await sessions(stage):
        assert (session.host, session.pid, session.version) == (socket.gethostname(), tree.pid, __version__)
        assert (session.queues, session.tasks, session.slots) == (("default", "other"), TASKS, 3)
        assert began - 1_000 <= session.since <= session.heartbeat_at <= stage.app.clock.now()
    tree.send(signal.SIGTERM)
    await stage.until(lambda: tree.status() is not None, "the worker has stopped")
    assert await sessions(stage) == []
    assert tree.pid != os.getpid()


@flow
async def test_heartbeats_say_how_many_jobs_run(stage: Stage) -> None:
    stage.hire(slots=3)
    jobs = await stage.enqueue(*(stay.call(stage.mark("end")) for _ in range(2)))
    await stage.running(*jobs)

    async def running() -> bool:
        return [(session.running, session.prefetch) for session in await sessions(stage)] == [(2, 0)]

    await stage.until(running, "a heartbeat says that two jobs run, and that slow jobs are not fetched ahead")
    stage.release("end")
    await stage.succeeded(*jobs)


@flow
async def test_the_store_learns_early_how_many_fast_jobs_are_fetched_ahead(stage: Stage) -> None:
    # The next heartbeat that is due would come after the end of the test.
    stage.hire(slots=4, heartbeat=120.0, lease=600.0)
    await stage.succeeded(*await stage.enqueue(*(nap.call() for _ in range(20))))

    async def ahead() -> bool:
        return [session.prefetch > 4 for session in await sessions(stage)] == [True]

    await stage.until(ahead, "a heartbeat says that more jobs are fetched ahead than there are slots")
