"""Outages of what jobs call, with real servers and real workers: which jobs are spared, and when they are done."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from reprieve import Job
from reprieve.clock import ticks
from reprieve.core.status import status_of
from reprieve.views.waiting import waits_for
from tests.flows.fleet import ONCE, PATIENCE, Stage, calls, flow, play
from tests.flows.ground import Grounds
from tests.flows.workload import ask, relay
from tests.servers.ports import free_port

ATTEMPTS = 3
"""Fewer than an outage would use up."""

LONG = 60.0
"""Seconds of an outage of which it is measured how late the jobs are."""

LATEST = 6.0
"""Seconds after such an outage at which all jobs must be done."""

on_all_outages = pytest.mark.parametrize("outage", [6.0, pytest.param(LONG, marks=pytest.mark.faults)])


@asynccontextmanager
async def serving(port: int) -> AsyncGenerator[None]:
    """Accept connections; say nothing."""
    open_ones: set[asyncio.StreamWriter] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_ones.add(writer)
        await reader.read()
        writer.close()
        open_ones.discard(writer)

    server = await asyncio.start_server(accept, "127.0.0.1", port)
    try:
        yield
    finally:
        server.close()
        for writer in open_ones:
            writer.close()
        await asyncio.sleep(0)


def survive(jobs: int, outage: float) -> Callable[[Stage], Awaitable[None]]:
    """Return the scene of an outage that so many jobs meet."""

    async def scene(stage: Stage) -> None:
        port = free_port()
        stage.hire(queues=("relay",))
        ids = await stage.enqueue(*calls(relay.using(max_attempts=ATTEMPTS), jobs, port))
        failed = await stage.until(lambda: stage.finished(*ids), "a call was refused")
        await stage.until(lambda: waiting(stage, ids), "all jobs wait for the server")
        for job in await stage.jobs(ids):
            assert job.state == "running" or status_of(job, job.due_at - 1) == "parked"
        await stage.let_pass(failed[0].at + outage - ticks())
        async with serving(port):
            back = ticks()
            done = await stage.succeeded(*ids, within=PATIENCE)
        assert [(job.charged, job.spared > ATTEMPTS) for job in done] == [(0, True)] * jobs
        late = max(line.at for line in stage.finished(*ids)) - back
        stage.figure(f"{jobs} jobs, {outage:g} s refused, done after", late)
        assert outage < LONG or late <= LATEST

    return scene


async def waiting(stage: Stage, ids: list[str]) -> bool:
    """Whether all jobs were parked at least once, and say what they wait for."""
    jobs = await stage.jobs(ids)
    now = stage.app.clock.now()
    explained = [waits_for(job, "parked", now) for job in jobs if job.waiting_for == "gate"]
    assert all(line.startswith("relay: ") and "; no answer since " in line for line in explained)
    return all(job.parked_since_at is not None and job.parked_on == "relay" for job in jobs)


@on_all_outages
async def test_one_job_alone_survives_an_outage_and_is_done_soon_after_it(
    tmp_path: Path, grounds: Grounds, outage: float
) -> None:
    await play(survive(1, outage), tmp_path, ONCE, grounds)


@on_all_outages
async def test_three_jobs_survive_an_outage_and_are_done_soon_after_it(
    tmp_path: Path, grounds: Grounds, outage: float
) -> None:
    await play(survive(3, outage), tmp_path, ONCE, grounds)


@flow
async def test_one_job_alone_that_always_times_out_dies_after_its_attempts(stage: Stage) -> None:
    port = free_port()
    stage.hire(queues=("relay",))
    async with serving(port):
        job = await stage.enqueue_one(ask.using(max_attempts=ATTEMPTS).call(port))
        (dead,) = await stage.ended(job)
    assert (dead.death, dead.charged, dead.spared) == ("exhausted", ATTEMPTS, 0)
    assert len(stage.finished(job)) == ATTEMPTS


async def keep_calling(stage: Stage, port: int, queue: str, until: Callable[[], Awaitable[bool]]) -> list[str]:
    """Let healthy jobs of the same dependency run, one after the other, until something has happened."""
    ids: list[str] = []
    while not await until():
        ids.append(await stage.enqueue_one(relay.using(queue=queue).call(port)))
        await stage.succeeded(ids[-1])
    return ids


def has_ended(stage: Stage, job: str) -> Callable[[], Awaitable[bool]]:
    async def ended() -> bool:
        return (await stage.job(job)).state == "dead"

    return ended


async def one_dead_host(stage: Stage, *queues: str) -> Job:
    """Let a job call a server that is not there, while another server of the same dependency serves others."""
    port = free_port()
    bad = await stage.enqueue_one(relay.using(max_attempts=ATTEMPTS).call(free_port()))
    async with serving(port), asyncio.timeout(PATIENCE):
        healthy = await keep_calling(stage, port, queues[-1], has_ended(stage, bad))
    assert [job.attempt for job in await stage.jobs(healthy)] == [1] * len(healthy)
    return await stage.job(bad)


@flow
async def test_a_dead_host_beside_healthy_ones_is_charged_and_stops_none_of_them(stage: Stage) -> None:
    stage.hire(queues=("relay",))
    dead = await one_dead_host(stage, "relay")
    assert (dead.death, dead.charged) == ("exhausted", ATTEMPTS)


@flow
async def test_a_dead_host_is_charged_when_only_another_worker_sees_the_others_succeed(stage: Stage) -> None:
    stage.hire(queues=("relay",))
    stage.hire(queues=("other",))
    dead = await one_dead_host(stage, "relay", "other")
    assert (dead.death, dead.charged) == ("exhausted", ATTEMPTS)
