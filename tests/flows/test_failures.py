"""Failures and headers on every store, from a real worker to what people read of them."""

import asyncio
import json
from pathlib import Path

from reprieve import JobHandle, Policy, Reprieve
from reprieve.core.headers import Headers
from reprieve.stores.protocol import FailureGroup, Filter, Heartbeat
from reprieve.worker.isolation import Processes
from reprieve.worker.worker import Worker
from tests.flows.fleet import PATIENCE
from tests.flows.ground import Grounds

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def test_a_dead_job_says_what_happened_and_its_child_where_it_comes_from(
    grounds: Grounds, tmp_path: Path
) -> None:
    with grounds(tmp_path) as ground:
        async with Reprieve(ground.url) as app:

            @app.task(name="follow", queue="later")
            async def follow() -> None: ...

            @app.task(name="parse", policy=Policy(max_attempts=1))
            async def parse() -> None:
                await follow.aenqueue()
                json.loads("{")

            job = await parse.using(tags=["nightly"], user="ana", traceparent=TRACE).aenqueue()
            group = await asyncio.wait_for(run_until_described(app, job), PATIENCE)
            dead = await job.afetch()
            assert dead.cause is not None
            assert (dead.state, dead.headers) == (
                "dead",
                Headers(tags=("nightly",), user="ana", traceparent=TRACE),
            )
            assert (dead.cause.type, dead.cause.scope) == ("json.decoder.JSONDecodeError", "job")
            assert dead.cause.duration is not None
            assert 'json.loads("{")' in dead.cause.traceback
            assert "in JSONDecoder.raw_decode" in group.traceback
            assert group.template.endswith("line <n> column <n> (char <n>)")
            (child,) = (await app.store.find(Filter(tasks=("follow",)), app.clock.now())).jobs
            assert child.headers == Headers(parent=job.id, traceparent=TRACE)


async def run_until_described(app: Reprieve, job: JobHandle[None]) -> FailureGroup:
    """Run a worker until the failure of this job is described in the store."""
    store = app.store
    await store.heartbeat(Heartbeat(session="worker", now=app.clock.now(), lease=600, slots=5, is_new=True))
    worker = Worker(app, "worker", queues=("default",), slots=5, isolation=Processes())
    working = asyncio.create_task(worker.run())
    try:
        while True:
            cause = (await job.afetch()).cause
            groups = [] if cause is None else await store.failure_groups([cause.fingerprint])
            if groups:
                return groups[0]
            await asyncio.sleep(0.02)
    finally:
        worker.stop()
        await working
